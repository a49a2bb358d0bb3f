"""The ops on the own Node: one patch of taints and ledger, one of conditions, events one by one.

An op says everything that is written and what must be so before; equal states give equal ops, so an op that
is tried again after a kill does the same or fails its test.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from nodeagent.cluster import NodeObject
from nodeagent.cluster_memory import ClusterMemory, ConditionClaim, EventRecord
from nodeagent.decide import ledger
from nodeagent.decide.node_taints import is_waiting, rfc3339, shown_taints
from nodeagent.model import Now, Op

EXECUTOR = "node"
DEADLINE_SECONDS = 35.0
"""Above the client's own, which ends a request."""
FOLD_SECONDS = 60.0
RESEND_SECONDS = 600.0
"""A condition of ours that somebody else changed is sent again no sooner."""


def read(node: NodeObject) -> Op:
    """Read the Node from the store, not from the server's memory."""
    return Op(kind="node.read", target=node.name, deadline_seconds=DEADLINE_SECONDS)


def taints(memory: ClusterMemory, node: NodeObject, prefix: str, now: Now) -> Op | None:
    """Taints and ledger in one patch; None when both are as they should be."""
    memory = msgspec.structs.replace(
        memory, claims={n: c for n, c in memory.claims.items() if not is_waiting(c, now)})
    shown = shown_taints(node)
    listed = {ledger.taint_id(e.key, e.effect): e for e in ledger.read(node, prefix).taints}
    owned = {n: c for n, c in memory.claims.items() if (c.written or n in listed) and n in shown}
    foreign = {n for n, c in memory.claims.items() if n in shown and n not in owned}
    kept = [c for n, c in memory.claims.items() if not c.removing and n not in foreign]
    after = ledger.changed(
        node.taints_json,
        drop={name for name, claim in owned.items() if claim.removing},
        # A value that somebody else changed is theirs: only a change of our own mind is written.
        replace={n: c for n, c in owned.items() if shown[n] != c.value and not c.removing
                 and (n not in listed or listed[n].value != c.value)},
        add=[c for n, c in sorted(memory.claims.items()) if n not in shown and not (c.written or c.removing)],
    )
    text = ledger.text(node.uid, kept, memory.overrides)
    name = ledger.annotation(prefix)
    stands = node.annotations.get(name, "")
    if after == node.taints_json and text == stands:
        return None
    return Op(kind="node.taints", target=node.name, deadline_seconds=DEADLINE_SECONDS, arguments={
        "uid": node.uid, "before": node.taints_json, "after": after, "annotation": name,
        "ledger": text, "ledger_stands": name in node.annotations, "has_annotations": node.has_annotations,
        "carries": sorted(ledger.taint_id(claim.key, claim.effect) for claim in kept),
    })


def conditions(memory: ClusterMemory, node: NodeObject, now: Now) -> Op | None:
    """Own conditions that are not as they should be; those of no use are deleted."""
    there = {c.type: c for c in node.conditions if c.type.startswith("NodeAgent")}
    sent: list[dict[str, Any]] = []
    for kind, claim in sorted(memory.conditions.items()):
        stands = there.get(kind)
        same = stands is not None and (stands.status, stands.reason, stands.message) == (
            claim.status, claim.reason, claim.message)
        if not same and (claim.asked is None or now.age_seconds(claim.asked) >= RESEND_SECONDS):
            sent.append(_condition(kind, claim))
    if memory.release is not None:
        sent = [{"$patch": "delete", "type": kind} for kind in sorted(there)]
    if not sent:
        return None
    return Op(kind="node.conditions", target=node.name, deadline_seconds=DEADLINE_SECONDS,
              arguments={"uid": node.uid, "conditions": sent})


def _condition(kind: str, claim: ConditionClaim) -> dict[str, Any]:
    at = rfc3339(claim.since.wall_seconds)
    return {"type": kind, "status": claim.status, "reason": claim.reason, "message": claim.message,
            "lastTransitionTime": at, "lastHeartbeatTime": at}


def event(memory: ClusterMemory, node: NodeObject, now: Now) -> Op | None:
    """The oldest event that the server does not know in full; repeats are told once they have ceased."""
    record = next((
        r for r in memory.events if r.told_count < r.count
        and (not r.told_count or now.age_seconds(r.last) >= FOLD_SECONDS)
    ), None)
    if record is None:
        return None
    first, last = (f"{rfc3339(at.wall_seconds)[:-1]}.000000Z" for at in (record.first, record.last))
    series = {"count": record.count, "lastObservedTime": last} if record.count > 1 else None
    if record.told_count:
        return Op(kind="event.fold", target=record.name, deadline_seconds=DEADLINE_SECONDS,
                  arguments={"body": {"series": series}})
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": record.name, "namespace": "default"},
        "eventTime": first, "type": record.type, "reason": record.reason, "note": record.note,
        "action": record.reason, "reportingController": "nodeagent", "reportingInstance": node.name[:128],
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid},
    }
    return Op(kind="event.create", target=record.name, deadline_seconds=DEADLINE_SECONDS,
              arguments={"body": body | ({"series": series} if series else {})})


def event_name(node: NodeObject, record: EventRecord) -> str:
    """The same for the same event, so that it is created once however often that is tried."""
    parts = (node.uid, record.reason, record.note, record.first.boot_id, repr(record.first.monotonic_seconds))
    return f"{node.name[:200]}.{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}"


def digest(op: Op) -> str:
    """What an op writes, in short."""
    return hashlib.sha256(msgspec.json.encode((op.kind, op.target, op.arguments))).hexdigest()[:16]


def line(op: Op) -> str:
    """One op for a person."""
    arguments = op.arguments
    if op.kind == "node.taints":
        book = arguments["ledger"] or "removed"
        return f"taints {arguments['before']} -> {arguments['after']}, ledger {book}"
    if op.kind == "node.conditions":
        return "conditions " + ", ".join(
            f"{c['type']}={c.get('status', 'deleted')}" for c in arguments["conditions"])
    if op.kind == "node.read":
        return "read the Node anew"
    return f"{op.kind} {op.target}"
