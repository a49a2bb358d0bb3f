"""`gpu.persistence`: does the driver keep the GPU initialised when nobody uses it?

Without it each first client waits seconds, and volatile counters start anew. It says nothing about the
hardware, so by default it is no reason to keep work away.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """Persistence mode off is bad; number is 1 when it is on."""
    for target, mode, reading in given.values("gpu.persistence"):
        if mode.enabled:
            yield good(target, reading, value="on", limit="on", number=1.0)
        else:
            yield bad(target, reading, "persistence mode is off", value="off", limit="on", number=0.0)


CHECKS = (
    Check(
        id="gpu.persistence",
        title="Persistence mode",
        family="gpu",
        signals=("gpu.persistence",),
        source="NVML persistence mode",
        node_class=NodeClass.CHECK,
        judge=judge,
        hold=HoldRule(bad_polls=3, of_polls=5),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
)
