"""Counters of the node's own network that matter by how they grow over a window of minutes or hours.

The first sample is a baseline and says nothing; so is the first after a counter fell, which a new device or
a reset does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from nodeagent.decide.check import CheckInput
from nodeagent.net_memory import Growth
from nodeagent.signals import Reading, Snapshot, Unread

KEPT_SECONDS = 86_400.0
"""Longest window that can be asked for."""
KEPT_STEPS = 200
"""Reads of one counter with growth that are kept: more of them in a window say no more."""

LOSSES, LINK_DOWNED = "carrier losses", "link_downed"
DROPPED, OVERFLOWS = "conntrack dropped", "neighbour overflows"

Pairs = Iterator[tuple[str, int]]
"""Target and count."""


def _losses(_: str, devices: Any) -> Pairs:
    yield from ((device.name, device.down_count) for device in devices if device.down_count is not None)


def _downed(target: str, counters: Any) -> Pairs:
    yield target, counters.link_downed_count


def _dropped(target: str, table: Any) -> Pairs:
    if table.dropped_count is not None:
        yield target, table.dropped_count


def _overflows(target: str, table: Any) -> Pairs:
    if table.overflow_count is not None:
        yield target, table.overflow_count


COUNTERS: dict[str, tuple[str, Callable[[str, Any], Pairs]]] = {
    "link.devices": (LOSSES, _losses),
    "ib.counters": (LINK_DOWNED, _downed),
    "conntrack": (DROPPED, _dropped),
    "neighbour.table": (OVERFLOWS, _overflows),
}
"""Signal -> name of the counter, and its counts in the signal's value."""


def remember(growths: Mapping[str, Growth], snapshot: Snapshot) -> dict[str, Growth]:
    """Every counter moved on to its newest read; what has not been read for a day is forgotten."""
    now_seconds = snapshot.now.at.monotonic_seconds
    after = {key: each for key, each in growths.items() if now_seconds - each.read_at_seconds < KEPT_SECONDS}
    for (signal, target), reading in snapshot.readings.items():
        if signal not in COUNTERS or isinstance(reading.value, Unread):
            continue
        counter, pairs = COUNTERS[signal]
        for name, count in pairs(target, reading.value):
            key = f"{counter}|{name}"
            after[key] = _moved(after.get(key), reading, count)
    return after


def _moved(known: Growth | None, reading: Reading, count: int) -> Growth:
    at_seconds = reading.read_at_seconds
    if known is not None and at_seconds <= known.read_at_seconds:
        return known
    if known is None or count < known.last_count:
        steps = () if known is None else known.steps
        return Growth(read_at_seconds=at_seconds, last_count=count, steps=steps)
    steps = tuple(step for step in known.steps if step[0] > at_seconds - KEPT_SECONDS)
    if count > known.last_count:
        steps = (*steps, (at_seconds, count - known.last_count))[-KEPT_STEPS:]
    return msgspec.structs.replace(known, read_at_seconds=at_seconds, last_count=count, steps=steps)


def within(
    given: CheckInput, counter: str, target: str, window_seconds: float, *, after_seconds: float = 0.0
) -> int | None:
    """Growth in the last so many seconds; None while nothing was counted yet.

    `after_seconds`: what was seen earlier than that after boot is left out.
    """
    known = given.memory.net.growths.get(f"{counter}|{target}")
    if known is None:
        return None
    from_seconds = max(after_seconds, given.snapshot.now.at.monotonic_seconds - window_seconds)
    return sum(growth for at_seconds, growth in known.steps if at_seconds > from_seconds)


def shown_window(seconds: float) -> str:
    """`10 min`, `24 h`."""
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"
