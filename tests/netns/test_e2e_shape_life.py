"""A shaped node through its life: repairs, restarts, other uplinks, other settings, the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from nodeagent.shape import IFB_NAME
from tests.netns import flows, shaped
from tests.netns.agent import NetAgent, pod
from tests.netns.conftest import MakeWorld
from tests.netns.flows import Sink
from tests.netns.test_e2e_shape import started
from tests.netns.world import BACKENDS, INSIDE, INTERNET, INTERNET_SECOND, POD_A, POD_B, World

pytestmark = pytest.mark.root
A, B = pod("a", POD_A[4], POD_A[6], limit="20M"), pod("b", POD_B[4], POD_B[6], namespace="shop")
FLOW_BITS = 10e6
PACKETS_PER_SECOND = FLOW_BITS / 8000
FLOW_SECONDS = 6.0
REPAIR_SECONDS = 2.0
"""No traffic is lost beyond this while the agent is up."""
FOLLOW_SECONDS = 5.0
"""Nothing is lost while a new name is not known yet: packets pass unlimited."""


def delete_clsact(world: World) -> None:
    """With every filter of everybody in it."""
    world.command("node", "tc", "qdisc", "del", "dev", "eth0", "clsact")


def delete_ifb(world: World) -> None:
    """Under the filter that leads to it."""
    world.command("node", "ip", "link", "del", IFB_NAME)


def delete_class(world: World) -> None:
    """Of pod a; its packets then go by the default class."""
    world.command("node", "tc", "class", "del", "dev", IFB_NAME, "classid", "4e:10")


def delete_htb(world: World) -> None:
    """The whole tree."""
    world.command("node", "tc", "qdisc", "del", "dev", IFB_NAME, "root")


def take_ifb_down(world: World) -> None:
    """There, and of no use."""
    world.command("node", "ip", "link", "set", IFB_NAME, "down")


def re_rate(world: World) -> None:
    """By hand, to a hundredth."""
    one = ("dev", IFB_NAME, "parent", "4e:fffd", "classid", "4e:10")
    world.command("node", "tc", "class", "change", *one, "htb", "rate", "8kbit", "ceil", "200kbit")


DAMAGE: dict[str, Callable[[World], None]] = {
    "clsact deleted": delete_clsact, "ifb deleted": delete_ifb, "class deleted": delete_class,
    "HTB deleted": delete_htb, "ifb down": take_ifb_down, "class changed": re_rate,
}


@pytest.mark.parametrize(("damage", "backend"), [(d, BACKENDS[n % 2]) for n, d in enumerate(DAMAGE)])
def test_what_others_break_is_repaired(make_world: MakeWorld, damage: str, backend: str) -> None:
    """As it was within two seconds, with no more than two seconds of a numbered flow lost."""
    world = make_world(masquerade=True)
    agent = started(world, backend, A, B)
    sink = Sink(world, "outside")
    time.sleep(2.0)
    held = shaped.classes(world).keys()
    flow = flows.start_udp(world, "pod-a", INTERNET[4], FLOW_SECONDS, FLOW_BITS)
    time.sleep(1.5)
    DAMAGE[damage](world)
    took_seconds = shaped.within(
        lambda: shaped.is_shaped(agent, A, B) and shaped.limit_of(agent, A) == 20_000_000, 10
    )
    sent = flows.sent_packets(flow)
    time.sleep(0.5)

    assert took_seconds <= REPAIR_SECONDS
    assert sent - sink.latest().udp_packets <= REPAIR_SECONDS * PACKETS_PER_SECOND
    assert shaped.classes(world).keys() == held
    agent.wait(lambda: "network.drift" in str(agent.logged("finding_raised")), "the repair is told")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_renamed_uplink_is_followed(make_world: MakeWorld, backend: str) -> None:
    """Rules and filter are on the new name; the old one is named nowhere."""
    world = make_world(masquerade=True)
    agent = started(world, backend, A, B)
    world.command("node", "ip", "link", "set", "eth0", "down")
    world.command("node", "ip", "link", "set", "eth0", "name", "wan0")
    world.command("node", "ip", "link", "set", "wan0", "up")
    world.command("node", "ip", "addr", "replace", "fd00:a::2/64", "dev", "wan0", "nodad")
    for route in (("route", "add", "default", "via", "10.0.0.1", "dev", "wan0"),
                  ("-6", "route", "replace", "default", "via", "fd00:a::1", "dev", "wan0")):
        world.command("node", "ip", *route)

    took_seconds = shaped.within(lambda: shaped.is_shaped(agent, A, B, devices=("wan0",)), 40)

    assert took_seconds <= FOLLOW_SECONDS
    agent.wait(lambda: not any("eth0" in line for f in (4, 6) for line in agent.mangle(f)), "eth0 is gone")
    assert not shaped.filters(world, "eth0")
    assert shaped.classes(world)[shaped.class_of(agent, A)].ceil_bits_per_second == 20_000_000


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_uplinks_share_the_budget(make_world: MakeWorld, backend: str) -> None:
    """A filter on each, one ifb; when one's default route goes its filter goes, and the other's stays."""
    world = make_world(masquerade=True, second_uplink=True)
    world.neighbours(backend)
    agent = NetAgent(world, backend, shaped.PRODUCTION_PERIODS, internet_budget="30M")
    agent.pods(A, B)
    agent.start()
    shaped.settle(agent, A, B, devices=("eth0", "eth1"))
    Sink(world, "outside")
    flows.start_tcp(world, "pod-b", INTERNET[4], 4)
    flows.start_tcp(world, "pod-b", INTERNET_SECOND[4], 4)
    time.sleep(1.5)
    before = shaped.classes(world)["4e:1"]
    time.sleep(2.0)
    both = shaped.rate(before, shaped.classes(world)["4e:1"])
    for family in ("-4", "-6"):
        world.command("node", "ip", family, "route", "del", "default", "dev", "eth1")

    assert both.is_within(29e6, 30.5e6), both
    agent.wait(lambda: IFB_NAME not in shaped.filters(world, "eth1"), "the second filter goes")
    assert IFB_NAME in shaped.filters(world)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restart_writes_nothing_to_tc(make_world: MakeWorld, backend: str) -> None:
    """Program, classes, and their counters are the same before and after; a killed agent's too."""
    world = make_world(masquerade=True)
    agent = started(world, backend, A, B)
    time.sleep(1.0)

    def held() -> str:
        return shaped.filters(world) + str(sorted(shaped.classes(world))) + world.command(
            "node", "tc", "qdisc", "show", "dev", IFB_NAME)

    before = held()
    for number in (signal.SIGTERM, signal.SIGKILL):
        agent.stop(number)
        agent.start()
        agent.wait(agent.is_ready, "it is ready again")
        time.sleep(2.5)
        assert held() == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_a_budget_nothing_is_shaped(make_world: MakeWorld, backend: str) -> None:
    """Taken away by a reload and set again: ifb, filter, classes go and come; pods stay counted."""
    world = make_world(masquerade=True)
    world.neighbours(backend)
    before = world.dump()
    agent = NetAgent(world, backend, shaped.PRODUCTION_PERIODS, internet_budget="1G")
    agent.pods(A, B)
    agent.start()
    shaped.settle(agent, A, B)
    agent.configure(internet_budget="")
    agent.reload()
    agent.wait(lambda: not shaped.classes(world) and IFB_NAME not in world.command("node", "ip", "link"),
               "the ifb is gone")
    assert IFB_NAME not in shaped.filters(world)
    assert agent.is_settled(A, B)
    agent.configure(internet_budget="500M")
    agent.reload()
    shaped.settle(agent, A, B)
    agent.stop()
    agent.cli("net", "cleanup")

    assert world.dump() == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_ingress_qdisc_leaves_an_uplink_counted_only(make_world: MakeWorld, backend: str) -> None:
    """It excludes clsact, and is another agent's: it stays; status says so; pods are counted."""
    world = make_world(masquerade=True)
    world.command("node", "tc", "qdisc", "add", "dev", "eth0", "ingress")
    agent = NetAgent(world, backend, shaped.PRODUCTION_PERIODS, internet_budget="1G")
    agent.pods(A, B)
    agent.start().settle(A, B)
    agent.wait(lambda: "network.shaper" in agent.cli("status", check=False), "status says so")
    shown = agent.cli("status", check=False)

    assert "eth0" in shown
    assert "ingress" in world.command("node", "tc", "qdisc", "show", "dev", "eth0")
    assert not shaped.filters(world)


