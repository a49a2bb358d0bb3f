"""`conntrack.full`: is there room in the kernel's table of connections?

A full table drops the first packet of every new connection, of pods and services alike, while those that
stand go on: it looks like a network with holes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodeagent.decide import growth
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """Fuller than the limit, or more dropped than the limit, is bad; number is percent in use."""
    percent_limit, dropped_limit = given.limits["percent"], given.limits["dropped_count"]
    window = growth.shown_window(given.limits["window_seconds"])
    for target, table, reading in given.values("conntrack"):
        if table.limit_count <= 0:
            yield not_applicable(target, "the table has no limit")
            continue
        percent = 100.0 * table.entries_count / table.limit_count
        dropped = growth.within(given, growth.DROPPED, target, given.limits["window_seconds"])
        shown: dict[str, Any] = {
            "value": f"{percent:.1f} %, {table.entries_count} of {table.limit_count}",
            "limit": f"{percent_limit:g} %, {dropped_limit} dropped in {window}", "number": percent,
        }
        if dropped is not None and dropped > dropped_limit:
            sentence = f"the table of connections was full: {dropped} connections lost in {window}"
            yield bad(target, reading, sentence, cause="dropped", **shown)
        elif percent > percent_limit:
            sentence = f"{table.entries_count} of {table.limit_count} tracked connections are in use"
            yield bad(target, reading, sentence, cause="full", **shown)
        else:
            yield good(target, reading, **shown)


CHECKS = (
    Check(
        id="conntrack.full",
        title="Connection table",
        family="node",
        signals=("conntrack",),
        source="nf_conntrack_count, nf_conntrack_max, and drop and early_drop in /proc/net/stat/nf_conntrack",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(name="percent", unit="%", default=85.0,
                  meaning="Up to this share of the table in use is tolerated."),
            Limit(name="dropped_count", unit="connections", default=0,
                  meaning="Packets dropped and connections evicted for want of room, in the window, that are "
                          "still tolerated."),
            Limit(name="window_seconds", unit="s", default=300.0,
                  meaning="Drops are added up over so long; at most a day."),
        ),
        hold=HoldRule(bad_polls=2, of_polls=3),
    ),
)
