"""What went wrong in other shapers, as tests of the kind: each names the report that it stands for.

Of A1 to A4 (internal traffic slowed, queue and quantum, burst, units) see test_e2e_shape.py, tests/decide/
test_shaping.py and tests/test_quantity.py; the whole range of rates is in `make bench`.
"""

from __future__ import annotations

import sys
import time

import pytest

from nodeagent.shape import IFB_NAME
from nodeagent.traffic import HTB_MAJOR
from tests.agent import ROOT
from tests.netns import flows, shaped
from tests.netns.agent import NetAgent, pod, uid_of
from tests.netns.conftest import MakeWorld
from tests.netns.flows import Sink
from tests.netns.test_e2e_counts import host_pod_cgroup, in_cgroup
from tests.netns.test_e2e_shape import started
from tests.netns.world import BACKENDS, INTERNET, NODE, POD_A, POD_B, World

pytestmark = pytest.mark.root
A, B = pod("a", POD_A[4], POD_A[6], limit="5M"), pod("b", POD_B[4], POD_B[6], namespace="shop")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_limit_is_on_what_leaves(make_world: MakeWorld, backend: str) -> None:
    """A5, directions swapped: a pod with a small egress limit still receives at full speed."""
    world = make_world(masquerade=True)
    started(world, backend, A, B)
    sink = Sink(world, "pod-a")
    flows.start_tcp(world, "outside", POD_A[4], 3)
    time.sleep(1.0)
    began_seconds = time.monotonic()
    time.sleep(1.5)

    assert sink.bits_per_second(began_seconds, began_seconds + 1.4) > 50e6


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_pod_left_while_the_agent_was_down_is_swept(make_world: MakeWorld, backend: str) -> None:
    """A6, leftovers: the next start takes class, namespace and entries of a deleted pod away, no others."""
    world = make_world(masquerade=True)
    agent = started(world, backend, A, B)
    gone, kept = shaped.class_of(agent, B), shaped.class_of(agent, A)
    agent.stop()
    agent.pods(A)
    agent.start()

    agent.wait(lambda: gone not in shaped.classes(world), "the class of the deleted pod is gone")
    agent.wait(lambda: len(shaped.classes(world)) == 4, "so is that of its namespace")

    assert kept in shaped.classes(world)
    assert POD_B[4] not in agent.entries("nodeagent-out4")
    shaped.settle(agent, A)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_an_earlier_version_left_is_replaced(make_world: MakeWorld, backend: str) -> None:
    """A7, a migration that leaves the old shaper in place: a tree of other numbers becomes ours."""
    world = make_world(masquerade=True)
    world.neighbours(backend)
    made = f"""
        link add {IFB_NAME} type ifb
        link set {IFB_NAME} up
    """
    world.command("node", "ip", "-batch", "-", stdin=made)
    tree = f"""
        qdisc add dev {IFB_NAME} root handle {HTB_MAJOR:x}: htb default 2
        class add dev {IFB_NAME} parent {HTB_MAJOR:x}: classid {HTB_MAJOR:x}:2 htb rate 1mbit
        class add dev {IFB_NAME} parent {HTB_MAJOR:x}: classid {HTB_MAJOR:x}:10 htb rate 64kbit
        class add dev {IFB_NAME} parent {HTB_MAJOR:x}: classid {HTB_MAJOR:x}:77 htb rate 64kbit
    """
    world.command("node", "tc", "-batch", "-", stdin=tree)
    agent = NetAgent(world, backend, shaped.PRODUCTION_PERIODS, internet_budget="1G")
    agent.pods(A, B)
    agent.start()

    shaped.settle(agent, A, B)
    agent.wait(lambda: len(shaped.classes(world)) == 6, "only classes of ours are left")

    assert shaped.limit_of(agent, A) == 5_000_000
    assert "default 0xf" in world.command("node", "tc", "qdisc", "show", "dev", IFB_NAME)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bridge_as_uplink_is_shaped_once(make_world: MakeWorld, backend: str) -> None:
    """A8, uplinks made of other devices: the filter is on the one with the default route, and on no port."""
    world = make_world(masquerade=True)
    _bridge(world)
    agent = NetAgent(world, backend, shaped.PRODUCTION_PERIODS, internet_budget="1G")
    agent.pods(A, B)
    agent.start()
    shaped.settle(agent, A, B, devices=("br-up",))
    sink, class_id = Sink(world, "outside"), shaped.class_of(agent, A)
    flow = flows.start_udp(world, "pod-a", INTERNET[4], 2, 2e6)
    sent = flows.sent_packets(flow)
    time.sleep(0.5)

    assert sink.latest().udp_packets == sent
    assert shaped.classes(world)[class_id].sent_bytes == sent * (1000 + 28 + 14)
    assert not shaped.filters(world, "eth0")


