"""The pace of a sampler: a fixed period, an early wake-up, and a worker that is not ready yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodeagent.drivers.clock import Clock

LOOK_SECONDS = 1.0
"""How often readiness is looked at while only readiness is waited for."""


async def woken(event: asyncio.Event, seconds: float) -> bool:
    """Return once `event` is set or the time has passed; True for the former.

    `asyncio.wait_for` would do until Python 3.12, but for a cancellation that comes together with the
    event: it is lost, and the task goes on for ever.
    """
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Allowance:
    """The share of time that reads may take; quiet times save up, so that the first is free."""

    def __init__(self, ratio: float, saved_seconds: float) -> None:
        """A read costs `ratio` times what it took; at most `saved_seconds` are saved up."""
        self._ratio = ratio
        self._saved_seconds = saved_seconds
        self._paid_until_seconds = float("-inf")

    def spend(self, began_seconds: float, took_seconds: float) -> float:
        """Pay for one read; returns the CLOCK_MONOTONIC from which the next one may begin."""
        oldest_seconds = began_seconds - self._saved_seconds
        self._paid_until_seconds = max(self._paid_until_seconds, oldest_seconds) + self._ratio * took_seconds
        return self._paid_until_seconds


class Pace:
    """Tells one sampling task when to go on; one wake-up makes one round."""

    def __init__(self, clock: Clock, period_seconds: float) -> None:
        """`period_seconds`: from one start to the next."""
        self._clock = clock
        self._period_seconds = period_seconds
        self._started_seconds = 0.0
        self._wake = asyncio.Event()

    def start(self) -> None:
        """A round begins now."""
        self._started_seconds = self._clock.monotonic_seconds()
        self._wake.clear()

    def wake(self) -> None:
        """Begin the next round early."""
        self._wake.set()

    async def wait(self, ready_at_seconds: Callable[[], float]) -> None:
        """Return when the period is over or after `wake`, but not before the CLOCK_MONOTONIC of readiness."""
        due_seconds = self._started_seconds + self._period_seconds
        await woken(self._wake, max(0.0, due_seconds - self._clock.monotonic_seconds()))
        while (left_seconds := ready_at_seconds() - self._clock.monotonic_seconds()) > 0:
            await asyncio.sleep(min(left_seconds, LOOK_SECONDS))
