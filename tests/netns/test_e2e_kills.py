"""kill -9 at every op on the kernel: the next start ends as an undisturbed one does, and no count falls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.netns import kill_walk, traffic
from tests.netns.agent import NetAgent, pod
from tests.netns.conftest import MakeWorld
from tests.netns.kill_walk import LANES
from tests.netns.world import BACKENDS, INTERNET, POD_A, POD_B, World

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]
FIRST = pod("first", POD_A[4], POD_A[6])
SECOND = pod("second", POD_A[4], POD_A[6])
"""On the address that was the first one's."""
OTHER = pod("other", POD_B[4], POD_B[6], namespace="shop")
BURST = 5
BURST_BYTES = BURST * (1028 + 1048)
LEAST_OPS = {"first sync": 20, "reuse": 4}
"""Fewer would mean that the ops are not counted."""


def burst(world: World) -> None:
    """Some internet packets of both families from pod-a."""
    for family in (4, 6):
        world.inside("pod-a", traffic.datagrams, INTERNET[family], BURST)


def fresh(agent: NetAgent) -> None:
    """Nothing of ours in the kernel, nothing remembered."""
    agent.cli("net", "cleanup")
    agent.state_file.unlink(missing_ok=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_first_sync_killed_at_any_op_is_completed(make_world: MakeWorld, backend: str) -> None:
    """Before each op: the next start ends with the same sets, entries, chains and jumps."""
    killed = kill_walk.deaths([_first_sync(make_world(), backend) for _ in range(LANES)])

    assert killed >= LEAST_OPS["first sync"]


def _first_sync(world: World, backend: str) -> Callable[[int], bool]:
    """One lane; its world has seen an undisturbed run."""
    world.neighbours(backend)
    agent = NetAgent(world, backend)
    agent.pods(FIRST, OTHER)
    agent.start().settle(FIRST, OTHER)
    agent.look()
    agent.stop()
    wanted = agent.whole()

    def dies(number: int) -> bool:
        fresh(agent)
        agent.start(dies_at=number)
        agent.wait(lambda: not agent.is_alive() or agent.whole() == wanted, f"done, or dead at {number}")
        if agent.is_alive():
            agent.stop()
            return False
        assert agent.died()
        agent.start().wait(lambda: agent.whole() == wanted, f"equal after a death at number {number}")
        agent.stop()
        return True

    return dies


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reuse_killed_at_any_op_loses_and_invents_no_count(make_world: MakeWorld, backend: str) -> None:
    """An address passes to another pod: the first keeps its bytes, the second begins at none."""
    killed = kill_walk.deaths([_reuse(make_world(), backend) for _ in range(LANES)])

    assert killed >= LEAST_OPS["reuse"]


def _reuse(world: World, backend: str) -> Callable[[int], bool]:
    world.neighbours(backend)
    agent = NetAgent(world, backend)

    def dies(number: int) -> bool:
        fresh(agent)
        agent.pods(FIRST, OTHER)
        agent.start().settle(FIRST, OTHER)
        burst(world)
        agent.look()
        agent.stop()
        before = agent.memory().traffic
        assert agent.tally(FIRST).internet_out_bytes == BURST_BYTES

        agent.pods(SECOND)
        agent.start(dies_at=number)
        agent.wait(lambda: not agent.is_alive() or passed_on(agent), f"passed on, or dead at {number}")
        dead = not agent.is_alive() and agent.died()
        if not dead:
            agent.stop()
        agent.start().wait(lambda: passed_on(agent), f"passed on after number {number}")
        burst(world)
        agent.look()
        agent.stop()

        sums = agent.memory().traffic.namespaces
        assert agent.tally(SECOND).internet_out_bytes == BURST_BYTES, f"number {number}"
        assert agent.tally(FIRST).internet_out_bytes == BURST_BYTES, f"number {number}"
        assert sums["team"].internet_out_bytes == 2 * BURST_BYTES, f"number {number}"
        assert sums.keys() >= before.namespaces.keys(), f"number {number}"
        return dead

    return dies


def passed_on(agent: NetAgent) -> bool:
    """True when the second pod is marked and the other's entry is gone."""
    return agent.is_settled(SECOND) and POD_B[4] not in agent.entries("nodeagent-in4")
