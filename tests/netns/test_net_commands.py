"""`nodeagent net` and the real daemon in a real kernel: what is shown is there, what is cleaned is gone."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.drivers.tc.trial import FEATURES
from nodeagent.net_probe import probe
from nodeagent.traffic import KernelFeatures
from tests.netns.world import INSIDE, INTERNET, POD_A, World

UID = "11111111-1111-1111-1111-111111111111"
DATAGRAMS, DATAGRAM_BYTES = 10, 1000
IP_BYTES = DATAGRAMS * (DATAGRAM_BYTES + 28)
START_SECONDS = 20.0
TABLES = "cat /proc/net/ip_tables_names /proc/net/ip6_tables_names; nft list ruleset; ipset save"


def pod(name: str, uid: str, *addresses: str, phase: str = "Running", host: bool = False) -> dict[str, Any]:
    """One item of a v1.PodList."""
    return {
        "metadata": {"namespace": "team", "name": name, "uid": uid}, "spec": {"hostNetwork": host},
        "status": {"phase": phase, "podIPs": [{"ip": address} for address in addresses]},
    }  # fmt: skip


PODS = (pod("a", UID, POD_A[4], POD_A[6]), pod("old", "u2", "10.244.1.99", phase="Succeeded"))


def send(address: str) -> None:
    """Datagrams from wherever this runs."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        for _ in range(DATAGRAMS):
            sender.sendto(bytes(DATAGRAM_BYTES), (address, 9))


class Node:
    """The node's agent: its files, and its command line in the node's namespace."""

    def __init__(self, world: World, folder: Path, **node: Any) -> None:
        """Write configuration and pods; /proc/1 is the process itself, so its namespace is the host's."""
        self.world, self.folder = world, folder
        (folder / "proc").mkdir(parents=True)
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                (folder / "proc" / entry.name).symlink_to(entry)
        (folder / "proc" / "1").symlink_to("/proc/self")
        (folder / "pods.json").write_text(json.dumps({"kind": "PodList", "apiVersion": "v1", "items": PODS}))
        paths = {"state_file": f"{folder}/memory.json", "proc_root": f"{folder}/proc"}
        sections = {
            "node": {"name": "n1", **paths, **node},
            "gpu": {"enabled": "false"}, "pods": {"source": "file", "file": f"{folder}/pods.json"},
            "status": {"socket": f"{folder}/s.sock", "metrics_listen": ""},
            "network": {"pod_metrics": True},
        }  # fmt: skip
        lines = [f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items())
                 for name, keys in sections.items()]
        (folder / "c.toml").write_text("".join(lines))
        self.program = [sys.executable, "-m", "nodeagent", "--config", str(folder / "c.toml")]
        self.process: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        """Start the daemon."""
        with (self.folder / "log").open("wb") as log:
            self.process = self.world.start("node", [*self.program, "run"], stdout=log, stderr=log)

    def stop(self) -> None:
        """End it in peace."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(15)

    def cli(self, *words: str) -> tuple[int, str]:
        """Exit code, and what was printed to both streams."""
        done = subprocess.run(
            self.world.argv("node", *self.program, *words), capture_output=True, text=True, timeout=40,
            check=False, env=self.world.environment,
        )
        return done.returncode, done.stdout + done.stderr

    def json(self, *words: str) -> dict[str, Any]:
        """The JSON object that a command prints, whatever its exit code."""
        return dict(json.loads(self.cli(*words, "--json")[1]))

    def wait_until_marked(self) -> None:
        """Return when nothing is pending any more."""
        end_seconds = time.monotonic() + START_SECONDS
        said = (-1, "")
        while time.monotonic() < end_seconds:
            said = self.cli("net", "diff")
            if said[0] == 0 and "no agent" not in said[1]:
                return
            time.sleep(0.2)
        raise AssertionError(f"{said}\n{(self.folder / 'log').read_text()[-3000:]}")


@pytest.fixture(params=["nft", "legacy"])
def node(world: World, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    """A node with neighbours that use one of the two iptables."""
    world.neighbours(request.param)
    yield Node(world, tmp_path / "n")


@pytest.mark.root
def test_commands_show_what_the_kernel_holds_and_cleanup_takes_it_away(node: Node) -> None:
    """diff empties, top and show count, status and metrics agree; after cleanup all is as before."""
    before = node.world.dump()
    code, pending = node.cli("net", "diff")
    assert code == 1 and "+ IPv4 set nodeagent-out4: hash:ip counters comment skbinfo" in pending
    assert node.world.dump() == before
    node.start()
    node.wait_until_marked()
    for address in (INTERNET[4], INSIDE[4]):
        node.world.inside("pod-a", send, address)

    report = node.json("net", "top")
    (shown,) = report["pods"]
    assert (shown["name"], shown["class_id"], shown["host_network"]) == ("a", "4e:10", False)
    assert shown["traffic"]["internet_out_bytes"] == IP_BYTES
    assert shown["traffic"]["cluster_out_bytes"] >= IP_BYTES
    assert report["namespaces"][0]["traffic"] == shown["traffic"]
    check_words(node)
    check_cleanup(node, before)


def check_words(node: Node) -> None:
    """Tables, the status line and metrics of the same node."""
    code, table = node.cli("net", "top", "--once")
    assert code == 0 and table.splitlines()[0].split()[:3] == ["POD", "VETH", "CLASS"]
    assert "team/a" in table and "10.0 KiB" in table
    code, shown = node.cli("net", "show", "team/a")
    assert code == 0 and f"{POD_A[4]}" in shown and "10,280 bytes (10.0 KiB) out" in shown
    assert node.cli("net", "show", UID)[1].partition("\nCluster")[0] == shown.partition("\nCluster")[0]
    assert "its address may be another pod's" in node.cli("net", "show", "team/old")[1]
    assert node.cli("net", "show", "team/none")[0] == 64
    line = next(row for row in node.cli("status")[1].splitlines() if row.startswith("Network"))
    assert line.startswith("Network   1 pod marked") and "no drift, read" in line
    page = node.world.command(
        "node", "curl", "-s", "--unix-socket", str(node.folder / "s.sock"), "http://n/metrics"
    )
    labels = 'destination="internet",direction="out",namespace="team",pod="a"'
    assert f"nodeagent_pod_traffic_bytes_total{{{labels}}} 10280.0" in page
    assert 'nodeagent_marks_entries{family="6"} 1.0' in page


def check_cleanup(node: Node, before: str) -> None:
    """Refused while the agent runs; afterwards everything goes, and a second time there is nothing."""
    code, said = node.cli("net", "cleanup")
    assert code == 69 and "another nodeagent runs on this node" in said
    held = node.world.dump()
    code, said = node.cli("net", "cleanup", "--dry-run")
    assert code == 0 and "-X NODEAGENT-EGRESS" in said and "ipset destroy nodeagent-cluster6" in said
    assert node.world.dump() == held != before
    node.stop()
    assert node.world.dump() == held
    code, said = node.cli("net", "cleanup")
    assert code == 0 and "-X NODEAGENT-EGRESS" in said
    assert node.world.dump() == before
    assert node.cli("net", "cleanup") == (0, "nothing of ours is there\n")


@pytest.mark.root
def test_cleanup_with_yes_removes_under_a_running_agent(world: World, tmp_path: Path) -> None:
    """--yes is the operator's word; both backends are swept, whichever the agent uses."""
    node = Node(world, tmp_path / "n", dry_run=True)
    before = world.dump()
    for backend in ("nft", "legacy"):
        text = "*mangle\n:NODEAGENT-OLD - [0:0]\n-A FORWARD -j NODEAGENT-OLD\nCOMMIT\n"
        for family in (4, 6):
            world.restore(backend, family, text)
    node.start()
    time.sleep(3)

    code, said = node.cli("net", "cleanup", "--yes")

    assert code == 0 and said.count("-X NODEAGENT-OLD") == 4
    assert world.dump() == before


