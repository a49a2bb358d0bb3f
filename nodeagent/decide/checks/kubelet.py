"""`kubelet.down`: does the kubelet on this node say that it is healthy?

Judged from its own health endpoint on loopback alone; the API server's opinion is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """Any answer but "ok" is bad."""
    for target, kubelet, reading in given.values("kubelet.health"):
        if kubelet.healthy:
            yield good(target, reading, value="ok", limit="ok")
        else:
            said = kubelet.detail or "no detail"
            yield bad(target, reading, f"the kubelet is not healthy: {said}", value="failing", limit="ok")


CHECKS = (
    Check(
        id="kubelet.down",
        title="Kubelet healthy",
        family="node",
        signals=("kubelet.health",),
        source="the kubelet's /healthz on loopback",
        node_class=NodeClass.CHECK,
        judge=judge,
        hold=HoldRule(bad_polls=3, of_polls=3),
        common_cause="runtime",
        boot_grace_seconds=120.0,
    ),
)
