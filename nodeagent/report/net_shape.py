"""What the shaper does with one pod, with all of them, and with senders that nobody knows.

Pure; sums are decide's, the backlog is the kernel's as last read. None where nothing is shaped.
"""

from __future__ import annotations

import msgspec

from nodeagent.decide import shape_counts, shaping
from nodeagent.report.given import ReportInput
from nodeagent.report.net_schema import ShapeStatus
from nodeagent.report.net_status import value
from nodeagent.shape import ShapeReading
from nodeagent.shape_memory import ClassCount, Shares

BUDGET = "budget"


def pod(given: ReportInput, uid: str) -> ShapeStatus | None:
    """One pod's class; None for a pod that is not shaped."""
    memory = given.memory.shape
    shares = memory.shares.get(uid)
    if shares is None or not shaping.at_work(memory):
        return None
    return _status(given, shares, memory.pods.get(uid))


def budget(given: ReportInput) -> ShapeStatus | None:
    """The root class: the node's whole internet budget."""
    return _whole(given, given.memory.shape.budget_count)


def unknown_senders(given: ReportInput) -> ShapeStatus | None:
    """The class of senders without an entry."""
    return _whole(given, given.memory.shape.default_count)


def notes(given: ReportInput, uid: str) -> list[str]:
    """What a person should know of this pod's limits."""
    memory = given.memory.shape
    found = [
        f"{one.annotation} is {one.value}: {one.remedy}; in force: {one.in_force}"
        for one in memory.bad if one.uid == uid
    ]  # fmt: skip
    shares = memory.shares.get(uid)
    if shares is not None and shares.guarantee_bits_per_second and memory.scaled_ratio < 1:
        found.append(f"guarantees add up to more than the budget: {memory.scaled_ratio:.0%} of each is kept")
    return found


def _whole(given: ReportInput, count: ClassCount | None) -> ShapeStatus | None:
    memory = given.memory.shape
    if not shaping.at_work(memory):
        return None
    shares = Shares(limit_bits_per_second=memory.budget_bits_per_second, limit_from=BUDGET)
    return _status(given, shares, count)


def _status(given: ReportInput, shares: Shares, count: ClassCount | None) -> ShapeStatus:
    base = ShapeStatus(
        limit_bits_per_second=shares.limit_bits_per_second,
        guarantee_bits_per_second=shares.guarantee_bits_per_second, limit_from=shares.limit_from,
    )
    if count is None:
        return base
    reading, total = value(given, "net.shape", ShapeReading), count.total
    counter = reading.counters.get(count.minor) if reading is not None else None
    return msgspec.structs.replace(
        base, rate_bits_per_second=count.rate_bits_per_second, sent_bytes=total.sent_bytes,
        dropped_packets=total.dropped_packets_count, throttled_count=total.throttled_count,
        backlog_bytes=counter.backlog_bytes if counter is not None else None,
        borrowed_ratio=shape_counts.borrowed_ratio(total),
    )
