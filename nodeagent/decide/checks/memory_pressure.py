"""`memory.pressure`: does work on this node stand still for want of memory?

Both must be so: tasks wait for memory, and little is available. A container that fights with its own
limit makes tasks wait too, on a node with plenty.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.model import Finding, NodeClass

GIB_BYTES = 1 << 30


def judge(given: CheckInput) -> Iterator[Finding]:
    """Pressure over either limit, with too little available; number is percent of the last minute."""
    some_limit, full_limit = given.limits["some_percent"], given.limits["full_percent"]
    for target, memory, reading in given.values("memory.pressure"):
        available_percent = 100.0 * memory.available_bytes / max(1, memory.size_bytes)
        shown = {
            "value": (
                f"some {memory.some_percent:g} %, full {memory.full_percent:g} %, "
                f"{available_percent:.1f} % available"
            ),
            "limit": f"some {some_limit:g} %, full {full_limit:g} %, "
            f"and below {given.limits['available_percent']:g} % available",
            "number": memory.some_percent,
        }
        waits = memory.some_percent > some_limit or memory.full_percent > full_limit
        if waits and available_percent < given.limits["available_percent"]:
            left = f"{memory.available_bytes / GIB_BYTES:.1f} GiB are available"
            sentence = f"tasks waited for memory for {memory.some_percent:.0f} % of the last minute; {left}"
            yield bad(target, reading, sentence, **shown)
        else:
            yield good(target, reading, **shown)


CHECKS = (
    Check(
        id="memory.pressure",
        title="Memory pressure",
        family="node",
        signals=("memory.pressure",),
        source="avg60 of /proc/pressure/memory, and MemAvailable",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="some_percent", unit="%", default=40.0,
                meaning="Part of the last minute in which some task waited for memory.",
            ),
            Limit(
                name="full_percent", unit="%", default=10.0,
                meaning="Part of the last minute in which all tasks that wanted to run waited for memory.",
            ),
            Limit(
                name="available_percent", unit="%", default=10.0,
                meaning="Pressure is bad only below this part of memory being available.",
            ),
        ),
        hold=HoldRule(bad_polls=4, of_polls=4),
        boot_grace_seconds=300.0,
    ),
)
