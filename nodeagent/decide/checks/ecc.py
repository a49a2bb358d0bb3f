"""`ecc.uncorrected`: memory errors that ECC could not correct since the driver loaded.

Aggregate counters belong to the board's life and are no sign of a fault now; only volatile ones are judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """More volatile uncorrected errors than the limit are bad; number is errors."""
    limit = given.limits["errors"]
    for target, ecc, reading in given.values("gpu.ecc"):
        errors = ecc.volatile_uncorrected
        shown = {"value": f"{errors} errors", "limit": f"{limit} errors", "number": float(errors)}
        if errors <= limit:
            yield good(target, reading, **shown)
        else:
            sentence = f"{errors} uncorrected memory errors since driver load or GPU reset"
            yield bad(target, reading, sentence, **shown)


CHECKS = (
    Check(
        id="ecc.uncorrected",
        title="Uncorrected ECC errors",
        family="gpu",
        signals=("gpu.ecc",),
        source="NVML volatile uncorrected ECC errors since driver load or GPU reset",
        node_class=NodeClass.RESET,
        judge=judge,
        limits=(Limit(name="errors", unit="errors", default=0, meaning="Errors that are still tolerated."),),
        hold=HoldRule(bad_polls=2, of_polls=3, proof="reset"),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
)
