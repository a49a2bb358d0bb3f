"""`thermal.slowdown` and `power.brake`: hardware holds the GPU's clocks down.

A single look at the reason bits misses or overrates short slowdowns, so the growth of the driver's own
time counters is judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide import counters
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.model import Finding, NodeClass

NANOSECONDS = 1e9


def _judge(given: CheckInput, signal: str, cause: str) -> Iterator[Finding]:
    limit = given.limits["slowed_percent"]
    for target, _, reading in given.values(signal):
        growth = counters.per_second(given.memory, signal, target)
        if growth is None:
            yield good(target, reading, value="first sample", limit=f"{limit:g} %")
            continue
        percent = 100.0 * growth / NANOSECONDS
        shown = {"value": f"{percent:.1f} %", "limit": f"{limit:g} %", "number": percent}
        if percent <= limit:
            yield good(target, reading, **shown)
        else:
            yield bad(target, reading, f"{cause} held the clocks down {percent:.0f} % of the time", **shown)


def judge_thermal(given: CheckInput) -> Iterator[Finding]:
    """More time slowed by heat than the limit is bad; number is percent of the time."""
    yield from _judge(given, "gpu.thermal_slowdown", "heat")


def judge_brake(given: CheckInput) -> Iterator[Finding]:
    """More time under the power brake than the limit is bad; number is percent of the time."""
    yield from _judge(given, "gpu.power_brake", "the power brake")


_LIMITS = (
    Limit(
        name="slowed_percent", unit="%", default=10.0,
        meaning="Part of the time between two polls that is still tolerated.",
    ),
)
_HOLD = HoldRule(bad_polls=4, of_polls=6)
_PARENTS = ("driver.stuck", "gpu.lost")

CHECKS = (
    Check(
        id="thermal.slowdown", title="Thermal slowdown", family="gpu", signals=("gpu.thermal_slowdown",),
        source="growth of NVML field 270, time of hardware thermal slowdown",
        node_class=NodeClass.CHECK, judge=judge_thermal, limits=_LIMITS, hold=_HOLD, depends_on=_PARENTS,
    ),
    Check(
        id="power.brake", title="Power brake", family="gpu", signals=("gpu.power_brake",),
        source="growth of NVML field 271, time under the external power brake",
        node_class=NodeClass.CHECK, judge=judge_brake, limits=_LIMITS, hold=_HOLD, depends_on=_PARENTS,
    ),
)