CURES: dict[str, Callable[[NetAgent], object]] = {
    "net cleanup": lambda agent: agent.cli("net", "cleanup"),
    "by hand": lambda agent: agent.world.command(
        "node", "tc", "filter", "del", "dev", "eth0", "egress", "pref", "65535"),
}  # fmt: skip


@pytest.mark.parametrize(("cure", "backend"), list(zip(CURES, BACKENDS, strict=True)))
def test_a_lost_ifb_has_a_cure_without_the_agent(make_world: MakeWorld, cure: str, backend: str) -> None:
    """As README says: classed packets are lost, the cluster's and the host's not; each command ends it."""
    world = make_world(masquerade=True)
    agent = started(world, backend, A, B)
    agent.stop()
    sink, inside = Sink(world, "outside"), Sink(world, "inside")

    def arrives(namespace: str, where: Sink, address: str) -> bool:
        before = where.latest().udp_bytes
        flows.sent_packets(flows.start_udp(world, namespace, address, 0.2, FLOW_BITS))
        time.sleep(0.2)
        return where.latest().udp_bytes > before

    delete_ifb(world)
    pod_lost = not arrives("pod-a", sink, INTERNET[4])
    cluster_goes_on, host_goes_on = arrives("pod-a", inside, INSIDE[4]), arrives("node", sink, INTERNET[4])
    CURES[cure](agent)

    assert (pod_lost, cluster_goes_on, host_goes_on) == (True, True, True)
    assert arrives("pod-a", sink, INTERNET[4])
