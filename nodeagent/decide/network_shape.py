"""The shaping part of a cycle of pod traffic: take in what was read, and the ops around those on marks.

Without a budget nothing is wanted, and what an earlier budget left is taken away.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from nodeagent.decide import drift, limits, mark_claims, shape_counts, shape_drift, shape_plan, shaping
from nodeagent.decide.limits import ShapeOptions
from nodeagent.decide.shape_plan import ShapeOps
from nodeagent.model import Now
from nodeagent.shape import ROOT_MINOR, ShapeReading, ShapeState
from nodeagent.shape_memory import ShapeMemory
from nodeagent.signals import Reading, read_as
from nodeagent.traffic import LinkState, PodList
from nodeagent.traffic_memory import MarkMemory

FRESH_SECONDS = 150.0
"""A reading older than this keeps no entry waiting for its class."""
MAX_PENDING = 8


class Look(Struct, frozen=True, kw_only=True):
    """What is wanted beside what is there."""

    wanted: ShapeState
    actual: ShapeState
    ops: ShapeOps


def take(
    options: ShapeOptions, memory: ShapeMemory, marks: MarkMemory, now: Now, *,
    links: LinkState | None, pods: PodList | None, reading: Reading | None,
) -> ShapeMemory:
    """Take in what was read; `marks` as it was before this cycle's pod list."""
    memory = shaping.observe(options, memory, now, links=links, reading=read_as(reading, ShapeReading))
    memory = shape_counts.fold(options, memory, marks, reading)
    if pods is None or not options.budget_bits_per_second:
        return memory
    return limits.update(options, memory, pods)


def classed(memory: ShapeMemory, pods: PodList | None) -> mark_claims.Classed:
    """Who else than pods with an address needs minors, or has them."""
    hosts = (pod.uid for pod in pods.pods if pod.host_network) if pods is not None else ()
    return mark_claims.Classed(
        hosts=frozenset(uid for uid in hosts if uid in memory.shares),
        taken=frozenset(memory.namespace_minors.values()),
    )


def name_spaces(
    memory: ShapeMemory, marks: MarkMemory, reading: ShapeReading | None, now: Now
) -> tuple[MarkMemory, ShapeMemory]:
    """Give each namespace with a shaped pod its minor, once tc was read: it may hold one already."""
    if not shaping.at_work(memory) and not memory.namespace_minors:
        return marks, memory
    if memory.budget_bits_per_second and not (memory.listed and memory.scanned):
        return marks, memory
    wanted = shaping.namespaces_of(memory, marks) if memory.budget_bits_per_second else set()
    held = _held(marks, reading.state) if reading is not None else {}
    marks, minors = mark_claims.namespaces(marks, memory.namespace_minors, wanted, held, now)
    memory = msgspec.structs.replace(memory, namespace_minors=minors)
    return marks, shaping.with_ratio(memory, marks)


def plan(
    memory: ShapeMemory, marks: MarkMemory, reading: Reading | None, carried: frozenset[int] | None,
    now_seconds: float,
) -> tuple[ShapeMemory, ShapeOps | None, frozenset[int] | None]:
    """Memory after this reading, the ops around those on marks, and the minors whose class is there by then.

    `carried`: minors that the kernel's entries give to packets. None for minors: no entry waits for a class.
    """
    found, wanted = read_as(reading, ShapeReading), shaping.wish(memory, marks)
    if reading is None or found is None or wanted is None:
        return memory, None, None
    actual, at_seconds = found.state, reading.read_at_seconds
    is_fresh = wanted.ifb and now_seconds - at_seconds <= FRESH_SECONDS
    if memory.planned_seconds is not None and at_seconds <= memory.planned_seconds:
        known = frozenset(one.minor for one in actual.classes) if actual.htb else frozenset()
        return memory, None, known if is_fresh else None
    draining = shape_plan.drain(memory.draining_seconds, wanted, actual, carried, now_seconds)
    drained = frozenset(minor for minor, due in draining.items() if due <= now_seconds)
    drifted, waiting = drift.fold(memory.drift, shape_drift.parts(wanted, actual), at_seconds, now_seconds)
    ops = shape_plan.plan(wanted, actual, drained=drained, held_back=waiting)
    memory = msgspec.structs.replace(
        memory, draining_seconds=draining, drift=drifted,
        pending=shape_plan.pending_parts(wanted, actual)[:MAX_PENDING],
        planned_seconds=at_seconds if ops.before or ops.after else memory.planned_seconds,
    )
    return memory, ops, shape_plan.classes_after(ops, actual) if is_fresh else None


def look(memory: ShapeMemory, marks: MarkMemory, reading: Reading | None) -> Look | None:
    """What a plan would write now, nothing held back and nothing draining; None: too little is known."""
    found, wanted = read_as(reading, ShapeReading), shaping.wish(memory, marks)
    if found is None or wanted is None:
        return None
    drained = frozenset((shape_plan.THE_IFB, *memory.draining_seconds))
    ops = shape_plan.plan(wanted, found.state, drained=drained)
    return Look(wanted=wanted, actual=found.state, ops=ops)


def _held(marks: MarkMemory, actual: ShapeState) -> dict[str, int]:
    """Namespace -> the class above its pods' in the kernel."""
    namespaces = {c.minor: c.namespace for c in marks.holders}
    return {
        namespaces[one.minor]: one.parent
        for one in actual.classes
        if one.minor in namespaces and one.parent not in (0, ROOT_MINOR)
    }
