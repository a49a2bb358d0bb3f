"""`network.drift`: does somebody else change our rules, sets, entries or classes?

Reported although it is repaired at once: between the change and the repair traffic was not counted, and
whoever does it will do it again. What we have not written yet ourselves is no drift.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide import drift
from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good, not_applicable
from nodeagent.model import Finding, NodeClass

SHOWN_PARTS = 4


def judge(given: CheckInput) -> Iterator[Finding]:
    """Bad while a part that was as wanted differs; number is such parts."""
    marks = given.memory.marks
    for target, _, reading in given.values("net.marks"):
        if not marks.listed:
            sentence = "nothing is marked: no pod list was read"
            yield not_applicable(target, sentence)
            continue
        shaping = given.memory.shape.drift
        parts = (*shaping.open, *marks.drift.open)
        shown = {"value": f"{len(parts)} parts", "limit": "0 parts", "number": float(len(parts))}
        if not parts:
            yield good(target, reading, **shown)
            continue
        now_seconds = given.snapshot.now.at.monotonic_seconds
        contested = [
            part for one in (shaping, marks.drift) for part in drift.contested(one, now_seconds)
        ]
        cause = "contested" if set(parts) & set(contested) else "changed"
        again = "again and again, repaired once a minute" if cause == "contested" else "by others"
        more = f" and {len(parts) - SHOWN_PARTS} more" if len(parts) > SHOWN_PARTS else ""
        sentence = f"changed {again}: {', '.join(parts[:SHOWN_PARTS])}{more}"
        yield bad(target, reading, sentence, cause=cause, immediate=True, **shown)


CHECKS = (
    Check(
        id="network.drift",
        title="Own rules and sets left alone",
        family="node",
        signals=("net.marks",),
        source="iptables, ipset and tc, against what was read back as wanted before",
        node_class=NodeClass.CHECK,
        judge=judge,
        hold=HoldRule(),
    ),
)
