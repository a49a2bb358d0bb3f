"""One cycle of pod traffic: count what was read, settle what is wanted, plan what is missing.

Counting comes first and with the claims of the cycle before: what a plan deletes was counted and is in
the Memory that is saved before the plan runs. One reading of the kernel gives one plan at most, because
ops already carried out would be planned again from it.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from nodeagent.decide import mark_drift, mark_plan, marks, pod_traffic
from nodeagent.decide.marks import MarkOptions
from nodeagent.memory import Memory
from nodeagent.model import NODE, Op, Plan
from nodeagent.signals import Reading, SignalKey, Snapshot
from nodeagent.traffic import LinkState, MarkReading, PodList
from nodeagent.traffic_memory import MarkMemory

_T = TypeVar("_T")


def begin_run(memory: Memory) -> Memory:
    """Memory as just loaded: pods, uplinks and kernel must be read anew before anything is written."""
    anew = msgspec.structs.replace(memory.marks, listed=False, scanned=False, linked=False)
    return msgspec.structs.replace(memory, marks=anew)


def step(options: MarkOptions, snapshot: Snapshot, memory: Memory) -> tuple[Memory, Plan | None]:
    """Memory after this snapshot, and the plan for the kernel when it does not hold what is wanted."""
    links_reading, marks_reading = _reading(snapshot, "net.links"), _reading(snapshot, "net.marks")
    traffic = pod_traffic.fold(
        memory.traffic, memory.marks, snapshot.now, marks=marks_reading, links=links_reading
    )
    links = _value(links_reading, LinkState)
    claims = marks.update(
        options, memory.marks, snapshot.now, links=links, reading=_value(marks_reading, MarkReading),
        pods=_value(_reading(snapshot, "pods"), PodList),
    )
    ops: tuple[Op, ...] = ()
    if links is None or links.host_namespace:
        claims, ops = _plan(options, claims, snapshot, marks_reading)
    memory = msgspec.structs.replace(memory, marks=claims, traffic=traffic)
    return memory, Plan(executor=mark_plan.EXECUTOR, ops=ops) if ops else None


def next_due_seconds(memory: Memory, now_seconds: float) -> float | None:
    """CLOCK_MONOTONIC when a repair that waits is due."""
    return mark_drift.next_due_seconds(memory.marks.drift, now_seconds)


def _plan(
    options: MarkOptions, claims: MarkMemory, snapshot: Snapshot, reading: Reading | None
) -> tuple[MarkMemory, tuple[Op, ...]]:
    wanted, actual = marks.wish(options, claims), _value(reading, MarkReading)
    if wanted is None or actual is None or reading is None:
        return claims, ()
    read_at_seconds = reading.read_at_seconds
    if claims.planned_seconds is not None and read_at_seconds <= claims.planned_seconds:
        return claims, ()
    now_seconds = snapshot.now.at.monotonic_seconds
    drift, waiting = mark_drift.step(claims.drift, wanted, actual, read_at_seconds, now_seconds)
    ops = mark_plan.plan(wanted, actual, held_back=waiting)
    planned_seconds = read_at_seconds if ops else claims.planned_seconds
    return msgspec.structs.replace(claims, drift=drift, planned_seconds=planned_seconds), ops


def _reading(snapshot: Snapshot, signal: str) -> Reading | None:
    return snapshot.readings.get(SignalKey(signal, NODE))


def _value(reading: Reading | None, kind: type[_T]) -> _T | None:
    """The value when it was read, else None."""
    return reading.value if reading is not None and isinstance(reading.value, kind) else None
