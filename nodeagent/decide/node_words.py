"""What the Node says of itself to people: two conditions and events, made from faults and from what became of
our taints. No number that moves stands in them, so a fault that merely goes on writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from nodeagent.cluster import NodeObject
from nodeagent.cluster_memory import ClusterMemory, ConditionClaim, EventRecord
from nodeagent.decide import holds, node_ops
from nodeagent.decide.node_taints import Change
from nodeagent.memory import Hold
from nodeagent.model import NodeClass, Now

UNHEALTHY, WITHHELD = "NodeAgentUnhealthy", "NodeAgentTaintWithheld"
REASONS = {
    NodeClass.CHECK: "CheckFault", NodeClass.RESET: "ResetNeeded", NodeClass.REBOOT: "RebootNeeded",
    NodeClass.VENDOR: "VendorNeeded",
}
NAMED_FAULTS = 4
MAX_EVENTS = 16
FOLD_SECONDS = 3600.0
"""The same event within this time is counted on the one that is there."""
_EVENTS = {
    "set": ("Warning", "NodeAgentTaintSet", "set {taint}"),
    "removed": ("Normal", "NodeAgentTaintRemoved", "removed {key}: the fault is gone"),
    "withheld": (
        "Normal", "NodeAgentTaintWithheld", "{key} was removed by {by}: it is not set again for this fault"),
    "contested": (
        "Warning", "NodeAgentTaintContested", "{key} was removed twice within 15 min by {by}: given way"),
}


def conditions(
    memory: ClusterMemory, node: NodeObject, standing: Mapping[str, Hold], now: Now, *, is_judged: bool
) -> ClusterMemory:
    """Both conditions as they should stand. A node that never had a fault has none; `is_judged`: the verdict
    is not unknown."""
    if memory.release is not None:
        return msgspec.structs.replace(memory, conditions={})
    there = {c.type: c.status for c in node.conditions}
    is_judged = is_judged and not any(c.adopted and not c.removing for c in memory.claims.values())
    faults = {key: h for key, h in standing.items() if holds.is_raised(h) and h.node_class in REASONS}
    known = dict(memory.conditions)
    if faults:
        worst = max((h.node_class for h in faults.values()), key=lambda node_class: node_class.rank)
        known[UNHEALTHY] = _condition(known.get(UNHEALTHY), "True", REASONS[worst], _faults(faults), now)
    elif is_judged and (UNHEALTHY in known or there.get(UNHEALTHY) == "True"):
        known[UNHEALTHY] = _condition(known.get(UNHEALTHY), "False", "NoFault", "no fault stands", now)
    if memory.overrides:
        said = "; ".join(
            f"{name} is wanted and not set: "
            + ("others keep removing it" if o.contested else f"removed by {o.by}")
            for name, o in sorted(memory.overrides.items())
        )
        reason = "Contested" if any(o.contested for o in memory.overrides.values()) else "RemovedByPerson"
        known[WITHHELD] = _condition(known.get(WITHHELD), "True", reason, said, now)
    elif WITHHELD in known or there.get(WITHHELD) == "True":
        known[WITHHELD] = _condition(known.get(WITHHELD), "False", "NotWithheld", "no taint is withheld", now)
    return msgspec.structs.replace(memory, conditions=known)


def _condition(
    before: ConditionClaim | None, status: str, reason: str, message: str, now: Now
) -> ConditionClaim:
    message = message[:1000]
    if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
        return before
    since = before.since if before is not None and before.status == status else now.at
    return ConditionClaim(status=status, reason=reason, message=message, since=since)


def _faults(faults: Mapping[str, Hold]) -> str:
    order = sorted(faults, key=lambda key: (-faults[key].node_class.rank, key))
    named = [f"{key.replace('|', ' on ')} ({faults[key].node_class.value})" for key in order[:NAMED_FAULTS]]
    more = len(order) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")


def events(memory: ClusterMemory, node: NodeObject, changes: Iterable[Change], now: Now) -> ClusterMemory:
    """The record with what happened; of too many the oldest are dropped."""
    records = list(memory.events)
    for change in changes:
        kind, reason, sentence = _EVENTS[change.kind]
        claim = change.claim
        note = sentence.format(
            taint=f"{claim.key}={claim.value}:{claim.effect}", key=f"{claim.key}:{claim.effect}",
            by=change.by or "an unnamed writer",
        )[:1000]
        same = next((r for r in records if (r.reason, r.note) == (reason, note)
                     and now.age_seconds(r.last) < FOLD_SECONDS), None)
        if same is not None:
            records[records.index(same)] = msgspec.structs.replace(same, count=same.count + 1, last=now.at)
            continue
        record = EventRecord(name="", type=kind, reason=reason, note=note, first=now.at, last=now.at)
        records.append(msgspec.structs.replace(record, name=node_ops.event_name(node, record)))
    return msgspec.structs.replace(memory, events=tuple(records[-MAX_EVENTS:]))
