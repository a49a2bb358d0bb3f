"""`ecc.uncorrected` and `ecc.sram_threshold`: memory errors that ECC could not correct.

Aggregate counters belong to the board's life and are no sign of a fault now; only volatile ones are judged,
and the board's own word that its SRAM has had too many.
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


def judge_sram(given: CheckInput) -> Iterator[Finding]:
    """The board's threshold flag is bad; number is uncorrected SRAM errors over its life."""
    for target, sram, reading in given.values("gpu.sram"):
        errors = sram.aggregate_uncorrected
        shown = {"limit": "threshold not exceeded", "number": float(errors)}
        if sram.threshold_exceeded:
            sentence = f"{errors} uncorrected SRAM errors, more than the board's own threshold"
            yield bad(target, reading, sentence, value="threshold exceeded", **shown)
        else:
            yield good(target, reading, value=f"{errors} errors, threshold not exceeded", **shown)


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
    Check(
        id="ecc.sram_threshold",
        title="SRAM error threshold",
        family="gpu",
        signals=("gpu.sram",),
        source="NVML SRAM ECC status, threshold flag",
        node_class=NodeClass.VENDOR,
        judge=judge_sram,
        hold=HoldRule(bad_polls=2, of_polls=3, proof="reset"),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
)
