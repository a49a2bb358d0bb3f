"""The parts of the shaping: the ifb, its HTB, each class and each filter; each as wanted, or not.

Without the ifb its HTB and classes are no parts of their own: one thing was deleted, not two hundred.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.drift import Part, digest, noun_digest
from nodeagent.decide.shape_plan import HTB_PART, IFB_PART, class_part, filter_part
from nodeagent.shape import ShapeState


def parts(wanted: ShapeState, actual: ShapeState) -> Iterator[Part]:
    """Every part of a wanted state."""
    if not wanted.ifb:
        return
    yield IFB_PART, digest(IFB_PART), actual.ifb
    for filter_ in wanted.filters:
        equal = filter_ in actual.filters and filter_.device not in actual.displaced
        yield filter_part(filter_.device), noun_digest(filter_), equal
    if not actual.ifb:
        return
    yield HTB_PART, digest(HTB_PART), actual.htb
    if not actual.htb:
        return
    there = {one.minor: one for one in actual.classes}
    for one in wanted.classes:
        yield class_part(one.minor), noun_digest(one), there.get(one.minor) == one
