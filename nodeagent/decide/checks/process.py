"""`process.stuck`: does a process that has a GPU open sleep without waking up?

Such a process cannot be killed, so its GPU cannot be given to anybody else. A thread counts only when it
has not run once between scans: one that sleeps often is busy, not stuck.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, unknown
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """The longest sleeper decides; number is its seconds asleep."""
    limit_seconds = given.limits["seconds"]
    for target, holders, reading in given.values("process.gpu_holders"):
        stuck = [task for task in holders.blocked if task.blocked_seconds > limit_seconds]
        longest_seconds = max((task.blocked_seconds for task in holders.blocked), default=0.0)
        shown = {
            "value": f"{len(stuck)} of {holders.holder_count} processes with a GPU",
            "limit": f"{limit_seconds:g} s", "number": longest_seconds,
        }
        if stuck:
            worst = stuck[0]
            sentence = f"{worst.name} (pid {worst.pid}) has a GPU open and sleeps uninterruptibly"
            count = len({task.pid for task in stuck})
            shown["value"] = f"{count} of {holders.holder_count} processes with a GPU"
            yield bad(target, reading, f"{sentence} for {worst.blocked_seconds:.0f} s", **shown)
        elif not holders.holder_count and holders.refused_count:
            sentence = f"the open files of {holders.refused_count} processes may not be seen (CAP_SYS_PTRACE)"
            yield unknown(target, reading, sentence)
        else:
            yield good(target, reading, **shown)


CHECKS = (
    Check(
        id="process.stuck",
        title="Processes with a GPU wake up",
        family="node",
        signals=("process.gpu_holders",),
        source="/proc: state and run count of threads, of processes with /dev/nvidia* open",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="seconds", unit="s", default=300.0,
                meaning="Longer uninterruptible sleep than this is bad.",
            ),
        ),
        hold=HoldRule(
            raised_words="at the first scan that finds one asleep for too long",
        ),
        common_cause="driver",
    ),
)
