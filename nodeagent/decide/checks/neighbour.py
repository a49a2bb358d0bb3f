"""`neighbour.full`: is there room in the kernel's table of neighbours?

The table is one for every network namespace of the node, pods included, and its default limit is that of a
small office: in a large flat network the node can no longer speak to whom it has not spoken to lately.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodeagent.decide import growth
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """Per family: fuller than the limit, or any overflow in the window, is bad; number is percent in use."""
    percent_limit, overflow_limit = given.limits["percent"], given.limits["overflows_count"]
    window = growth.shown_window(given.limits["window_seconds"])
    for target, table, reading in given.values("neighbour.table"):
        if table.limit_count <= 0:
            yield not_applicable(target, "the table has no limit")
            continue
        counted = max(0, table.entries_count - table.exempt_count)
        percent = 100.0 * counted / table.limit_count
        overflows = growth.within(given, growth.OVERFLOWS, target, given.limits["window_seconds"])
        shown: dict[str, Any] = {
            "value": f"{percent:.1f} %, {counted} of {table.limit_count}",
            "limit": f"{percent_limit:g} %, {overflow_limit} refused in {window}", "number": percent,
        }
        if overflows is not None and overflows > overflow_limit:
            sentence = f"the {target} neighbour table was full: {overflows} neighbours refused in {window}"
            yield bad(target, reading, sentence, cause="overflow", **shown)
        elif percent > percent_limit:
            sentence = f"{counted} of {table.limit_count} {target} neighbours are in use"
            yield bad(target, reading, sentence, cause="full", **shown)
        else:
            yield good(target, reading, **shown)


CHECKS = (
    Check(
        id="neighbour.full",
        title="Neighbour tables",
        family="node",
        signals=("neighbour.table",),
        source="entries and table_fulls in /proc/net/stat/arp_cache and ndisc_cache, against gc_thresh3",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(name="percent", unit="%", default=80.0,
                  meaning="Up to this share of gc_thresh3 in use is tolerated."),
            Limit(name="overflows_count", unit="neighbours", default=0,
                  meaning="Neighbours refused for want of room, in the window, that are still tolerated."),
            Limit(name="window_seconds", unit="s", default=300.0,
                  meaning="Refusals are added up over so long; at most a day."),
        ),
        hold=HoldRule(bad_polls=2, of_polls=3),
        # A cluster that grows fills the tables of all its nodes at once.
        common_cause="links",
    ),
)
