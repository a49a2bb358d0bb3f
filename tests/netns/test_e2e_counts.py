"""What pods send and get, counted on the node and in their own kernels: the two must agree."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from nodeagent.drivers import cgroups
from nodeagent.traffic_memory import Tally
from tests.agent import ROOT
from tests.netns import traffic
from tests.netns.agent import NetAgent, pod, uid_of
from tests.netns.conftest import MakeWorld
from tests.netns.world import BACKENDS, INSIDE, INTERNET, NODE, POD_A, POD_B, World

pytestmark = pytest.mark.root
PLAIN = pod("plain", POD_B[4])
DUAL = pod("dual", POD_A[4], POD_A[6], namespace="other")
SIZE_BYTES = 4_000_000
TOLERANCE = 0.001


def columns(tally: Tally) -> dict[str, int | None]:
    """The four columns by the names that `traffic.seen` has."""
    return {
        "internet_out": tally.internet_out_bytes, "internet_in": tally.internet_in_bytes,
        "cluster_out": tally.cluster_out_bytes, "cluster_in": tally.cluster_in_bytes,
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_pods_are_counted_as_their_own_kernels_count(make_world: MakeWorld, backend: str) -> None:
    """Internet and cluster, out and in, IPv4 and IPv6, behind MASQUERADE: equal to 0.1 %."""
    world = make_world(masquerade=True)
    world.neighbours(backend)
    for namespace in ("pod-a", "pod-b"):
        traffic.watch(world, namespace)
    for namespace in ("outside", "inside"):
        traffic.serve(world, namespace)
    agent = NetAgent(world, backend)
    agent.pods(PLAIN, DUAL)
    agent.start().settle(PLAIN, DUAL)
    agent.look()  # a veth counts from its first reading on: the pods are older than the agent
    for namespace, families in (("pod-a", (4, 6)), ("pod-b", (4,))):
        for family in families:
            world.inside(namespace, traffic.exchange, INTERNET[family], SIZE_BYTES, SIZE_BYTES // 2)
            world.inside(namespace, traffic.exchange, INSIDE[family], SIZE_BYTES // 2, SIZE_BYTES)
    agent.look()

    for namespace, one in (("pod-a", DUAL), ("pod-b", PLAIN)):
        counted, wanted = columns(agent.tally(one)), traffic.seen(world, namespace)
        assert min(wanted.values()) > SIZE_BYTES // 2
        assert counted == pytest.approx(wanted, rel=TOLERANCE), namespace


def host_pod_cgroup(uid: str) -> Path | None:
    """A pod's cgroup in this machine's v2 tree, as the kubelet makes it; None where that cannot be made."""
    root = cgroups.mount_point("/proc")
    if root is None:
        return None
    path = Path(root) / "kubepods" / "burstable" / f"pod{uid}"
    try:
        path.mkdir(parents=True)
    except OSError:
        return None
    return path


def in_cgroup(cgroup: Path, *argv: str) -> list[str]:
    """A command that runs as a process of that cgroup."""
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup), *argv]


def send_from(world: World, cgroup: Path, address: str, count: int) -> None:
    """Send on the node as a process of that cgroup, which is gone afterwards."""
    call = f"from tests.netns.traffic import datagrams; datagrams({address!r}, {count})"
    argv = in_cgroup(cgroup, sys.executable, "-c", call)
    assert world.start("node", argv, cwd=ROOT).wait(20) == 0


def test_a_host_network_pod_is_counted_by_its_cgroup(make_world: MakeWorld) -> None:
    """What it sends to the internet, and nothing that the host, another pod or the cluster has part in."""
    world = make_world(masquerade=True)
    world.neighbours("nft")
    one = pod("agent", NODE[4], host_network=True)
    cgroup = host_pod_cgroup(uid_of(one))
    if cgroup is None:
        pytest.skip("not_applicable: no writable cgroup v2 tree: mount -t cgroup2 none /mnt")
    try:
        agent = NetAgent(world, "nft")
        agent.pods(one, DUAL)
        agent.start().settle(DUAL)
        for family in (4, 6):
            agent.wait(lambda f=family: "cgroup" in str(agent.mangle(f)), "a rule for its cgroup")
            for address, count in ((INTERNET[family], 20), (INSIDE[family], 50)):
                send_from(world, cgroup, address, count)
            world.inside("node", traffic.datagrams, INTERNET[family], 7)
            world.inside("pod-a", traffic.datagrams, INTERNET[family], 7)
        agent.look()

        assert agent.tally(one) == Tally(internet_out_bytes=20 * (1028 + 1048), internet_in_bytes=None)
        assert agent.tally(DUAL).internet_out_bytes == 7 * (1028 + 1048)
        cgroup.rmdir()
        agent.pods(DUAL)
        agent.wait(lambda: not any("cgroup" in line for line in agent.mangle()), "its rule is gone")
    finally:
        for path in (cgroup, cgroup.parent, cgroup.parent.parent):
            with contextlib.suppress(OSError):
                path.rmdir()


def test_a_host_network_pod_has_no_rule_on_legacy(world: World) -> None:
    """There a rule whose cgroup ended would stop every later write to the table; it counts as the host's."""
    world.neighbours("legacy")
    one = pod("agent", NODE[4], host_network=True)
    agent = NetAgent(world, "legacy")
    agent.pods(one, DUAL)
    agent.start().settle(DUAL)
    agent.look()

    assert uid_of(one) not in agent.memory().traffic.pods
    assert [line for line in agent.mangle() if "cgroup" in line] == []
