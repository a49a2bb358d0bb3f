"""What each class sent, dropped and delayed in this boot, how fast it sends now, and since when it is full.

A sum grows by what the kernel's counter gained since it was last seen; a counter that fell began anew, and
its whole value is gain. A class is counted for the pod that held its minor in the cycle before, so that a
reused minor inherits nothing. Rates are taken between two readings at least a second apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nodeagent.decide.limits import ShapeOptions
from nodeagent.decide.namespaces import counted_as
from nodeagent.shape import ROOT_MINOR, ClassCounter, ShapeClass, ShapeReading
from nodeagent.shape_memory import ClassCount, ClassSum, ShapeMemory
from nodeagent.signals import Reading, read_as
from nodeagent.traffic import DEFAULT_MINOR, FIRST_MINOR
from nodeagent.traffic_memory import Claim, MarkMemory

LEAST_RATE_SECONDS = 1.0
_COLUMNS = (
    ("sent_bytes", "bytes"), ("sent_packets_count", "packets"), ("dropped_packets_count", "drops"),
    ("throttled_count", "overlimits"), ("lent_packets_count", "lends"), ("borrowed_packets_count", "borrows"),
)  # fmt: skip
"""Field of a sum, field of the kernel's counter."""


def fold(
    options: ShapeOptions, memory: ShapeMemory, marks: MarkMemory, reading: Reading | None
) -> ShapeMemory:
    """Take in a new reading of `net.shape`; `marks` must be as before this cycle's pod list."""
    found = read_as(reading, ShapeReading)
    if reading is None or found is None:
        return memory
    at_seconds = reading.read_at_seconds
    if memory.read_seconds is not None and at_seconds <= memory.read_seconds:
        return memory
    work = _Fold(options, memory, found, at_seconds)
    claims = {c.uid: c for c in marks.holders if c.minor >= FIRST_MINOR}
    pods = {uid: one for uid, claim in claims.items() if (one := work.pod(uid, claim)) is not None}
    return msgspec.structs.replace(
        memory, pods=pods, namespaces=work.namespaces,
        budget_count=work.count(memory.budget_count, ROOT_MINOR),
        default_count=work.count(memory.default_count, DEFAULT_MINOR),
        read_seconds=at_seconds, base_seconds=at_seconds if work.turns else memory.base_seconds,
    )


class _Fold:
    """One reading on its way into the sums."""

    def __init__(
        self, options: ShapeOptions, memory: ShapeMemory, reading: ShapeReading, at_seconds: float
    ) -> None:
        self._counters: Mapping[int, ClassCounter] = reading.counters
        self._classes: dict[int, ShapeClass] = {one.minor: one for one in reading.state.classes}
        self._busy_ratio = options.busy_percent / 100.0
        self._at_seconds = at_seconds
        self._memory = memory
        base_seconds = memory.base_seconds
        self._passed_seconds = 0.0 if base_seconds is None else at_seconds - base_seconds
        self.turns = base_seconds is None or self._passed_seconds >= LEAST_RATE_SECONDS
        """True when the next rate is measured from this reading on."""
        self.namespaces = dict(memory.namespaces)

    def pod(self, uid: str, claim: Claim) -> ClassCount | None:
        """The pod's count after this reading; what it gained is its namespace's too."""
        before = self._memory.pods.get(uid)
        if before is not None and before.minor != claim.minor:
            before = msgspec.structs.replace(before, minor=claim.minor, seen=ClassCounter())
        after = self.count(before, claim.minor)
        if after is not None:
            name = counted_as(claim.namespace, self.namespaces)
            total = before.total if before is not None else ClassSum()
            self.namespaces[name] = _plus(self.namespaces.get(name, ClassSum()), _minus(after.total, total))
        return after

    def count(self, before: ClassCount | None, minor: int) -> ClassCount | None:
        """One class's count after this reading; a class that is not there keeps what it had."""
        counter = self._counters.get(minor)
        if counter is None:
            return None if before is None else self._timed(
                msgspec.structs.replace(before, seen=ClassCounter()), minor
            )
        if before is None:
            total = _as_sum(counter)
            # what it sent before the agent looked counts, but is no rate
            return ClassCount(minor=minor, seen=counter, total=total, base_bytes=total.sent_bytes)
        total = _plus(before.total, _gained(before.seen, counter))
        return self._timed(msgspec.structs.replace(before, seen=counter, total=total), minor)

    def _timed(self, count: ClassCount, minor: int) -> ClassCount:
        """With the present rate, and since when it is near the limit."""
        if not self.turns or self._passed_seconds <= 0:
            return count
        sent_bytes = count.total.sent_bytes - count.base_bytes
        rate_bytes = sent_bytes / self._passed_seconds
        one = self._classes.get(minor)
        is_busy = one is not None and rate_bytes >= self._busy_ratio * one.ceil_bytes_per_second
        since_seconds = count.busy_since_seconds
        if is_busy and since_seconds is None:
            since_seconds = self._at_seconds - self._passed_seconds
        return msgspec.structs.replace(
            count, base_bytes=count.total.sent_bytes, rate_bits_per_second=round(rate_bytes * 8),
            busy_since_seconds=since_seconds if is_busy else None,
        )


def borrowed_ratio(total: ClassSum) -> float | None:
    """Share of packets that left on what others did not use; None before the first packet."""
    sent = total.lent_packets_count + total.borrowed_packets_count
    return total.borrowed_packets_count / sent if sent else None


def _as_sum(counter: ClassCounter) -> ClassSum:
    return ClassSum(**{field: getattr(counter, source) for field, source in _COLUMNS})


def _gained(seen: ClassCounter, now: ClassCounter) -> ClassSum:
    """What was counted since; of a class made anew, everything."""
    if any(getattr(now, source) < getattr(seen, source) for _, source in _COLUMNS):
        return _as_sum(now)
    return _minus(_as_sum(now), _as_sum(seen))


def _plus(one: ClassSum, other: ClassSum) -> ClassSum:
    return ClassSum(**{field: getattr(one, field) + getattr(other, field) for field, _ in _COLUMNS})


def _minus(one: ClassSum, other: ClassSum) -> ClassSum:
    return ClassSum(**{field: getattr(one, field) - getattr(other, field) for field, _ in _COLUMNS})
