"""kill -9 at every op on the kernel: the next start ends as an undisturbed one does, and no count falls."""

from __future__ import annotations

import itertools

import pytest

from tests.netns import traffic
from tests.netns.agent import NetAgent, pod
from tests.netns.world import BACKENDS, INTERNET, POD_A, POD_B, World

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]
FIRST = pod("first", POD_A[4], POD_A[6])
SECOND = pod("second", POD_A[4], POD_A[6])
"""On the address that was the first one's."""
OTHER = pod("other", POD_B[4], POD_B[6], namespace="shop")
BURST = 5
BURST_BYTES = BURST * (1028 + 1048)
DIES_SECONDS = 8.0
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
def test_a_first_sync_killed_at_any_op_is_completed(world: World, backend: str) -> None:
    """Before each op: the next start ends with the same sets, entries, chains and jumps."""
    world.neighbours(backend)
    agent = NetAgent(world, backend)
    agent.pods(FIRST, OTHER)
    agent.start().settle(FIRST, OTHER)
    agent.look()
    agent.stop()
    wanted = agent.whole()

    killed = 0
    for number in itertools.count():
        fresh(agent)
        if not agent.start(dies_at=number).died(DIES_SECONDS if killed else DIES_SECONDS * 4):
            agent.stop()
            break
        killed += 1
        agent.start().wait(lambda: agent.whole() == wanted, f"equal after a death at number {number}")
        agent.stop()

    assert killed >= LEAST_OPS["first sync"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reuse_killed_at_any_op_loses_and_invents_no_count(world: World, backend: str) -> None:
    """An address passes to another pod: the first keeps its bytes, the second begins at none."""
    world.neighbours(backend)
    agent = NetAgent(world, backend)
    killed = 0
    for number in itertools.count():
        fresh(agent)
        agent.pods(FIRST, OTHER)
        agent.start().settle(FIRST, OTHER)
        burst(world)
        agent.look()
        agent.stop()
        before = agent.memory().traffic
        assert agent.tally(FIRST).internet_out_bytes == BURST_BYTES

        agent.pods(SECOND)
        dead = agent.start(dies_at=number).died(DIES_SECONDS)
        if not dead:
            agent.stop()
        agent.start().settle(SECOND)
        agent.wait(lambda: POD_B[4] not in agent.entries("nodeagent-in4"), "the other's entry goes")
        burst(world)
        agent.look()
        agent.stop()

        sums = agent.memory().traffic.namespaces
        assert agent.tally(SECOND).internet_out_bytes == BURST_BYTES, f"number {number}"
        assert agent.tally(FIRST).internet_out_bytes == BURST_BYTES, f"number {number}"
        assert sums["team"].internet_out_bytes == 2 * BURST_BYTES, f"number {number}"
        assert sums.keys() >= before.namespaces.keys(), f"number {number}"
        if not dead:
            break
        killed += 1

    assert killed >= LEAST_OPS["reuse"]
