"""Reading more often than the agent's own pace neither raises nor clears anything sooner."""

from __future__ import annotations

import pytest

from nodeagent.model import State
from tests.scenarios.world import World, clock, disk

ASKED_SECONDS = 0.25


@pytest.mark.parametrize(
    ("check", "signal", "bad", "target"),
    [("clock.unsynced", "clock.sync", clock(synchronized=False), "node"),
     ("disk.full", "disk.usage@/", disk(1.0), "/")],
)
def test_a_person_who_keeps_asking_raises_nothing(
    check: str, signal: str, bad: object, target: str
) -> None:
    """A hundred reads within half a minute are as many polls as half a minute has."""
    world = World()
    world.put({signal: bad})
    world.cycle()
    for _ in range(30):
        world.cycle(ASKED_SECONDS)

    assert world.state(check, target) is State.PENDING


def test_a_person_who_keeps_asking_clears_nothing() -> None:
    """Good polls count at the agent's own pace, too."""
    world = World()
    world.put({"disk.usage@/": disk(1.0)})
    world.run(60)
    world.put({"disk.usage@/": disk(60.0)})
    world.cycle(400.0)
    for _ in range(10):
        world.cycle(ASKED_SECONDS)

    assert world.state("disk.full", "/") is State.WARNING
