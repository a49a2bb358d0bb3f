"""`oom.kills`: does the kernel kill processes for want of memory?

A container at its own limit now and then is its owner's matter. Many kills, or a single one because the
node itself ran out of memory, is the node's: the next may hit the runtime or the job beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide import fault_counts
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.model import NODE, Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """Kills within the window; number is all of them, whoever ran out of memory."""
    window_seconds = given.limits["window_seconds"]
    for target, _, reading in given.values("memory.oom_kills"):
        kills, of_node = (
            fault_counts.grown(given.memory, name, NODE, window_seconds, given.snapshot.now)
            for name in (fault_counts.OOM_KILLS, fault_counts.LINES["oom"])
        )
        shown = {
            "value": f"{kills} kills, {of_node} for want of memory of the node",
            "limit": f"{given.limits['kills']} kills in {window_seconds:g} s",
            "number": float(kills),
        }
        if of_node > given.limits["node_kills"]:
            line = fault_counts.newest_line(given.memory, "oom", NODE)
            yield bad(target, reading, f"the node ran out of memory: {line}", cause="node", **shown)
        elif kills > given.limits["kills"]:
            sentence = f"{kills} processes were killed for want of memory in {window_seconds:g} s"
            yield bad(target, reading, sentence, cause="containers", **shown)
        else:
            yield good(target, reading, **shown)


CHECKS = (
    Check(
        id="oom.kills",
        title="Out-of-memory kills",
        family="node",
        signals=("memory.oom_kills",),
        source="oom_kill of /proc/vmstat, and the kernel log for those of the node itself",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="kills", unit="kills", default=20,
                meaning="More kills than this within the window are bad, containers at their limit included.",
            ),
            Limit(
                name="node_kills", unit="kills", default=0,
                meaning="More kills than this because the node itself ran out of memory are bad.",
            ),
            Limit(
                name="window_seconds", unit="s", default=3600.0,
                meaning="How far back kills count; at most a day.",
            ),
        ),
        hold=HoldRule(
            raised_words="at the first poll that shows too many kills",
            cleared_words="when few enough lie in the window, and 3 more polls were good",
        ),
    ),
)
