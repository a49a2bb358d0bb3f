"""How fast the counters of a GPU grow: the last two reads of each are kept in Memory.

The first read is a baseline and says nothing; so is the first after a counter fell, which a reset does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from nodeagent.memory import CounterWindow, Memory
from nodeagent.signals import Reading, SignalKey, Snapshot, Unread

COUNTERS: dict[str, Callable[[Any], int]] = {
    "gpu.ecc": lambda ecc: int(ecc.volatile_corrected),
    "gpu.thermal_slowdown": lambda slowed: int(slowed.total_nanoseconds),
    "gpu.power_brake": lambda slowed: int(slowed.total_nanoseconds),
}
"""Signal -> its count."""


def remember(memory: Memory, snapshot: Snapshot) -> Memory:
    """Memory with each counter's window moved on to its newest read."""
    windows = dict(memory.counter_windows)
    for key, reading in snapshot.readings.items():
        if key.signal not in COUNTERS or isinstance(reading.value, Unread) or key.target not in memory.gpus:
            continue
        name = "|".join(key)
        windows[name] = _moved(windows.get(name), reading, COUNTERS[key.signal](reading.value))
    known = {name: window for name, window in windows.items() if name.partition("|")[2] in memory.gpus}
    return msgspec.structs.replace(memory, counter_windows=known)


def _moved(window: CounterWindow | None, reading: Reading, count: int) -> CounterWindow:
    at_seconds = reading.read_at_seconds
    if window is not None and at_seconds <= window.ended_seconds:
        return window
    if window is None or count < window.ended_count:
        started_seconds, started_count = at_seconds, count
    else:
        started_seconds, started_count = window.ended_seconds, window.ended_count
    return CounterWindow(
        started_seconds=started_seconds, ended_seconds=at_seconds,
        started_count=started_count, ended_count=count,
    )


def per_second(memory: Memory, signal: str, target: str) -> float | None:
    """Growth per second over the last two reads; None while there is only a baseline."""
    window = memory.counter_windows.get("|".join(SignalKey(signal, target)))
    if window is None or window.ended_seconds <= window.started_seconds:
        return None
    return (window.ended_count - window.started_count) / (window.ended_seconds - window.started_seconds)
