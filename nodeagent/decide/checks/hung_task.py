"""`kernel.hung_task`: does the kernel report tasks that sleep uninterruptibly for minutes?

The kernel's own counter where it has one (6.13 and later), else the lines of its log, of which it prints
ten and then no more. Where the kernel does not look for hung tasks there is nothing to judge.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide import fault_counts
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.errors import ErrorKind
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.signals import KernelLogStatus, Reading, SignalKey, Unread, read_as

COUNTERLESS = "no counter"
"""What the reason of an absent counter begins with where the kernel still writes the lines."""


def judge(given: CheckInput) -> Iterator[Finding]:
    """Reports within the window, by counter or by line, whichever saw more."""
    count = given.snapshot.readings.get(SignalKey("kernel.hung_tasks", NODE))
    log = given.snapshot.readings.get(SignalKey("kernel_log", NODE))
    if count is not None and not isinstance(count.value, Unread):
        yield _judge_one(given, count)
    elif count is not None and log is not None and _has_lines(count.value, log):
        yield _judge_one(given, log)


def _has_lines(missing: Unread, log: Reading) -> bool:
    absent = missing.kind is ErrorKind.ABSENT and COUNTERLESS in missing.reason
    return absent and read_as(log, KernelLogStatus) is not None


def _judge_one(given: CheckInput, reading: Reading) -> Finding:
    window_seconds = given.limits["window_seconds"]
    reports = max(
        fault_counts.grown(given.memory, name, NODE, window_seconds, given.snapshot.now)
        for name in (fault_counts.HUNG_TASKS, fault_counts.LINES["hung"])
    )
    shown = {
        "value": f"{reports} reports", "limit": f"{given.limits['reports']} reports in {window_seconds:g} s",
        "number": float(reports),
    }
    if reports <= given.limits["reports"]:
        return good(NODE, reading, **shown)
    line = fault_counts.newest_line(given.memory, "hung", NODE)
    sentence = line or "the kernel reports tasks that do not wake up; the log has none of the lines"
    return bad(NODE, reading, sentence, **shown)


CHECKS = (
    Check(
        id="kernel.hung_task",
        title="Hung tasks",
        family="node",
        signals=("kernel.hung_tasks",),
        source="kernel.hung_task_detect_count, else the kernel log",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="reports", unit="reports", default=0,
                meaning="More reports than this within the window are bad.",
            ),
            Limit(
                name="window_seconds", unit="s", default=3600.0,
                meaning="How far back reports count; at most a day.",
            ),
        ),
        hold=HoldRule(
            raised_words="at the first poll that shows a new report",
            cleared_words="when the window has passed without a new report, and 3 more polls were good",
        ),
    ),
)
