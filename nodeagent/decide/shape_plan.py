"""Wanted against read-back tc state: the ops that make the kernel hold what is wanted, no more of ours.

Every op is idempotent, and a plan that was cut off anywhere leaves a state from which later plans end equal.

| kind           | target | arguments              | does                                                   |
|----------------|--------|------------------------|--------------------------------------------------------|
| `shape.ifb`    | ifb    |                        | made, up, txqueuelen; there already is success         |
| `shape.htb`    | ifb    | default                | our HTB as root qdisc; any other root is replaced      |
| `class.put`    | MINOR  | the fields of          | makes the class, or changes it under running flows;    |
|                |        | `ShapeClass`           | with its queue when it is a leaf                       |
| `class.delete` | MINOR  |                        | with its queue; absent is success                      |
| `filter.put`   | device | tag target             | ours once, last of clsact egress; refused while the    |
|                |        |                        | target or its HTB is missing                           |
| `filter.delete`| device |                        | every one of ours; absent is success                   |
| `ifb.delete`   | ifb    |                        | refused while a filter leads to it; absent is success  |

Order: what makes a class stands before the ops on marks, what takes one away behind them. ifb, HTB and
classes come before the filter, parents before children; the ifb goes only once no filter was read back. A
class that nobody wants is kept until its entry is gone from the kernel and its queue had time to drain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.decide.mark_plan import NOTHING
from nodeagent.model import Op
from nodeagent.shape import IFB_NAME, ROOT_MINOR, ShapeClass, ShapeFilter, ShapeState
from nodeagent.traffic import DEFAULT_MINOR, class_id

DEADLINE_SECONDS = 5.0
DRAIN_SECONDS = 2.0
"""How long a class outlives its last entry: far longer than its queue is."""
THE_IFB = 0
"""The ifb's place among minors that drain."""


class ShapeOps(Struct, frozen=True, kw_only=True):
    """One plan in two halves: the ops on marks belong in between."""

    before: tuple[Op, ...] = ()
    after: tuple[Op, ...] = ()


def class_part(minor: int) -> str:
    """Name of a class as a part of the state, for drift."""
    return f"shape class {class_id(minor)}"


def filter_part(device: str) -> str:
    """Name of a filter as a part of the state."""
    return f"shape filter {device}"


IFB_PART, HTB_PART = f"shape ifb {IFB_NAME}", f"shape htb {IFB_NAME}"


def drain(
    draining_seconds: Mapping[int, float], wanted: ShapeState, actual: ShapeState,
    carried: frozenset[int] | None, now_seconds: float,
) -> dict[int, float]:
    """When each class that nobody wants may go: CLOCK_MONOTONIC by minor.

    `carried`: minors that entries or rules in the kernel still give to packets; None: not read.
    """
    if carried is None:
        return {}
    due_seconds = now_seconds + DRAIN_SECONDS
    if not wanted.ifb:
        may_go = [THE_IFB] if actual.ifb and not actual.filters else []
    else:
        may_go = [minor for minor in _unwanted(wanted, actual) if minor not in carried]
    return {minor: draining_seconds.get(minor, due_seconds) for minor in may_go}


def plan(
    wanted: ShapeState, actual: ShapeState, *, drained: frozenset[int] = frozenset(),
    held_back: frozenset[str] = NOTHING,
) -> ShapeOps:
    """Ops in order; empty when the kernel holds what is wanted.

    `drained`: minors whose time to drain has passed. `held_back`: parts to leave alone for now.
    """
    return ShapeOps(
        before=tuple(_adding(wanted, actual, held_back)) if wanted.ifb else (),
        after=tuple(_removing(wanted, actual, drained)),
    )


def classes_after(ops: ShapeOps, actual: ShapeState) -> frozenset[int]:
    """Minors that are in the kernel once the first half was carried out."""
    kinds = {op.kind for op in ops.before}
    there = set() if kinds & {"shape.ifb", "shape.htb"} else {one.minor for one in actual.classes}
    for op in ops.before:
        if op.kind == "class.put":
            there.add(op.arguments["minor"])
        elif op.kind == "class.delete":
            there.discard(op.arguments["minor"])
    return frozenset(there)


