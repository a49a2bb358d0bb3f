"""Pods' internet egress limited in a real kernel: rates, changes under way, budget, borrowing."""

from __future__ import annotations

import time

import pytest

from tests.netns import flows, shaped
from tests.netns.agent import NetAgent, Pod, pod
from tests.netns.conftest import MakeWorld
from tests.netns.flows import Sink
from tests.netns.world import BACKENDS, INSIDE, INTERNET, POD_A, World

pytestmark = pytest.mark.root
WAYS = [("nft", 4), ("legacy", 6)]
MIXED = [("nft", 6), ("legacy", 4)]
LIMIT, LIMIT_BITS = "20M", 20e6
BURST_BITS = 8 * 65_536
"""Of numbered datagrams: what a class counts for a byte of payload, with the larger of both IP headers."""
SHARES = {  # pod: namespace, guarantee
    "a1": ("red", "30M"), "a2": ("red", "20M"), "a3": ("red", ""),
    "b1": ("blue", "30M"), "b2": ("blue", "10M"), "b3": ("blue", ""),
}  # fmt: skip


def limited(limit: str = LIMIT, **more: str) -> Pod:
    """pod-a with a limit."""
    return pod("a", POD_A[4], POD_A[6], limit=limit, **more)


def started(world: World, backend: str, *pods: Pod, budget: str = "1G", **network: object) -> NetAgent:
    """An agent that shapes these pods, with neighbours on the node."""
    world.neighbours(backend)
    agent = NetAgent(world, backend, shaped.PRODUCTION_PERIODS, internet_budget=budget, **network)
    agent.pods(*pods)
    agent.start()
    shaped.settle(agent, *pods)
    return agent


def reaches(world: World, class_id: str, bits_per_second: float, deadline_seconds: float) -> bool:
    """True when a class sends so much over half a second, within the time: a flow's start may be slow."""
    end_seconds = time.monotonic() + deadline_seconds
    while time.monotonic() < end_seconds:
        if rate_between(world, class_id, 0.5).most >= bits_per_second:
            return True
    return False


def rate_between(world: World, class_id: str, seconds: float) -> shaped.Rate:
    """Of a class over some seconds from now."""
    before = shaped.classes(world)[class_id]
    time.sleep(seconds)
    return shaped.rate(before, shaped.classes(world)[class_id])


@pytest.mark.parametrize(("backend", "family"), WAYS)
def test_tcp_is_held_to_its_limit(make_world: MakeWorld, backend: str, family: int) -> None:
    """On the wire 97 to 101 % of it, 93 % of it as payload, and no more than one burst above it at first."""
    world = make_world(masquerade=True)
    agent = started(world, backend, limited())
    sink, class_id = Sink(world, "outside"), shaped.class_of(agent, limited())
    flows.start_tcp(world, "pod-a", INTERNET[family], 7)
    began_seconds = time.monotonic()
    while sink.latest().tcp_bytes == 0:
        assert time.monotonic() < began_seconds + 5
        time.sleep(0.01)
    first_seconds = time.monotonic()
    time.sleep(1.0)
    first_bits = 8 * sink.latest().tcp_bytes
    wire = rate_between(world, class_id, 4.0)

    assert wire.is_within(0.97 * LIMIT_BITS, 1.01 * LIMIT_BITS), wire
    assert sink.bits_per_second(first_seconds + 1.5, first_seconds + 4.5) >= 0.93 * LIMIT_BITS
    assert first_bits <= LIMIT_BITS * 1.1 + BURST_BITS


@pytest.mark.parametrize(("backend", "family"), MIXED)
def test_udp_is_held_to_its_limit(make_world: MakeWorld, backend: str, family: int) -> None:
    """Twice the limit is offered; 97 to 101 % of it leaves, the rest is dropped where it is counted."""
    world = make_world(masquerade=True)
    agent = started(world, backend, limited())
    class_id = shaped.class_of(agent, limited())
    Sink(world, "outside")
    flows.start_udp(world, "pod-a", INTERNET[family], 5, 2 * LIMIT_BITS)
    time.sleep(1.0)
    wire = rate_between(world, class_id, 3.0)

    assert wire.is_within(0.97 * LIMIT_BITS, 1.01 * LIMIT_BITS), wire
    assert shaped.classes(world)[class_id].drops_count > 1000


