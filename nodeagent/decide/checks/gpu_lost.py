"""`gpu.lost`: does the driver still reach each GPU?

A device that fell off the bus is known by its PCI address alone, so nothing here may need a UUID.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """A GPU that NVML enumerates but cannot reach is bad."""
    for target, presence, reading in given.values("gpu.presence"):
        if presence.reachable:
            yield good(target, reading, value="reachable", limit="reachable")
        else:
            said = presence.detail or "no reason given"
            yield bad(target, reading, f"the driver cannot reach the GPU: {said}",
                      value="lost", limit="reachable")


CHECKS = (
    Check(
        id="gpu.lost",
        title="GPU reachable",
        family="gpu",
        signals=("gpu.presence",),
        source="NVML device handle and its return code",
        node_class=NodeClass.REBOOT,
        judge=judge,
        hold=HoldRule(bad_polls=2, of_polls=3, proof="reset"),
        depends_on=("driver.stuck",),
    ),
)
