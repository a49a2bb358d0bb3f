"""`network.mark_conflict`: do we and somebody else set the same bits of the packet mark?

Class-only mode, in which we set none, is normal and good. The fault is a foreign user of bits that we do
set just now: both break each other's packets until ours are gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good
from nodeagent.model import Finding, NodeClass
from nodeagent.traffic import MarkReading


def judge(given: CheckInput) -> Iterator[Finding]:
    """Bad while foreign rules use bits that our rules or entries set; number is such rules."""
    for target, marks, reading in given.values("net.marks"):
        users = len(marks.mark_users)
        shown = {"limit": "0 foreign users of our bits", "number": float(users)}
        if users and _sets_marks(marks):
            sentence = f"bits of our mark are used by {users} foreign rules, the first: {marks.mark_users[0]}"
            yield bad(target, reading, sentence, value=f"{users} foreign users", cause="overlap", **shown)
        else:
            yield good(target, reading, value="marks" if _sets_marks(marks) else "class-only", **shown)


def _sets_marks(marks: MarkReading) -> bool:
    return any("--map-mark" in rule.arguments for state in marks.states for rule in state.rules)


CHECKS = (
    Check(
        id="network.mark_conflict",
        title="Packet mark bits not shared",
        family="node",
        signals=("net.marks",),
        source="iptables rules of both backends and families, against our [network] mark_mask",
        node_class=NodeClass.CHECK,
        judge=judge,
        hold=HoldRule(),
    ),
)
