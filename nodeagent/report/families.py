"""What a metric declares, and the declarations of the API server's. Data only."""

from __future__ import annotations

from msgspec import Struct


class Family(Struct, frozen=True, kw_only=True):
    """One metric as it is declared; docs/metrics.md is generated from these."""

    name: str
    """As in the page, a counter with its `_total`."""
    kind: str
    """gauge | counter | summary"""
    help: str
    labels: tuple[str, ...] = ()


CLUSTER_FAMILIES = (
    Family(
        name="nodeagent_api_failing",
        kind="gauge",
        help="1 while the API server does not answer as it should. Absent where there is no cluster.",
    ),
    Family(
        name="nodeagent_api_requests_total",
        kind="counter",
        labels=("verb",),
        help="Requests sent to the API server since the daemon started.",
    ),
    Family(
        name="nodeagent_api_requests_withheld_total",
        kind="counter",
        labels=("verb",),
        help="Requests not sent, because the agent's own budget was spent.",
    ),
    Family(
        name="nodeagent_api_requests_left",
        kind="gauge",
        labels=("verb",),
        help="Requests that the budget allows at once now.",
    ),
    Family(
        name="nodeagent_api_throttled_total",
        kind="counter",
        labels=("priority_level",),
        help="Answers 429 by overload, by the uid of the server's priority level.",
    ),
    Family(
        name="nodeagent_api_writes_held",
        kind="gauge",
        help="1 while nothing is written to the API server: dry run, pause or kill switch.",
    ),
    Family(
        name="nodeagent_taint_set",
        kind="gauge",
        labels=("key", "effect", "value"),
        help="1 for each taint of ours that the Node was seen to carry. Absent when none is.",
    ),
)
"""What only a node of a cluster has."""
