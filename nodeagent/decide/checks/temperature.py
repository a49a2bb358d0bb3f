"""`temperature.margin`: a GPU at or above its own thermal limit.

The margin is the GPU's own distance to its limit, so one number fits every model.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """A margin below the limit is bad; number is degrees Celsius."""
    limit = given.limits["margin_celsius"]
    for target, heat, reading in given.values("gpu.temperature_margin"):
        margin = heat.margin_celsius
        shown = {"value": f"{margin} C", "limit": f"{limit} C", "number": float(margin)}
        if margin >= limit:
            yield good(target, reading, **shown)
        else:
            yield bad(target, reading, f"the GPU is {margin} C from its thermal limit", **shown)


CHECKS = (
    Check(
        id="temperature.margin",
        title="Temperature margin",
        family="gpu",
        signals=("gpu.temperature_margin",),
        source="NVML margin temperature",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="margin_celsius", unit="C", default=2,
                meaning="A smaller distance to the GPU's own thermal limit is bad.",
            ),
        ),
        hold=HoldRule(bad_polls=4, of_polls=6),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
)
