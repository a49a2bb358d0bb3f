"""`clock.unsynced`: is the wall clock disciplined by a time service?

The kernel sets the unsynchronised flag by itself when nobody has disciplined it for long. A time
service's quiet interval of half an hour lets the maximum error grow to about 1 s: no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """The kernel's flag, or a maximum error over the limit, is bad; number is seconds of maximum error."""
    limit_seconds = given.limits["max_error_seconds"]
    for target, clock, reading in given.values("clock.sync"):
        shown = {
            "value": f"{clock.max_error_seconds:.3f} s", "limit": f"{limit_seconds:g} s",
            "number": clock.max_error_seconds,
        }
        if not clock.synchronized:
            yield bad(target, reading, "no time service disciplines the wall clock", **shown)
        elif clock.max_error_seconds > limit_seconds:
            sentence = f"the wall clock may be wrong by {clock.max_error_seconds:.1f} s"
            yield bad(target, reading, sentence, **shown)
        else:
            yield good(target, reading, **shown)


CHECKS = (
    Check(
        id="clock.unsynced",
        title="Wall clock synchronised",
        family="node",
        signals=("clock.sync",),
        source="adjtimex: STA_UNSYNC and the maximum error",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="max_error_seconds", unit="s", default=5.0,
                meaning="Maximum error, as the kernel bounds it, that is still tolerated.",
            ),
        ),
        # 20 polls of 15 s are 5 minutes: a time service may restart.
        hold=HoldRule(bad_polls=20, of_polls=20),
        common_cause="clock",
        boot_grace_seconds=300.0,
    ),
)
