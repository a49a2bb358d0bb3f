"""kill -9 before every op on tc, under a numbered flow at half its limit: nothing is lost, all converges."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodeagent.quantity import bits_per_second
from nodeagent.shape import IFB_NAME
from tests.netns import flows, kill_walk, shaped
from tests.netns.agent import COMPARE, NetAgent, Pod, pod
from tests.netns.conftest import MakeWorld
from tests.netns.flows import Sink
from tests.netns.kill_walk import LANES
from tests.netns.world import INTERNET, POD_A, POD_B, World

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]
SENDER = pod("a", POD_A[4], POD_A[6], limit="20M")
FASTER = pod("a", POD_A[4], POD_A[6], limit="30M")
OTHER, NEXT = pod("b", POD_B[4], namespace="shop"), pod("c", POD_B[6], namespace="lab", limit="5M")
FLOW_BITS = 10e6
BUDGET = "1G"
STEPS: dict[str, tuple[str, tuple[Pod, ...]]] = {
    "budget set": (BUDGET, (SENDER, OTHER)),
    "pods and limits changed": (BUDGET, (FASTER, NEXT)),
    "budget taken away": ("", (SENDER, OTHER)),
}
"""Budget and pods; the last step ends where the first begins."""
LEAST_OPS = 15


def is_reached(agent: NetAgent, step: str) -> bool:
    """True when the kernel holds what a step asks for, and nothing else of ours."""
    budget, pods = STEPS[step]
    if not budget:
        there = IFB_NAME in agent.world.command("node", "ip", "link")
        return not there and IFB_NAME not in shaped.filters(agent.world) and agent.is_settled(*pods)
    namespaces = {one["metadata"]["namespace"] for one in pods}
    expected = 2 + len(namespaces) + len(pods)
    return (
        shaped.is_shaped(agent, *pods)
        and len(shaped.classes(agent.world)) == expected
        and all(
            shaped.limit_of(agent, one) == bits_per_second(limit)
            for one in pods if (limit := limit_word(one))
        )
    )


def limit_word(one: Pod) -> str:
    """The limit in a pod's annotation."""
    return str(one["metadata"]["annotations"].get("nodeagent.io/internet-egress-limit", ""))


def walk(agent: NetAgent, steps: tuple[str, ...], dies_at: int | None) -> bool:
    """Take every step, with a daemon that dies at one op and then one that lives; True when it died."""
    died = False
    agent.start(dies_at=dies_at)
    for step in steps:
        budget, pods = STEPS[step]
        agent.configure(internet_budget=budget)
        agent.pods(*pods)
        if not died:
            agent.wait(lambda: not agent.is_alive() or agent.is_ready(), "it is ready, or dead")
            if agent.is_alive():
                agent.reload()
            agent.wait(lambda step=step: not agent.is_alive() or is_reached(agent, step), f"{step}, or death")
            if not agent.is_alive():
                died = agent.died()
                agent.start()
        else:
            agent.wait(agent.is_ready, "it is ready")
            agent.reload()
        agent.wait(lambda step=step: is_reached(agent, step), f"{step}, after death at op {dies_at}")
    agent.stop()
    return died


def test_a_kill_at_any_op_loses_no_packet(make_world: MakeWorld) -> None:
    """As many packets of the flow arrive as in a run without a kill: all; each walk ends as it should."""
    lanes = [_lane(make_world(masquerade=True), "nft") for _ in range(LANES)]

    assert kill_walk.deaths(lanes) >= LEAST_OPS


def _lane(world: World, backend: str) -> Callable[[int], bool]:
    """A world with its flow, that has seen an undisturbed walk."""
    world.neighbours(backend)
    agent = NetAgent(world, backend, COMPARE)
    agent.pods(SENDER, OTHER)
    agent.start().settle(SENDER, OTHER)
    agent.stop()
    sink = Sink(world, "outside")
    flows.start_udp(world, "pod-a", INTERNET[4], 900, FLOW_BITS)
    walk(agent, tuple(STEPS), None)
    assert sink.latest().lost_packets == 0, "control run"

    def dies(number: int) -> bool:
        died = walk(agent, tuple(STEPS), number)
        assert sink.latest().lost_packets == 0, f"op {number}"
        return died

    return dies
