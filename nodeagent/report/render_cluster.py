"""The lines of the API server for a person at a terminal, from the JSON report alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodeagent.report.cluster_schema import ApiReport
from nodeagent.report.text import counted, duration

if TYPE_CHECKING:
    from nodeagent.report.schema import TaintRow


def api_lines(api: ApiReport | None, verbose: bool) -> list[tuple[str, str]]:
    """Label and text; nothing on a node without a cluster, and the budget only when it matters."""
    if api is None or (api.state == "off" and not verbose):
        return []
    lines = [("API", _connection(api))]
    withheld = sum(verb.withheld for verb in api.budget)
    throttled = sum(throttle.throttled for throttle in api.throttles)
    if api.budget and (verbose or withheld or throttled):
        lines.append(("Budget", _budget(api)))
    if api.waiting:
        lines.append(("Waiting", api.waiting))
    lines += [("Pending", line) for line in api.pending if verbose or (api.held and not api.waiting)]
    lines += [
        ("Withheld", f"{w.taint}, " + ("others keep removing it" if w.contested else f"removed by {w.by}"))
        for w in api.withheld
    ]
    if api.released:
        lines.append(("Released", "nothing of ours is put on the Node until nodeagent node resume"))
    return lines


def taint_verb(api: ApiReport | None, taint: TaintRow) -> str:
    """What is true of a taint that is wanted."""
    if api is None:
        return "would set"
    name = f"{taint.key}:{taint.effect}"
    if any(w.taint == name for w in api.withheld):
        return "withheld:"
    return "set" if any(f"{t.key}:{t.effect}" == name for t in api.taints_set) else "to be set:"


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
