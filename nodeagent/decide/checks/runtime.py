"""`runtime.down`: does the container runtime on this node answer?

Asked at its own socket, with the greeting that comes before every call: a runtime that accepts connections
and answers nobody is as down as one that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """Any answer but a greeting is bad."""
    for target, runtime, reading in given.values("runtime.health"):
        if runtime.healthy:
            yield good(target, reading, value=runtime.detail or "answers", limit="answers")
        else:
            said = runtime.detail or "no detail"
            sentence = f"the container runtime does not answer at {runtime.socket}: {said}"
            yield bad(target, reading, sentence, value="failing", limit="answers")


CHECKS = (
    Check(
        id="runtime.down",
        title="Container runtime answers",
        family="node",
        signals=("runtime.health",),
        source="the runtime's greeting at its CRI socket",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="socket", unit="path", default="",
                meaning="The runtime's CRI socket; empty: the kubelet's, else that of containerd or CRI-O.",
            ),
        ),
        hold=HoldRule(bad_polls=3, of_polls=3),
        common_cause="runtime",
        boot_grace_seconds=120.0,
    ),
)
