"""`row_remap.pending` and `row_remap.failed`: a bad memory row waits for a GPU reset, or has no spare.

Until it is remapped the row stays in use. Rows already remapped are repaired and are no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """The pending flag is bad; number is 1 when set."""
    for target, rows, reading in given.values("gpu.row_remap"):
        if rows.pending:
            yield bad(target, reading, "a row remap is pending until the GPU is reset",
                      value="pending", limit="none pending", number=1.0)
        else:
            yield good(target, reading, value="none pending", limit="none pending", number=0.0)


def judge_failed(given: CheckInput) -> Iterator[Finding]:
    """The failure flag is bad; number is 1 when set."""
    for target, rows, reading in given.values("gpu.row_remap"):
        if rows.failed:
            yield bad(target, reading, "a row remap failed: the bad memory row stays in use",
                      value="failed", limit="none failed", number=1.0)
        else:
            yield good(target, reading, value="none failed", limit="none failed", number=0.0)


CHECKS = (
    Check(
        id="row_remap.pending",
        title="Row remap pending",
        family="gpu",
        signals=("gpu.row_remap",),
        source="NVML remapped rows, pending flag",
        node_class=NodeClass.RESET,
        judge=judge,
        hold=HoldRule(bad_polls=2, of_polls=3, proof="reset"),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
    Check(
        id="row_remap.failed",
        title="Row remap failed",
        family="gpu",
        signals=("gpu.row_remap",),
        source="NVML remapped rows, failure flag",
        node_class=NodeClass.VENDOR,
        judge=judge_failed,
        hold=HoldRule(bad_polls=2, of_polls=3, proof="reset"),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
)