@pytest.mark.root
def test_a_dry_run_shows_and_does_not_write(world: World, tmp_path: Path) -> None:
    """The daemon knows what it would do, says so, and leaves the kernel alone."""
    node = Node(world, tmp_path / "n", dry_run=True)
    before = world.dump()
    node.start()
    end_seconds = time.monotonic() + START_SECONDS
    told = node.cli("net", "diff", "-v")
    while ("no agent" in told[1] or told[0] != 1) and time.monotonic() < end_seconds:
        time.sleep(0.3)
        told = node.cli("net", "diff", "-v")

    assert told[0] == 1 and "dry run: none of it is written" in told[1]
    assert "class 4e:10" in told[1] and f"team/a/{UID}" in told[1]
    assert "dry run, nothing is written: 0 of 1 pod marked" in node.cli("status")[1]
    assert world.dump() == before


async def probed(backend: str) -> KernelFeatures:
    """What works here, by one of the two iptables."""
    return await probe(f"/usr/sbin/iptables-{backend}")


@pytest.mark.root
@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_the_kernel_is_tried_out_elsewhere(world: World, backend: str) -> None:
    """Every needed feature works, the backend has a reason, and no table here was touched."""
    before = world.command("node", "sh", "-c", TABLES)

    found = {one.name: one for one in world.inside("node", probed, backend).features}

    assert [name for name, one in found.items() if one.needed and not one.works] == []
    assert found["backend"].detail == f"{backend}: iptables_path is /usr/sbin/iptables-{backend}"
    assert found["match cgroup v2 path"].works is (True if backend == "nft" else None)
    assert {name: found[name].works for name in FEATURES} == dict.fromkeys(FEATURES, True)
    assert found["HTB leaf queue"].detail in {"fq_codel", "bfifo"}
    assert world.command("node", "sh", "-c", TABLES) == before


@pytest.mark.root
def test_a_feature_that_cannot_be_tried_is_said_to_be_so(world: World) -> None:
    """Without the right to make a namespace nothing is tried, least of all here."""
    programs = ["/usr/sbin/iptables-nft", "/usr/sbin/ip6tables-nft"]
    argv = [sys.executable, "-P", "-m", "nodeagent.net_probe", *programs]
    done = subprocess.run(
        ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *argv],
        capture_output=True, text=True, timeout=30, check=False, env=world.environment,
    )

    assert done.returncode == 77 and "run it as root" in done.stderr
    assert done.stdout == ""
