"""Changes by others: told apart from work of our own, repaired, and never chased."""

from __future__ import annotations

import pytest

from nodeagent.decide import drift, network
from tests.decide.mark_kernel import SPOILS
from tests.decide.mark_world import World, links, pod, pod_list


def settled(step_seconds: float = 1.0) -> World:
    """A world with two pods in the kernel, seen equal."""
    world = World(step_seconds=step_seconds)
    world.pods = pod_list(pod(1), pod(2))
    world.settle()
    return world


def test_our_own_work_is_no_drift() -> None:
    """First plan, new pods, gone pods, another uplink, a mark conflict: nobody changed anything."""
    world = settled()
    opened = list(world.memory.marks.drift.open)
    for change in (
        {"pods": pod_list(pod(1), pod(3))}, {"links": links(uplinks=("bond0",))},
        {"users": ("-A X -j MARK --set-xmark 0x10000/0x10000",)}, {"pods": pod_list()},
    ):  # fmt: skip
        for name, value in change.items():
            setattr(world, name, value)
        world.cycle()
        opened += world.memory.marks.drift.open
        world.settle()

    assert opened == []


WANT = {
    "flush mangle": "4 jumps FORWARD", "flush sets": "4 cluster prefixes", "insert before": "4 jumps FORWARD",
    "wrong header": "4 set nodeagent-out4",
}  # fmt: skip


@pytest.mark.parametrize("how", WANT)
def test_a_change_by_others_is_named_and_closed(how: str) -> None:
    """The part is open in the cycle that sees it and closed once it is read back equal."""
    world = settled()
    world.kernel.spoil(4, how)
    world.cycle()
    seen = world.memory.marks.drift
    world.settle()

    assert WANT[how] in seen.open
    assert seen.last_seconds == world.memory.marks.drift.last_seconds
    assert world.memory.marks.drift.open == ()


@pytest.mark.parametrize("how", sorted(set(SPOILS) - set(WANT)))
def test_what_is_not_wanted_is_swept_without_a_word(how: str) -> None:
    """Orphans, and counters that were zeroed, are no drift."""
    world = settled()
    world.kernel.spoil(4, how)
    world.cycle()

    assert world.memory.marks.drift.open == ()


def test_drift_while_the_agent_was_down_is_seen() -> None:
    """What was settled before the restart still counts."""
    world = settled()
    world.kernel.spoil(6, "flush mangle")
    world.restart()
    world.cycle()

    assert "6 chain NODEAGENT-EGRESS" in world.memory.marks.drift.open


def test_a_contested_part_is_repaired_once_a_minute() -> None:
    """Another agent that always inserts before us gets no race; the rest of the plan goes on."""
    world = settled()
    repaired = []
    for _ in range(8):
        world.kernel.spoil(4, "insert before")
        repaired.append(len(world.cycle()))
    contested = drift.contested(world.memory.marks.drift, world.seconds)
    due_seconds = network.next_due_seconds(world.memory, world.seconds)
    world.pods = pod_list(pod(1), pod(2), pod(3))
    kinds = {op.kind for op in world.cycle()}
    assert due_seconds is not None
    world.seconds = due_seconds
    later = [op.kind for op in world.cycle()]

    assert repaired == [1, 1, 1, 0, 0, 0, 0, 0]
    assert contested == ("4 jumps FORWARD",)
    assert (kinds, later) == ({"entries.put"}, ["jumps.put"])


def test_a_contest_is_over_after_a_quiet_quarter_of_an_hour() -> None:
    """Then every repair is prompt again."""
    world = settled()
    for _ in range(3):
        world.kernel.spoil(4, "insert before")
        world.cycle()
    world.settle()
    world.seconds += drift.WINDOW_SECONDS
    world.kernel.spoil(4, "insert before")

    assert drift.contested(world.memory.marks.drift, world.seconds) == ()
    assert [op.kind for op in world.cycle()] == ["jumps.put"]


def test_an_unread_family_is_neither_drift_nor_forgotten() -> None:
    """What was settled there is remembered until it can be read again."""
    world = settled()
    plan = world.decide(world.kernel.read(families=(6,)))
    blind = world.memory.marks.drift
    world.kernel.spoil(4, "flush mangle")
    world.cycle()

    assert (plan, blind.open) == (None, ())
    assert "4 jumps FORWARD" in world.memory.marks.drift.open
