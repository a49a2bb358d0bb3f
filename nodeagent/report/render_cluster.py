"""The lines of the API server for a person at a terminal, from the JSON report alone."""

from __future__ import annotations

from nodeagent.report.cluster_schema import ApiReport
from nodeagent.report.text import counted, duration


def api_lines(api: ApiReport | None, verbose: bool) -> list[tuple[str, str]]:
    """Label and text; nothing on a node without a cluster, and the budget only when it matters."""
    if api is None or (api.state == "off" and not verbose):
        return []
    lines = [("API", _connection(api))]
    withheld = sum(verb.withheld for verb in api.budget)
    throttled = sum(throttle.throttled for throttle in api.throttles)
    if api.budget and (verbose or withheld or throttled):
        lines.append(("Budget", _budget(api)))
    return lines


def _connection(api: ApiReport) -> str:
    if api.state == "off":
        return "not spoken with: no account of a pod and no cluster.kubeconfig, or cluster.enabled is false"
    age = api.node_age_seconds
    node = "Node not read" if age is None else f"Node confirmed {duration(age)} ago"
    if api.state == "failing":
        return f"FAILING, {node}: {api.error}"
    identity = {"node": " as the node", "account": " as the account"}.get(api.identity, "")
    return f"{api.state}, {api.server}{identity}, {node}"


def _budget(api: ApiReport) -> str:
    parts = []
    for verb in api.budget:
        if verb.spent or verb.withheld:
            held = f", {verb.withheld} withheld" if verb.withheld else ""
            parts.append(f"{verb.verb} {verb.spent} sent{held}, {verb.left} of {verb.capacity} left")
    parts += [
        f"{counted(t.throttled, 'answer')} 429 by level {t.priority_level or 'not named'}"
        for t in api.throttles
    ]
    return "; ".join(parts) or "nothing sent"
