"""Makes the report of the connection to the API server. Pure, like all makers of reports."""

from __future__ import annotations

from nodeagent.cluster import ApiStatus, NodeObject
from nodeagent.model import NODE
from nodeagent.report.cluster_schema import ApiReport, ThrottleStatus, VerbStatus
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
            budget=[], throttles=[], priority_level="", flow_schema="",
        )
    return ApiReport(
        state="failing" if status.error else "connected" if status.identity else "connecting",
        server=status.server, identity=status.identity, error=status.error, node_uid=uid,
        node_age_seconds=node_age_seconds, budget=_budget(status), throttles=_throttles(status),
        priority_level=status.budget.priority_level, flow_schema=status.budget.flow_schema,
    )


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
