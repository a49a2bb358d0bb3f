"""`ecc.corrected_rate`: ECC corrects errors all the time, so fast that the memory is about to fail.

A count says little, because it grows with age; the growth between two polls does.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide import counters
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """More corrected errors per second than the limit are bad; number is errors per second."""
    limit = given.limits["errors_per_second"]
    for target, _, reading in given.values("gpu.ecc"):
        rate = counters.per_second(given.memory, "gpu.ecc", target)
        if rate is None:
            yield good(target, reading, value="first sample", limit=f"{limit:g} errors/s")
            continue
        shown = {"value": f"{rate:.1f} errors/s", "limit": f"{limit:g} errors/s", "number": rate}
        if rate <= limit:
            yield good(target, reading, **shown)
        else:
            yield bad(target, reading, f"ECC corrects {rate:.0f} memory errors a second", **shown)


CHECKS = (
    Check(
        id="ecc.corrected_rate",
        title="Corrected ECC error rate",
        family="gpu",
        signals=("gpu.ecc",),
        source="growth of NVML volatile corrected ECC errors between two polls",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="errors_per_second", unit="errors/s", default=10.0,
                meaning="Corrected errors per second that are still tolerated.",
            ),
        ),
        hold=HoldRule(bad_polls=3, of_polls=5),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
)
