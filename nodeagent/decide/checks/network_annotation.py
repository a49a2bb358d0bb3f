"""`network.annotation`: are the internet limits that pods ask for readable?

A bad value never opens the tap: the pod's last good one holds, else its namespace's or the node's. Who wrote
it must still learn of it, with what would be right.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good, not_applicable
from nodeagent.model import NODE, Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """Bad while a value is refused; number is such values."""
    memory = given.memory.shape
    if not memory.budget_bits_per_second:
        sentence = "no annotation is looked at: [network] internet_budget is empty"
        yield not_applicable(NODE, sentence)
        return
    for target, _, reading in given.values("pods"):
        if not memory.listed:
            continue
        refused = len(memory.bad)
        shown = {"value": f"{refused} bad values", "limit": "0 bad values", "number": float(refused)}
        if not refused:
            yield good(target, reading, **shown)
            continue
        first = memory.bad[0]
        more = f"; {refused - 1} more, see nodeagent status --verbose" if refused > 1 else ""
        sentence = (
            f"{first.namespace}/{first.name}: {first.annotation} is {first.value}: {first.remedy}; "
            f"in force: {first.in_force}{more}"
        )
        yield bad(target, reading, sentence, cause="bad value", **shown)


CHECKS = (
    Check(
        id="network.annotation",
        title="Pods' limits readable",
        family="node",
        signals=("pods",),
        source="the pods' annotations internet-egress-limit and internet-egress-guarantee",
        node_class=NodeClass.CHECK,
        judge=judge,
        hold=HoldRule(),
    ),
)
