"""The checks of the node's own network against a real kernel: each fault is made, seen, and cured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.drivers.host import netlink, tables
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import State
from nodeagent.settings import CheckSettings, Settings
from nodeagent.wire import HostArguments
from tests.agent import OWN_NETWORK, ROOT, toml
from tests.netns.own_network import OwnNetwork, carrier, proc_tree, send_to
from tests.netns.world import INTERNET, World, missing
from tests.scenarios import world as scenario

pytestmark = pytest.mark.root
GATEWAY = "10.0.0.1%eth0"
LISTEN = """
import socket, time
with socket.create_server(("198.51.100.7", 80)):
    print(flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    """One world for the whole file; each test leaves it as it found it."""
    if reason := missing():
        pytest.skip(reason)
    with World() as world:
        yield world


def test_a_link_that_loses_its_carrier_is_down_and_comes_back(shared: World) -> None:
    """Up, pulled, 3 polls until it is raised with the time of the loss; plugged in, it clears by itself."""
    seen = OwnNetwork(shared)
    seen.poll()
    assert seen.row("link.down", "eth0").state is State.OK
    carrier(shared, up=False)
    try:
        states = []
        for _ in range(3):
            seen.poll()
            states.append(seen.row("link.down", "eth0").state)
        sentence = seen.row("link.down", "eth0").sentence
    finally:
        carrier(shared, up=True)
    seen.poll(30)

    assert states == [State.PENDING, State.PENDING, State.WARNING]
    assert sentence.startswith("eth0 has had no carrier since 20")
    assert seen.row("link.down", "eth0").state is State.OK


def test_a_link_that_was_down_before_the_agent_is_known_by_the_kernels_count(shared: World) -> None:
    """The agent starts with the cable pulled: it was up in this boot, so it is down."""
    carrier(shared, up=False)
    try:
        seen = OwnNetwork(shared)
        seen.poll(3)
    finally:
        carrier(shared, up=True)

    row = seen.row("link.down", "eth0")
    assert (row.state, "or longer" in row.sentence) == (State.WARNING, True)


def test_the_command_says_it_with_pod_traffic_off(shared: World, tmp_path: Path) -> None:
    """`nodeagent check` without a daemon, in the namespace: a warning by name, exit 1; nothing else is on."""
    checks = {f'checks."{name}"': {"bad_polls": 1, "of_polls": 1} for name in OWN_NETWORK}
    sections: dict[str, dict[str, object]] = {
        "node": {"name": "n1", "kernel_log": "/dev/null", "state_file": str(tmp_path / "memory.json")},
        "gpu": {"enabled": "false"}, "network": {"enabled": False}, "pods": {"source": "none"},
        "status": {"socket": str(tmp_path / "s.sock"), "metrics_listen": ""}, **checks,
    }  # fmt: skip
    config = tmp_path / "nodeagent.toml"
    config.write_text(toml(sections))
    argv = shared.argv("node", sys.executable, "-m", "nodeagent", "--config", str(config), "check", "--json")
    carrier(shared, up=False)
    try:
        done = subprocess.run([*argv, *OWN_NETWORK], capture_output=True, text=True, timeout=60, check=False,
                              cwd=ROOT, env=shared.environment)  # fmt: skip
    finally:
        carrier(shared, up=True)

    rows = {(row["id"], row["target"]): row["state"] for row in json.loads(done.stdout)["checks"]}
    assert (done.returncode, rows["link.down", "eth0"]) == (1, "warning")
    assert {check for check, _ in rows} == set(OWN_NETWORK)
    assert not [row for row, state in rows.items() if state == "unknown"]


def test_a_link_that_was_switched_off_or_never_plugged_in_is_no_fault(shared: World) -> None:
    """`ip link set down`, and a device without a peer that is up, do not apply."""
    shared.command("node", "ip", "link", "add", "spare0", "type", "veth", "peer", "name", "spare1")
    try:
        shared.command("node", "ip", "link", "set", "spare0", "up")
        settings = Settings(checks={"link.down": CheckSettings(limits={"devices": ("spare0", "spare1")})})
        watched, named = OwnNetwork(shared), OwnNetwork(shared, settings, net_devices=("spare0", "spare1"))
        watched.poll(3)
        named.poll(3)
    finally:
        shared.command("node", "ip", "link", "delete", "spare0")

    assert [device.name for device in watched.values["link.devices@node"]] == ["eth0"]
    assert named.row("link.down", "spare1").sentence == "switched off by an administrator"
    assert named.row("link.down", "spare0").state is State.WARNING, "configured: it must be up"


def test_flaps_are_counted_by_the_kernel_between_two_polls(shared: World) -> None:
    """Four losses that no poll sees raise link.flaps, and link.down stays ok."""
    seen = OwnNetwork(shared)
    seen.poll()
    before = seen.row("link.flaps", "eth0")
    for _ in range(4):
        carrier(shared, up=False)
        carrier(shared, up=True)
    seen.poll()
    row = seen.row("link.flaps", "eth0")

    assert (before.state, before.value) == (State.OK, "0 losses"), "the count before the start is a baseline"
    assert (row.state, row.value) == (State.WARNING, "4 losses")
    assert seen.row("link.down", "eth0").state is State.OK


def test_a_gateway_that_does_not_answer_arp_is_unreachable_while_it_is_used(shared: World) -> None:
    """Asked in vain for 4 polls it is raised; it answers again, and the fault clears."""
    seen = OwnNetwork(shared)
    shared.inside("node", send_to, INTERNET[4])
    seen.poll()
    assert seen.row("net.unreachable", GATEWAY).state is State.OK
    shared.command("outside", "ip", "link", "set", "eth0", "arp", "off")
    shared.command("node", "ip", "neigh", "flush", "dev", "eth0")
    try:
        seen.poll()
        unused = seen.row("net.unreachable", GATEWAY)
        for _ in range(4):
            shared.inside("node", send_to, INTERNET[4])
            seen.poll()
        row = seen.row("net.unreachable", GATEWAY)
    finally:
        shared.command("outside", "ip", "link", "set", "eth0", "arp", "on")
    shared.command("node", "ip", "neigh", "flush", "dev", "eth0")
    shared.inside("node", send_to, INTERNET[4])
    seen.poll(30)

    assert (unused.state, unused.sentence) == (State.NOT_APPLICABLE, "nothing uses this gateway now")
    assert (row.state, row.cause) == (State.WARNING, "gateway")
    assert row.sentence.startswith("the gateway 10.0.0.1 on eth0 does not answer")
    assert seen.row("net.unreachable", GATEWAY).state is State.OK


def test_targets_that_accept_refuse_and_swallow_are_told_apart(shared: World) -> None:
    """Over the node's real way out; what the gateway drops is silent, what has no route unreachable."""
    listening = shared.start("outside", [sys.executable, "-c", LISTEN], stdout=subprocess.PIPE)
    assert listening.stdout is not None
    listening.stdout.readline()
    rule = ("INPUT", "-p", "tcp", "--dport", "82", "-j", "DROP")
    shared.command("outside", "iptables-nft", "-A", *rule)
    shared.command("node", "ip", "route", "add", "unreachable", "203.0.113.0/24")
    targets = ("198.51.100.7:80", "198.51.100.7:81", "198.51.100.7:82", "203.0.113.1:80")
    settings = Settings(checks={"net.unreachable": CheckSettings(limits={"targets": targets})})
    try:
        seen = OwnNetwork(shared, settings, tcp_targets=targets, tcp_deadline_seconds=0.3)
        seen.poll(4)
    finally:
        listening.kill()
        shared.command("outside", "iptables-nft", "-D", *rule)
        shared.command("node", "ip", "route", "del", "unreachable", "203.0.113.0/24")

    rows = [seen.row("net.unreachable", target) for target in targets]
    assert [row.state for row in rows] == [State.OK, *[State.WARNING] * 3]
    assert [row.cause for row in rows[1:]] == ["refused", "silent", "unreachable"]


def test_connections_are_counted_by_the_kernel(shared: World, tmp_path: Path) -> None:
    """120 real entries against a scripted limit: only the first namespace may write nf_conntrack_max."""
    rule = ("OUTPUT", "-m", "conntrack", "--ctstate", "INVALID")
    shared.command("node", "iptables-nft", "-A", *rule)
    proc = proc_tree(tmp_path, sys__net__netfilter__nf_conntrack_max="100")
    folder = proc / "sys/net/netfilter"
    (folder / "nf_conntrack_count").symlink_to("/proc/sys/net/netfilter/nf_conntrack_count")
    seen = OwnNetwork(shared, proc_root=str(proc))
    try:
        seen.poll()
        before = seen.row("conntrack.full", "node")
        shared.inside("node", send_to, INTERNET[4], 120)
        seen.poll(2)
    finally:
        shared.command("node", "iptables-nft", "-D", *rule)

    row = seen.row("conntrack.full", "node")
    assert before.state is State.OK
    assert row.state is State.WARNING and row.sentence.endswith("of 100 tracked connections are in use")
    assert row.number is not None and row.number >= 120


NEEDS_FIRST = "needs the machine's first network namespace: run outside a container, or with --network=host"


@pytest.mark.parametrize(("family", "prefix"), [("ipv4", "10.0.0"), ("ipv6", "fd00:a:")])
def test_neighbours_of_every_namespace_count_against_one_limit(
    shared: World, tmp_path: Path, family: str, prefix: str
) -> None:
    """90 made-up neighbours in a namespace fill the table that the first one shows, against a scripted
    gc_thresh3: the real one is the machine's."""
    if not Path("/proc/net/stat/arp_cache").exists():
        pytest.skip(NEEDS_FIRST)
    proc = proc_tree(tmp_path, **{
        f"sys__net__{family}__neigh__default__gc_thresh{number}": str(limit)
        for number, limit in ((1, 10), (2, 50), (3, 100))
    })  # fmt: skip
    arguments = HostArguments(proc_root=str(proc))
    before = tables.neighbours(arguments, family)
    _add_neighbours(shared, prefix, 90, "stale")
    try:
        full = tables.neighbours(arguments, family)
        with pytest.raises(DriverError) as elsewhere:
            shared.inside("node", tables.neighbours, arguments, family)
    finally:
        shared.command("node", "ip", "neigh", "flush", "dev", "eth0", "nud", "stale")

    assert full.entries_count - before.entries_count >= 80, "others may come and go meanwhile"
    assert (full.limit_count, full.overflow_count) == (100, before.overflow_count)
    assert elsewhere.value.kind is ErrorKind.ABSENT
    node = scenario.World()
    node.put({f"neighbour.table@{family}": full})
    node.run(45)
    assert node.state("neighbour.full", family) is State.WARNING


def test_entries_of_a_control_plane_are_exempt(shared: World) -> None:
    """Permanent and learned entries do not count against the kernel's limit; others do."""
    _add_neighbours(shared, "10.0.0", 20, "permanent")
    _add_neighbours(shared, "10.0.0", 20, "stale", first=120)
    try:
        found = shared.inside("node", netlink.exempt_count, netlink.FAMILIES["ipv4"])
    finally:
        shared.command("node", "ip", "neigh", "flush", "dev", "eth0", "nud", "all")

    assert found == 20


def _add_neighbours(world: World, prefix: str, count: int, state: str, first: int = 100) -> None:
    separator = ":" if ":" in prefix else "."
    lines = [
        f"neigh add {prefix}{separator}{number} lladdr 02:00:00:00:00:{number:02x} dev eth0 nud {state}\n"
        for number in range(first, first + count)
    ]
    world.command("node", "ip", "-batch", "-", stdin="".join(lines))
