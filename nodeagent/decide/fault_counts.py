"""How often something bad was counted lately: counters of the kernel, and lines of its log.

The first read of a counter is a baseline and says nothing; so is the first after it fell. Lines of the
kernel log count at the time that they carry, so that those of last week are not news after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from nodeagent.memory import FaultCount, FaultStep, Memory
from nodeagent.model import Instant, Now
from nodeagent.signals import KernelFault, Reading, SignalKey, Snapshot, Unread

KEPT_SECONDS = 86400.0
"""Nothing is remembered for longer; no window can be."""
JOIN_SECONDS = 60.0
"""What is counted within this is one step."""
MAX_STEPS = 64
MAX_COUNTS = 512

OOM_KILLS = "oom kills"
HUNG_TASKS = "hung tasks"
SCSI_ERRORS = "scsi errors"
FILE_SYSTEM_ERRORS = "file system errors"
LINES = {"disk": "disk lines", "hung": "hung lines", "oom": "oom lines"}
"""Kind of a kernel fault -> name of its count."""

COUNTERS: dict[str, tuple[tuple[str, Callable[[Any], int | None]], ...]] = {
    "memory.oom_kills": ((OOM_KILLS, lambda kills: kills.total_count),),
    "kernel.hung_tasks": ((HUNG_TASKS, lambda tasks: tasks.total_count),),
    "disk.errors": (
        (SCSI_ERRORS, lambda errors: errors.scsi_errors),
        (FILE_SYSTEM_ERRORS, lambda errors: errors.file_system_errors),
    ),
}
"""Signal -> names of its counters, and each count in the signal's value."""
_ON_DISK = (FILE_SYSTEM_ERRORS,)
"""Counters that go on over a reboot."""
_OF_DISKS = (*_ON_DISK, SCSI_ERRORS, LINES["disk"])
"""What a reboot does not cure."""


def begin_boot(counts: dict[str, FaultCount]) -> dict[str, FaultCount]:
    """What is still true after a reboot: errors of disks, and the counters that disks keep."""
    kept = {}
    for key, one in counts.items():
        name = key.partition("|")[0]
        if name in _OF_DISKS:
            count = one.ended_count if name in _ON_DISK else None
            kept[key] = msgspec.structs.replace(one, ended_count=count)
    return kept


def remember(memory: Memory, snapshot: Snapshot) -> Memory:
    """Memory with every counter's newest read and every new line in it."""
    counts = dict(memory.fault_counts)
    for key, name, count, reading in _counts(snapshot):
        at = f"{name}|{key.target}"
        counts[at] = _read(counts.get(at, FaultCount()), count, reading, snapshot.now)
    for event in snapshot.events:
        if isinstance(event, KernelFault) and event.kind in LINES:
            at = f"{LINES[event.kind]}|{event.target}"
            counts[at] = _reported(counts.get(at, FaultCount()), event, snapshot.now)
    fresh = {key: _aged(one, snapshot.now) for key, one in counts.items()}
    kept = {key: one for key, one in fresh.items() if one.steps or _is_read(key, one, snapshot)}
    return msgspec.structs.replace(memory, fault_counts=dict(list(kept.items())[-MAX_COUNTS:]))


def grown(memory: Memory, name: str, target: str, window_seconds: float, now: Now) -> int:
    """How much was counted within the last `window_seconds`."""
    one = memory.fault_counts.get(f"{name}|{target}", FaultCount())
    return sum(step.count for step in one.steps if now.age_seconds(step.at) <= window_seconds)


def newest_line(memory: Memory, kind: str, target: str) -> str:
    """The newest line of the kernel log of this kind and target; "" when there is none."""
    return memory.fault_counts.get(f"{LINES[kind]}|{target}", FaultCount()).text


def targets(memory: Memory, name: str) -> Iterator[str]:
    """What this was counted of."""
    for key in sorted(memory.fault_counts):
        if key.startswith(f"{name}|"):
            yield key.partition("|")[2]


def _counts(snapshot: Snapshot) -> Iterator[tuple[SignalKey, str, int, Reading]]:
    for key, reading in snapshot.readings.items():
        if isinstance(reading.value, Unread):
            continue
        for name, count_of in COUNTERS.get(key.signal, ()):
            count = count_of(reading.value)
            if count is not None:
                yield key, name, count, reading


def _read(one: FaultCount, count: int, reading: Reading, now: Now) -> FaultCount:
    more = 0 if one.ended_count is None else max(0, count - one.ended_count)
    moved = msgspec.structs.replace(one, ended_count=count)
    return _stepped(moved, more, _instant(reading.read_at_seconds, now), now) if more else moved


def _reported(one: FaultCount, event: KernelFault, now: Now) -> FaultCount:
    more = max(1, event.count)
    return _stepped(
        msgspec.structs.replace(one, text=event.text), more, _instant(event.at_seconds, now), now
    )


def _stepped(one: FaultCount, count: int, at: Instant, now: Now) -> FaultCount:
    last = one.steps[-1] if one.steps else None
    if last is not None and now.age_seconds(last.at) - now.age_seconds(at) <= JOIN_SECONDS:
        steps = (*one.steps[:-1], msgspec.structs.replace(last, count=last.count + count))
    else:
        steps = (*one.steps, FaultStep(at=at, count=count))[-MAX_STEPS:]
    return msgspec.structs.replace(one, steps=steps)


def _instant(at_seconds: float, now: Now) -> Instant:
    """A time of this boot, never in the future."""
    then_seconds = min(at_seconds, now.at.monotonic_seconds)
    wall_seconds = now.at.wall_seconds - (now.at.monotonic_seconds - then_seconds)
    return Instant(boot_id=now.at.boot_id, monotonic_seconds=then_seconds, wall_seconds=wall_seconds)


def _aged(one: FaultCount, now: Now) -> FaultCount:
    steps = tuple(step for step in one.steps if now.age_seconds(step.at) <= KEPT_SECONDS)
    return one if len(steps) == len(one.steps) else msgspec.structs.replace(one, steps=steps)


def _is_read(key: str, one: FaultCount, snapshot: Snapshot) -> bool:
    """True for a counter that still exists, as far as anybody can tell."""
    name, _, target = key.partition("|")
    signal = next((s for s, counters in COUNTERS.items() if name in [n for n, _ in counters]), None)
    if signal is None:
        return False
    read = [k.target for k, r in snapshot.readings.items() if k.signal == signal]
    return one.ended_count is not None and (not read or target in read)
