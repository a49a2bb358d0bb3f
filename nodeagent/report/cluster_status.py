"""Makes the report of the connection to the API server. Pure, like all makers of reports."""

from __future__ import annotations

from typing import Any

from nodeagent.cluster import NO_SERVER, ApiStatus, NodeObject, NodeWrites
from nodeagent.model import NODE
from nodeagent.report.cluster_schema import ApiReport, OwnTaint, ThrottleStatus, VerbStatus, WithheldTaint
from nodeagent.report.given import ReportInput, read
from nodeagent.signals import SignalKey


def api_report(given: ReportInput) -> ApiReport:
    """The connection as the last cycle saw it, the age of the Node up to `given.moment`."""
    status = read(given, "cluster.api")
    node = given.snapshot.readings.get(SignalKey("cluster.node", NODE))
    uid = node_age_seconds = None
    if node is not None and isinstance(node.value, NodeObject):
        uid = node.value.uid
        node_age_seconds = max(0.0, given.moment.at.monotonic_seconds - node.read_at_seconds)
    if not isinstance(status, ApiStatus):
        return ApiReport(
            state="off", server="", identity="", error="", node_uid=uid, node_age_seconds=node_age_seconds,
            budget=[], throttles=[], priority_level="", flow_schema="", **_writes(given),
        )
    return ApiReport(
        state="failing" if status.error else "connected" if status.identity else "connecting",
        server=status.server, identity=status.identity, error=status.error, node_uid=uid,
        node_age_seconds=node_age_seconds, budget=_budget(status), throttles=_throttles(status),
        priority_level=status.budget.priority_level, flow_schema=status.budget.flow_schema,
        **_writes(given),
    )


def taints_held(given: ReportInput) -> str:
    """Why the taints that are wanted are not written; "" when they are."""
    return given.decision.node_writes.held if given.decision is not None else NO_SERVER


def _writes(given: ReportInput) -> dict[str, Any]:
    memory = given.memory.cluster
    writes = given.decision.node_writes if given.decision is not None else NodeWrites()
    return {
        "held": writes.held, "pending": list(writes.pending), "waiting": writes.waiting,
        "taints_set": [
            OwnTaint(key=c.key, value=c.value, effect=c.effect, since=c.since)
            for c in memory.claims.values() if c.written
        ],
        "withheld": [
            WithheldTaint(taint=name, by=o.by, contested=o.contested)
            for name, o in sorted(memory.overrides.items())
        ],
        "released": memory.release is not None,
    }


def _budget(status: ApiStatus) -> list[VerbStatus]:
    return [
        VerbStatus(verb=b.verb, spent=b.spent_count, withheld=b.withheld_count, left=b.left_count,
                   capacity=b.capacity_count, refill_seconds=b.refill_seconds)
        for b in status.budget.verbs
    ]


def _throttles(status: ApiStatus) -> list[ThrottleStatus]:
    return [
        ThrottleStatus(priority_level=t.priority_level, throttled=t.throttled_count)
        for t in status.budget.throttles
    ]
