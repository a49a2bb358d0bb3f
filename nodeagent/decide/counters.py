"""How fast the counters of a GPU grow: the last two reads of each are kept in Memory.

The first read is a baseline and says nothing; so is the first after a counter fell, which a reset does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from nodeagent.memory import CounterWindow, Memory
from nodeagent.signals import Reading, Snapshot, Unread

COUNTERS: dict[str, tuple[str, Callable[[Any], int]]] = {
    "gpu.ecc": ("gpu.ecc", lambda ecc: int(ecc.volatile_corrected)),
    "gpu.thermal_slowdown": ("gpu.thermal_slowdown", lambda slowed: int(slowed.total_nanoseconds)),
    "gpu.power_brake": ("gpu.power_brake", lambda slowed: int(slowed.total_nanoseconds)),
    "gpu.pcie_replay": ("gpu.pcie_replay", lambda replays: int(replays.total_count)),
    "gpu.nvlink_errors crc": ("gpu.nvlink_errors", lambda errors: int(errors.crc_errors)),
    "gpu.nvlink_errors recovery": ("gpu.nvlink_errors", lambda errors: int(errors.recovery_errors)),
}
"""Name of the counter -> its signal, and its count in the signal's value."""
_OF_SIGNAL: dict[str, list[tuple[str, Callable[[Any], int]]]] = {}
for _name, (_signal, _count) in COUNTERS.items():
    _OF_SIGNAL.setdefault(_signal, []).append((_name, _count))


def remember(memory: Memory, snapshot: Snapshot) -> Memory:
    """Memory with each counter's window moved on to its newest read."""
    windows = dict(memory.counter_windows)
    for key, reading in snapshot.readings.items():
        if isinstance(reading.value, Unread) or key.target not in memory.gpus:
            continue
        for counter, count in _OF_SIGNAL.get(key.signal, ()):
            name = f"{counter}|{key.target}"
            windows[name] = _moved(windows.get(name), reading, count(reading.value))
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


def per_second(memory: Memory, counter: str, target: str) -> float | None:
    """Growth per second over the last two reads; None while there is only a baseline."""
    window = memory.counter_windows.get(f"{counter}|{target}")
    if window is None or window.ended_seconds <= window.started_seconds:
        return None
    return (window.ended_count - window.started_count) / (window.ended_seconds - window.started_seconds)
