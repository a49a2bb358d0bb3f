"""`network.kernel`: do kernel and iptables have what marking needs?

Tried out in a network namespace of its own, feature by feature, so that a missing module has a name. What
could not be tried is neither good nor bad here: `network.drift` and the status line say whether rules stand.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good
from nodeagent.model import Finding, NodeClass, State


def judge(given: CheckInput) -> Iterator[Finding]:
    """One finding for each feature; bad when a needed one does not work."""
    for _, kernel, reading in given.values("net.kernel"):
        for feature in kernel.features:
            if feature.works:
                yield good(feature.name, reading, value=feature.detail or "works")
            elif feature.works is False and feature.needed:
                sentence = f"marking needs it, it does not work: {feature.detail}"
                yield bad(feature.name, reading, sentence, value="does not work", cause=feature.name)
            else:
                yield Finding(
                    target=feature.name, state=State.NOT_APPLICABLE, sentence=feature.detail,
                    read_at_seconds=reading.read_at_seconds,
                )


CHECKS = (
    Check(
        id="network.kernel",
        title="Kernel has what marking needs",
        family="node",
        signals=("net.kernel",),
        source="sets and rules tried in a network namespace of its own",
        node_class=NodeClass.CHECK,
        judge=judge,
        hold=HoldRule(),
    ),
)
