"""One cycle of pod traffic: count what was read, settle what is wanted, plan what is missing.

Counting comes first and with the claims of the cycle before: what a plan deletes was counted and is in
the Memory that is saved before the plan runs. One reading of the kernel gives one plan at most, because
ops already carried out would be planned again from it. Classes and marks share one plan, in the order that
never leaves a mark without its class.
"""

from __future__ import annotations

import msgspec

from nodeagent.decide import drift, limits, mark_claims, mark_drift, mark_plan, marks, pod_traffic, shaping
from nodeagent.decide import network_shape as shape_step
from nodeagent.decide.limits import ShapeOptions
from nodeagent.decide.marks import MarkOptions, MarkWish
from nodeagent.memory import Memory
from nodeagent.model import NODE, Notice, Op, Plan
from nodeagent.shape import ShapeReading
from nodeagent.signals import Reading, SignalKey, Snapshot, read_as
from nodeagent.traffic import LinkState, MarkReading, MarkState, PodEntry, PodList
from nodeagent.traffic_memory import MarkMemory

NO_OPS: tuple[Op, ...] = ()


def begin_run(memory: Memory) -> Memory:
    """Memory as just loaded: pods, uplinks and kernel must be read anew before anything is written."""
    anew = msgspec.structs.replace(memory.marks, listed=False, scanned=False, linked=False)
    return msgspec.structs.replace(memory, marks=anew, shape=shaping.begin_run(memory.shape))


def step(options: MarkOptions, snapshot: Snapshot, memory: Memory) -> tuple[Memory, Plan | None]:
    """Memory after this snapshot, and the plan for the kernel when it does not hold what is wanted."""
    links_reading, marks_reading = _reading(snapshot, "net.links"), _reading(snapshot, "net.marks")
    shape_reading, pods = _reading(snapshot, "net.shape"), read_as(_reading(snapshot, "pods"), PodList)
    traffic = pod_traffic.fold(
        memory.traffic, memory.marks, snapshot.now, marks=marks_reading, links=links_reading
    )
    links = read_as(links_reading, LinkState)
    shape = shape_step.take(
        _shaping(options), memory.shape, memory.marks, snapshot.now, links=links, pods=pods,
        reading=shape_reading,
    )
    claims = marks.update(
        options, memory.marks, snapshot.now, links=links, reading=read_as(marks_reading, MarkReading),
        pods=pods, classed=shape_step.classed(shape, pods),
    )
    claims, shape = shape_step.name_spaces(
        shape, claims, read_as(shape_reading, ShapeReading), snapshot.now
    )
    memory = msgspec.structs.replace(memory, marks=claims, shape=shape, traffic=traffic)
    ops = NO_OPS
    if links is None or links.host_namespace:
        memory, ops = _plan(options, memory, snapshot)
    return memory, Plan(executor=mark_plan.EXECUTOR, ops=ops) if ops else None


def pending(options: MarkOptions, snapshot: Snapshot, memory: Memory) -> tuple[Op, ...] | None:
    """What is to be written, repairs that wait included; None while too little is known."""
    wanted = marks.wish(options, memory.marks)
    actual = read_as(_reading(snapshot, "net.marks"), MarkReading)
    if wanted is None or actual is None:
        return None
    shape = shape_step.look(memory.shape, memory.marks, _reading(snapshot, "net.shape"))
    before, after = (shape.ops.before, shape.ops.after) if shape is not None else ((), ())
    return (*before, *mark_plan.plan(wanted, actual), *after)


def notices(before: Memory, after: Memory) -> tuple[Notice, ...]:
    """What of pod traffic is worth a line."""
    return tuple(limits.notices(before.shape, after.shape))


def next_due_seconds(memory: Memory, now_seconds: float) -> float | None:
    """CLOCK_MONOTONIC when a repair that waits, or a class that drains, is due."""
    dues = [
        drift.next_due_seconds(memory.marks.drift, now_seconds),
        drift.next_due_seconds(memory.shape.drift, now_seconds),
        *(due for due in memory.shape.draining_seconds.values() if due > now_seconds),
    ]
    return min((due for due in dues if due is not None), default=None)


def _shaping(options: MarkOptions) -> ShapeOptions:
    """No shaping where nothing is marked: the classes would have no traffic."""
    return options.shaping if options.enabled else ShapeOptions()


def _plan(options: MarkOptions, memory: Memory, snapshot: Snapshot) -> tuple[Memory, tuple[Op, ...]]:
    marks_reading = _reading(snapshot, "net.marks")
    wanted, actual = marks.wish(options, memory.marks), read_as(marks_reading, MarkReading)
    now_seconds = snapshot.now.at.monotonic_seconds
    held = mark_claims.carried(actual) if actual is not None else None
    shape, shape_ops = memory.shape, None
    known: frozenset[int] | None = None
    if wanted is not None:
        shape, shape_ops, known = shape_step.plan(
            memory.shape, memory.marks, _reading(snapshot, "net.shape"), held, now_seconds
        )
    claims, ops = memory.marks, NO_OPS
    if wanted is not None and actual is not None and marks_reading is not None:
        if known is not None:
            wanted = _with_classes(wanted, actual, known)
        claims, ops = _mark_ops(memory.marks, wanted, actual, marks_reading.read_at_seconds, now_seconds)
    memory = msgspec.structs.replace(memory, marks=claims, shape=shape)
    return memory, ops if shape_ops is None else (*shape_ops.before, *ops, *shape_ops.after)


def _mark_ops(
    claims: MarkMemory, wanted: MarkWish, actual: MarkReading, read_at_seconds: float, now_seconds: float
) -> tuple[MarkMemory, tuple[Op, ...]]:
    if claims.planned_seconds is not None and read_at_seconds <= claims.planned_seconds:
        return claims, ()
    drifted, waiting = mark_drift.step(claims.drift, wanted, actual, read_at_seconds, now_seconds)
    ops = mark_plan.plan(wanted, actual, held_back=waiting)
    planned_seconds = read_at_seconds if ops else claims.planned_seconds
    return msgspec.structs.replace(claims, drift=drifted, planned_seconds=planned_seconds), ops


def _with_classes(wish: MarkWish, actual: MarkReading, known: frozenset[int]) -> MarkWish:
    """The wish without new entries whose class is not there yet; an entry that stands stays as it is."""
    there = {entry.address: entry for state in actual.states for entry in state.pods}
    states = tuple(
        msgspec.structs.replace(state, pods=tuple(_ready(state, there, known))) for state in wish.states
    )
    return msgspec.structs.replace(wish, states=states)


def _ready(state: MarkState, there: dict[str, PodEntry], known: frozenset[int]) -> list[PodEntry]:
    kept = []
    for entry in state.pods:
        held = there.get(entry.address)
        if entry.minor in known:
            kept.append(entry)
        elif held is not None and mark_claims.uid_of(held.comment) == mark_claims.uid_of(entry.comment):
            kept.append(held)
    return kept


def _reading(snapshot: Snapshot, signal: str) -> Reading | None:
    return snapshot.readings.get(SignalKey(signal, NODE))
