"""What a sampler waits with, and how its task ends: a cancellation is never lost."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent import parts
from nodeagent.observe.pace import Allowance, woken

STUCK_SECONDS = 5.0
"""A task that has not ended by then goes on for ever."""


CASES = [(True, 5.0, True), (True, 0.0, True), (False, 0.0, False)]


@pytest.mark.parametrize(("is_set", "seconds", "wanted"), CASES)
def test_says_whether_it_was_woken(is_set: bool, seconds: float, wanted: bool) -> None:
    """True for an event that is set, also without time; False once the time has passed."""

    async def scenario() -> bool:
        event = asyncio.Event()
        if is_set:
            event.set()
        return await woken(event, seconds)

    assert asyncio.run(scenario()) is wanted


@pytest.mark.parametrize("event_first", [True, False])
def test_a_cancellation_together_with_the_event_ends_the_task(event_first: bool) -> None:
    """In the same turn of the loop, in either order."""

    async def forever(event: asyncio.Event) -> None:
        while True:
            event.clear()
            await woken(event, 60.0)

    async def scenario() -> bool:
        event = asyncio.Event()
        task = asyncio.create_task(forever(event))
        await asyncio.sleep(0.01)
        steps = [event.set, task.cancel]
        for step in steps if event_first else steps[::-1]:
            step()
        done, _ = await asyncio.wait({task}, timeout=STUCK_SECONDS)
        return task in done and task.cancelled()

    assert asyncio.run(scenario())


def test_a_task_that_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library's await may lose one; the daemon must end nevertheless, and no error of a task is raised."""
    monkeypatch.setattr(parts, "CANCEL_AGAIN_SECONDS", 0.01)
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1

    async def failing() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("on the way out")

    async def scenario() -> None:
        tasks = [asyncio.create_task(stubborn()), asyncio.create_task(failing())]
        await asyncio.sleep(0.01)
        async with asyncio.timeout(STUCK_SECONDS):
            await parts.cancel(tasks)

    asyncio.run(scenario())

    assert swallowed == 3


READS = (
    # what it stands for, ratio, saved seconds, (began, took) of each read, when the next may begin
    ("the first is paid from what was saved", 100.0, 60.0, ((1000.0, 0.3),), 970.0),
    ("a read longer than all that was saved", 100.0, 60.0, ((1000.0, 1.0),), 1040.0),
    ("nothing is saved up", 100.0, 0.0, ((1000.0, 0.02),), 1002.0),
    ("reads close together use it up", 100.0, 60.0, tuple((1000.0 + n, 0.05) for n in range(20)), 1040.0),
    ("quiet time fills it, and no more", 100.0, 60.0, ((1000.0, 0.5), (5000.0, 0.1)), 4950.0),
)


@pytest.mark.parametrize(("case", "ratio", "saved", "reads", "due"), READS, ids=[row[0] for row in READS])
def test_reads_are_paid_from_what_quiet_times_saved(
    case: str, ratio: float, saved: float, reads: tuple[tuple[float, float], ...], due: float
) -> None:
    """Each costs a multiple of what it took; the next waits only once all that was saved is used up."""
    allowance = Allowance(ratio, saved)
    for began_seconds, took_seconds in reads:
        next_seconds = allowance.spend(began_seconds, took_seconds)

    assert next_seconds == pytest.approx(due), case
