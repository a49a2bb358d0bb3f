"""How many requests the agent may send: a token bucket for each verb, and what was spent of it.

It is the last word on this node: whatever goes wrong above it, an API server never hears more than this.
A request that does not fit is refused here at once; nothing waits in here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from nodeagent.cluster import ApiBudget, Throttle, VerbBudget

MAX_LEVELS = 16
"""Priority levels that are counted apart; more than a server has."""


class Allowance(NamedTuple):
    """Size of a bucket, and seconds for one more request."""

    capacity_count: int
    refill_seconds: float


ALLOWANCES: Mapping[str, Allowance] = MappingProxyType({
    "get": Allowance(10, 60.0),
    "watch": Allowance(10, 60.0),
    "patch": Allowance(10, 30.0),
    "create": Allowance(10, 30.0),
    "delete": Allowance(5, 60.0),
})


class _Bucket:
    def __init__(self, allowance: Allowance, now_seconds: float) -> None:
        self.allowance = allowance
        self.left = float(allowance.capacity_count)
        self.spent_count = 0
        self.withheld_count = 0
        self._at_seconds = now_seconds

    def refill(self, now_seconds: float) -> None:
        gained = max(0.0, now_seconds - self._at_seconds) / self.allowance.refill_seconds
        self.left = min(float(self.allowance.capacity_count), self.left + gained)
        self._at_seconds = now_seconds


class Budget:
    """Buckets that start full."""

    def __init__(
        self, monotonic_seconds: Callable[[], float], allowances: Mapping[str, Allowance] = ALLOWANCES
    ) -> None:
        self._monotonic_seconds = monotonic_seconds
        now_seconds = monotonic_seconds()
        self._buckets = {verb: _Bucket(allowance, now_seconds) for verb, allowance in allowances.items()}
        self._throttled: Counter[str] = Counter()
        self._priority_level = self._flow_schema = ""

    def take(self, verb: str) -> float:
        """Spend one request of `verb`; returns 0, or the seconds until there is one again (nothing spent)."""
        bucket = self._buckets[verb]
        bucket.refill(self._monotonic_seconds())
        if bucket.left < 1:
            bucket.withheld_count += 1
            return (1 - bucket.left) * bucket.allowance.refill_seconds
        bucket.left -= 1
        bucket.spent_count += 1
        return 0.0

    def served_at(self, priority_level: str, flow_schema: str) -> None:
        """An answer named its level and schema."""
        if priority_level:
            self._priority_level, self._flow_schema = priority_level, flow_schema

    def throttled(self, priority_level: str) -> None:
        """An answer was 429 by overload."""
        if priority_level in self._throttled or len(self._throttled) < MAX_LEVELS:
            self._throttled[priority_level] += 1

    def as_of_now(self) -> ApiBudget:
        """Everything, as data."""
        now_seconds = self._monotonic_seconds()
        for bucket in self._buckets.values():
            bucket.refill(now_seconds)
        return ApiBudget(
            verbs=tuple(
                VerbBudget(
                    verb=verb, spent_count=b.spent_count, withheld_count=b.withheld_count,
                    left_count=int(b.left), capacity_count=b.allowance.capacity_count,
                    refill_seconds=b.allowance.refill_seconds,
                )
                for verb, b in self._buckets.items()
            ),
            throttles=tuple(
                Throttle(priority_level=level, throttled_count=count)
                for level, count in sorted(self._throttled.items())
            ),
            priority_level=self._priority_level, flow_schema=self._flow_schema,
        )