@pytest.mark.parametrize("backend", BACKENDS)
def test_cluster_traffic_and_the_host_pass_untouched(make_world: MakeWorld, backend: str) -> None:
    """While the limited pod fills its limit and the budget: its cluster side and the host are far above."""
    world = make_world(masquerade=True)
    agent = started(world, backend, limited("10M"), budget="12M")
    outside, inside = Sink(world, "outside"), Sink(world, "inside")
    flows.start_tcp(world, "pod-a", INTERNET[4], 6)
    time.sleep(1.0)
    began_seconds = time.monotonic()
    flows.start_tcp(world, "pod-a", INSIDE[4], 2)
    time.sleep(2.2)
    to_cluster = inside.bits_per_second(began_seconds + 0.5, began_seconds + 1.9)
    host_before = outside.latest()
    flows.start_tcp(world, "node", INTERNET[6], 1)
    time.sleep(1.2)
    host_bits = 8 * (outside.latest().tcp_bytes - host_before.tcp_bytes)

    assert to_cluster > 500e6
    assert host_bits > 200e6
    assert shaped.limit_of(agent, limited()) == 10_000_000


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_annotation_re_rates_a_running_flow(make_world: MakeWorld, backend: str) -> None:
    """Within a second of the list that shows it, on the same connection; a bad value changes nothing."""
    world = make_world(masquerade=True)
    agent = started(world, backend, limited("10M"))
    sink = Sink(world, "outside")
    flow = flows.start_tcp(world, "pod-a", INTERNET[4], 7)
    time.sleep(1.5)
    agent.pods(limited("40M"))
    took_seconds = shaped.within(lambda: shaped.limit_of(agent, limited()) == 40_000_000, 5)
    began_seconds = time.monotonic()
    time.sleep(2.0)
    faster = sink.bits_per_second(began_seconds + 0.5, began_seconds + 1.9)
    agent.pods(limited("80Mbit"))
    agent.wait(lambda: agent.logged("annotation_rejected"), "the refusal is in the log")

    assert took_seconds <= 1.0
    assert 0.9 * 40e6 < faster < 1.02 * 40e6
    assert flow.poll() is None
    assert shaped.limit_of(agent, limited()) == 40_000_000
    shown = agent.cli("net", "show", "team/a")
    assert "80Mbit" in shown
    assert "40 Mbit/s" in shown


def six_pods(world: World) -> dict[str, Pod]:
    """Three pods of each namespace behind pod-a's and pod-b's device."""
    pods = {}
    for number, (name, (namespace, guarantee)) in enumerate(SHARES.items()):
        place, device = ("pod-a", "vetha") if name[0] == "a" else ("pod-b", "vethb")
        address = f"10.244.1.{100 + number}"
        world.command(place, "ip", "addr", "add", f"{address}/32", "dev", "eth0")
        world.command("node", "ip", "route", "add", f"{address}/32", "dev", device)
        more = {"guarantee": guarantee} if guarantee else {}
        pods[name] = pod(name, address, namespace=namespace, **more)
    return pods


def send(world: World, pods: dict[str, Pod], name: str, seconds: float) -> None:
    """A TCP flow of one of the six."""
    address = pods[name]["status"]["podIPs"][0]["ip"]
    flows.start_tcp(world, "pod-a" if name[0] == "a" else "pod-b", INTERNET[4], seconds, source=address)


@pytest.mark.parametrize("backend", BACKENDS)
def test_guarantees_hold_and_what_is_idle_is_lent(make_world: MakeWorld, backend: str) -> None:
    """Alone a pod without a guarantee has the whole budget; in a crowd each guarantee holds within 5 %."""
    world = make_world(masquerade=True)
    pods = six_pods(world)
    agent = started(world, backend, *pods.values(), budget="100M")
    ids = {name: shaped.class_of(agent, one) for name, one in pods.items()}
    Sink(world, "outside")
    send(world, pods, "a3", 25)
    alone = reaches(world, ids["a3"], 95e6, 8)
    for name in ("a1", "a2", "b1", "b2", "b3"):
        send(world, pods, name, 5)
    time.sleep(1.5)
    before = shaped.classes(world)
    time.sleep(2.5)
    after = shaped.classes(world)
    crowd = {name: shaped.rate(before[ids[name]], after[ids[name]]) for name in pods}
    time.sleep(1.2)
    again = reaches(world, ids["a3"], 95e6, 8)

    assert alone
    for name, (_, guarantee) in SHARES.items():
        assert crowd[name].most >= 0.95 * 1e6 * float(guarantee.rstrip("M") or 0), crowd
    assert sum(one.most for one in crowd.values()) >= 97e6, crowd
    assert sum(one.least for one in crowd.values()) <= 101e6, crowd
    assert again
