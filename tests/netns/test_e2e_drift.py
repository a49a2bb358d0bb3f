"""What others do to our rules and sets while the agent runs: repaired, told once, nothing foreign lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.netns.agent import COMPARE, NetAgent, pod
from tests.netns.conftest import MakeWorld
from tests.netns.world import BACKENDS, POD_A, POD_B, World

pytestmark = pytest.mark.root
PODS = (pod("a", POD_A[4], POD_A[6]), pod("b", POD_B[4], POD_B[6]))
QUIET_SECONDS = 3.0
"""After a plan the kernel is read back; then nothing is due for a minute."""
FIREWALL = """*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:FWD_zones - [0:0]
-A FORWARD -j FWD_zones
-A FWD_zones -i lo -j ACCEPT
COMMIT
"""


def flush_mangle(world: World, backend: str) -> None:
    """`iptables -t mangle -F`, both families."""
    for program in ("iptables", "ip6tables"):
        world.command("node", f"{program}-{backend}", "-t", "mangle", "-F")


def flush_sets(world: World, _: str) -> None:
    """`ipset flush` of everything, as an ill-advised script does."""
    world.command("node", "ipset", "flush")


def reload_firewall(world: World, backend: str) -> None:
    """A whole new mangle table, as firewalld loads it: our chains and jumps are gone."""
    for program in ("iptables", "ip6tables"):
        world.command("node", f"{program}-{backend}-restore", stdin=FIREWALL)


def insert_before(world: World, backend: str) -> None:
    """A rule before our jumps that ends the chain, as Calico inserts its own."""
    rule = ("-t", "mangle", "-I", "FORWARD", "-i", "lo", "-j", "ACCEPT")
    for program in ("iptables", "ip6tables"):
        world.command("node", f"{program}-{backend}", *rule)


def delete_entry(world: World, _: str) -> None:
    """One pod's entry in one set."""
    world.command("node", "ipset", "del", "nodeagent-out4", POD_A[4])


HARMS = [flush_mangle, flush_sets, reload_firewall, insert_before, delete_entry]


def state(agent: NetAgent) -> tuple[object, ...]:
    """All of ours in the kernel."""
    names = [f"nodeagent-{name}{family}" for name in ("in", "out") for family in (4, 6)]
    cluster = agent.world.command("node", "ipset", "save", "nodeagent-cluster4")
    return (*(agent.mangle(family) for family in (4, 6)), *(agent.entries(name) for name in names),
            sorted(cluster.splitlines()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("harm", HARMS)
def test_what_others_change_is_put_right_and_told_once(
    world: World, backend: str, harm: Callable[[World, str], None]
) -> None:
    """The compare finds it; the kernel is as before, what the others left is there, the log has one line."""
    world.neighbours(backend)
    agent = NetAgent(world, backend, COMPARE)
    agent.pods(*PODS)
    agent.start().settle(*PODS)
    agent.look()
    wanted = state(agent)

    harm(world, backend)
    foreign = [line for line in world.dump().splitlines() if not is_ours(line)]
    agent.wait(lambda: state(agent) == wanted, "all of ours is as it was")
    agent.look()

    assert [line for line in world.dump().splitlines() if not is_ours(line)] == foreign
    assert [entry["nodeagent_check"] for entry in agent.logged("finding_raised")] == ["network.drift"]
    assert agent.logged("op_failed") == []


def is_ours(line: str) -> bool:
    """True for a line that names a chain or a set of ours."""
    return "NODEAGENT-" in line or "nodeagent-" in line


def test_a_flush_is_heard_at_once_on_nft(make_world: MakeWorld) -> None:
    """With a minute between two compares, a flush of nft rules is repaired within seconds."""
    world = make_world()
    world.neighbours("nft")
    agent = NetAgent(world, "nft", {"act.saver.LAZY_SECONDS": 0.1})
    agent.pods(*PODS)
    agent.start().settle(*PODS)
    time.sleep(QUIET_SECONDS)
    wanted = state(agent)

    flush_mangle(world, "nft")

    agent.wait(lambda: agent.logged("finding_raised"), "the drift is told", 8)
    agent.wait(lambda: state(agent) == wanted, "all of ours is as it was", 2)
    assert [entry["nodeagent_check"] for entry in agent.logged("finding_raised")] == ["network.drift"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_cleanup_leaves_the_node_as_it_was(world: World, backend: str) -> None:
    """After `nodeagent net cleanup`: iptables of both backends, ipset, tc, links, routes equal to before."""
    world.neighbours(backend)
    before = world.dump()
    agent = NetAgent(world, backend)
    agent.pods(*PODS)
    agent.start().settle(*PODS)
    agent.stop()
    assert world.dump() != before

    agent.cli("net", "cleanup")

    assert world.dump() == before