def pending_parts(wanted: ShapeState, actual: ShapeState) -> tuple[str, ...]:
    """Parts that are wanted and not there, or not as wanted."""
    if not wanted.ifb:
        return ()
    parts = [] if actual.ifb else [IFB_PART]
    parts += [] if actual.htb else [HTB_PART]
    there = _standing(actual)
    parts += [class_part(one.minor) for one in wanted.classes if there.get(one.minor) != one]
    return (*parts, *(filter_part(one.device) for one in wanted.filters if not _in_place(one, actual)))


def _op(kind: str, target: str, /, **arguments: Any) -> Op:
    return Op(kind=kind, target=target, deadline_seconds=DEADLINE_SECONDS, arguments=arguments)


def _standing(actual: ShapeState) -> dict[int, ShapeClass]:
    """Classes by minor; without our HTB there are none of ours."""
    return {one.minor: one for one in actual.classes} if actual.ifb and actual.htb else {}


def _unwanted(wanted: ShapeState, actual: ShapeState) -> list[int]:
    wished = {one.minor for one in wanted.classes} | {ROOT_MINOR, DEFAULT_MINOR}
    return [minor for minor in _standing(actual) if minor not in wished]


def _in_place(one: ShapeFilter, actual: ShapeState) -> bool:
    return one in actual.filters and one.device not in actual.displaced


def _adding(wanted: ShapeState, actual: ShapeState, held_back: frozenset[str]) -> Iterator[Op]:
    if not actual.ifb:  # what a filter leads to is gone: everything it catches is lost until it is
        for filter_ in actual.filters:
            yield _op("filter.delete", filter_.device)
        actual = msgspec.structs.replace(actual, filters=(), classes=(), htb=False)
        yield _op("shape.ifb", IFB_NAME)
    if not actual.htb:
        yield _op("shape.htb", IFB_NAME, default=DEFAULT_MINOR)
    there = _standing(actual)
    misplaced = _misplaced(wanted, there)
    for minor in _children_first(misplaced, there):
        yield _delete(minor)
    for one in _parents_first(wanted.classes):
        if one.minor in misplaced or there.get(one.minor) != one:
            yield _op("class.put", class_id(one.minor), **msgspec.structs.asdict(one))
    for filter_ in wanted.filters:
        if not _in_place(filter_, actual) and filter_part(filter_.device) not in held_back:
            yield _op("filter.put", filter_.device, tag=filter_.tag, target=filter_.target)


def _removing(wanted: ShapeState, actual: ShapeState, drained: frozenset[int]) -> Iterator[Op]:
    wished = {one.device for one in wanted.filters}
    for device in sorted({one.device for one in actual.filters} - wished):
        if actual.ifb or not wanted.ifb:
            yield _op("filter.delete", device)
    if not wanted.ifb:
        if actual.ifb and not actual.filters and THE_IFB in drained:
            yield _op("ifb.delete", IFB_NAME)
        return
    there = _standing(actual)
    gone = set(_unwanted(wanted, actual)) & drained
    if gone:
        gone -= _misplaced(wanted, there)
    for minor in _children_first(gone, there):
        if all(child in gone for child in _below(minor, there)):
            yield _delete(minor)


def _misplaced(wanted: ShapeState, there: Mapping[int, ShapeClass]) -> set[int]:
    """Classes that must be made anew, because the kernel changes no parent and no branch into a leaf."""
    wished = {one.minor: one for one in wanted.classes}
    parents = {one.parent for one in there.values()}
    wrong = {
        minor for minor, one in there.items()
        if minor in wished
        and (one.parent != wished[minor].parent or (wished[minor].leaf_limit_bytes and minor in parents))
    }  # fmt: skip
    return {minor for top in wrong for minor in (top, *_below(top, there))}


def _below(minor: int, there: Mapping[int, ShapeClass]) -> set[int]:
    """All classes under one."""
    found: set[int] = set()
    newest = {minor}
    while newest:
        newest = {one.minor for one in there.values() if one.parent in newest} - found - {minor}
        found |= newest
    return found


def _children_first(minors: Iterable[int], there: Mapping[int, ShapeClass]) -> list[int]:
    return sorted(minors, key=lambda minor: (len(_below(minor, there)), minor))


def _parents_first(classes: Iterable[ShapeClass]) -> list[ShapeClass]:
    """The root, then branches, then leaves: the tree has three levels."""
    return sorted(classes, key=lambda one: (one.parent != 0, bool(one.leaf_limit_bytes), one.minor))


def _delete(minor: int) -> Op:
    return _op("class.delete", class_id(minor), minor=minor)
