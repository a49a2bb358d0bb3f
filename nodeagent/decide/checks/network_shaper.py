"""`network.shaper`: is the internet egress of pods shaped where a budget asks for it?

Without a budget nothing is asked. A kernel that lacks a feature, an uplink that takes no filter and a tree
that is not in place each leave pods unlimited, and that must not pass for shaping.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good, not_applicable
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.quantity import shown_rate

FULL = 1.0
SHOWN_PARTS = 3


def judge(given: CheckInput) -> Iterator[Finding]:
    """Count-only before blocked before not in place; number is parts that are not in place."""
    memory = given.memory.shape
    if not memory.budget_bits_per_second:
        sentence = "nothing is shaped: [network] internet_budget is empty"
        yield not_applicable(NODE, sentence)
        return
    for target, found, reading in given.values("net.shape"):
        if not memory.listed:
            sentence = "nothing is shaped: no pod list was read"
            yield not_applicable(target, sentence)
            continue
        shown = {"limit": "0 parts missing", "number": float(len(memory.pending))}
        blocked = {name: why for name, why in memory.blocked.items() if name in given.memory.marks.uplinks}
        if memory.missing:
            sentence = f"count-only, no pod is limited: {memory.missing[0]}"
            yield bad(target, reading, sentence, value="count-only", cause="count-only", **shown)
        elif blocked:
            name, why = next(iter(sorted(blocked.items())))
            more = f", and {len(blocked) - 1} more" if len(blocked) > 1 else ""
            sentence = f"uplink {name} is not shaped: {why}{more}"
            yield bad(target, reading, sentence, value=f"{name} blocked", cause="blocked", **shown)
        elif memory.pending:
            hidden = len(memory.pending) - SHOWN_PARTS
            more = f" and {hidden} more" if hidden > 0 else ""
            sentence = f"not in place: {', '.join(memory.pending[:SHOWN_PARTS])}{more}"
            yield bad(target, reading, sentence, value="not in place", cause="not in place", **shown)
        else:
            pods = sum(1 for one in found.state.classes if one.leaf_limit_bytes) - 1
            value = f"{shown_rate(memory.budget_bits_per_second)}, {max(0, pods)} pods"
            if memory.scaled_ratio < FULL:
                value += f", guarantees cut to {memory.scaled_ratio:.0%}"
            yield good(target, reading, value=value, **shown)


CHECKS = (
    Check(
        id="network.shaper",
        title="Pods' internet egress shaped",
        family="node",
        signals=("net.shape",),
        source="ifb, HTB classes and filters in tc, against [network] internet_budget and the pods' limits",
        node_class=NodeClass.CHECK,
        judge=judge,
        hold=HoldRule(bad_polls=3, of_polls=5),
    ),
)