def _bridge(world: World) -> None:
    """Put the node's addresses and default routes on a bridge over its uplink."""
    batch = """
        link add br-up type bridge
        link set br-up up
        route del default via fd00:a::1 dev eth0
        addr flush dev eth0
        link set eth0 master br-up
        addr add 10.0.0.2/24 dev br-up
        addr add fd00:a::2/64 dev br-up nodad
        route add default via 10.0.0.1 dev br-up
        route add default via fd00:a::1 dev br-up
    """
    world.command("node", "ip", "-batch", "-", stdin=batch)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_saturated_budget_harms_nobody_else(make_world: MakeWorld, backend: str) -> None:
    """Neighbours are found anew, the host answers at once, while two pods fill a small budget."""
    world = make_world(masquerade=True)
    agent = started(world, backend, pod("a", POD_A[4], POD_A[6]), B, budget="3M")
    Sink(world, "outside")
    host = Sink(world, "node", 7200)
    for name, family in (("pod-a", 4), ("pod-b", 6)):
        # even TCP's smallest window is a large part of so small a budget; datagrams fill it for certain
        flows.start_tcp(world, name, INTERNET[family], 6)
        flows.start_udp(world, name, INTERNET[family], 6, 3e6)
    time.sleep(1.5)
    for namespace in ("pod-a", "node", "outside"):
        for family in ("-4", "-6"):
            world.command(namespace, "ip", family, "neigh", "flush", "all")
    began_seconds = time.monotonic()
    flows.start_tcp(world, "outside", NODE[6], 1, port=7200)
    answered = shaped.within(lambda: host.latest().tcp_bytes > 1 << 20, 3)
    before = shaped.classes(world)
    time.sleep(2.0)
    root = shaped.rate(before["4e:1"], shaped.classes(world)["4e:1"])

    assert answered < 1.0, time.monotonic() - began_seconds
    assert root.is_within(0.95 * 3e6, 1.05 * 3e6), root
    assert agent.is_alive()


def test_a_host_network_pod_is_shaped_by_its_own_annotation(make_world: MakeWorld) -> None:
    """On nft, by its cgroup: its flow is held to the limit, the host's own is not."""
    world = make_world(masquerade=True)
    one = pod("hostly", NODE[4], host_network=True, limit="8M")
    cgroup = host_pod_cgroup(uid_of(one))
    if cgroup is None:
        pytest.skip("not_applicable: no writable cgroup v2 tree: mount -t cgroup2 none /mnt")
    try:
        agent = NetAgent(world, "nft", shaped.PRODUCTION_PERIODS, internet_budget="1G")
        agent.pods(A, one)
        agent.start()
        shaped.settle(agent, A)
        agent.wait(lambda: "CLASSIFY --set-class 004e:0011" in str(agent.mangle()), "its rule gives a class")
        sink = Sink(world, "outside")
        began_seconds = time.monotonic()
        sender = (sys.executable, "-m", "tests.netns.flows", "tcp", INTERNET[4], str(flows.PORT), "4", "")
        flow = world.start("node", in_cgroup(cgroup, *sender), cwd=ROOT)
        flow.wait(20)
        limited_bits = sink.bits_per_second(began_seconds + 1.5, began_seconds + 3.5)
        began_seconds = time.monotonic()
        flows.start_tcp(world, "node", INTERNET[4], 1.5).wait(20)
        host_bits = sink.bits_per_second(began_seconds + 0.5, began_seconds + 1.4)
    finally:
        for path in (cgroup, cgroup.parent, cgroup.parent.parent):
            path.rmdir()

    assert 0.9 * 8e6 <= limited_bits <= 1.01 * 8e6
    assert host_bits > 200e6
