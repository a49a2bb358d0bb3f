"""When a watch is asked for again: spread out, later after each failure, never before the server wants it."""

from __future__ import annotations

import pytest

from nodeagent.drivers.kube import ApiRefusal, WatchEnded
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.observe.api_watch import BROKEN_CAP_SECONDS, FIRST_CAP_SECONDS, LAST_CAP_SECONDS, Backoff

LOST = DriverError(ErrorKind.LOST, "t", "watch")
FULL = ApiRefusal(ErrorKind.BUSY, "t", "watch", "429", status=429, retry_after_seconds=7.0)
AS_ASKED, EARLY = WatchEnded("t", 3000.0, early=False), WatchEnded("t", 1.0, early=True)


def test_the_cap_doubles_to_its_end() -> None:
    """Full jitter: any time from now to the cap."""
    latest, soonest = Backoff(lambda: 1.0), Backoff(lambda: 0.0)
    waits = [latest.after(LOST, 0.0) for _ in range(9)]

    assert waits[:3] == [FIRST_CAP_SECONDS, 2 * FIRST_CAP_SECONDS, 4 * FIRST_CAP_SECONDS]
    assert waits[-1] == LAST_CAP_SECONDS
    assert soonest.after(LOST, 0.0) == 0.0


@pytest.mark.parametrize(("error", "lasted_seconds", "longest_seconds"), [
    (AS_ASKED, 3000.0, 1.0), (EARLY, 1.0, FIRST_CAP_SECONDS), (LOST, 3000.0, BROKEN_CAP_SECONDS),
])  # fmt: skip
def test_how_it_ended_decides_how_soon(
    error: DriverError, lasted_seconds: float, longest_seconds: float
) -> None:
    """As asked: at once. Too soon: a failure. A watch that stood and broke: all agents lost theirs."""
    assert Backoff(lambda: 1.0).after(error, lasted_seconds) == longest_seconds


@pytest.mark.parametrize("entropy", [0.0, 0.5, 1.0])
def test_retry_after_is_a_floor(entropy: float) -> None:
    """The jitter is on top: agents that were told the same do not come back together."""
    assert Backoff(lambda: entropy).after(FULL, 0.0) == 7.0 + entropy * FIRST_CAP_SECONDS


def test_a_watch_that_ended_as_asked_forgets_failures() -> None:
    """The next failure begins at the first cap."""
    backoff = Backoff(lambda: 1.0)
    for _ in range(6):
        backoff.after(LOST, 0.0)
    backoff.after(AS_ASKED, 3000.0)

    assert backoff.after(LOST, 0.0) == FIRST_CAP_SECONDS
