"""Faults that share a cause become one incident: one message, one wanted action.

All faults of one GPU that stand together are one incident, led by the worst class, then by the
first raised. A fault that the table links to a number standing on another GPU (an NVLink error
at the peer of a dead GPU) joins that GPU's incident. Node faults group by common cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from nodeagent.decide import holds
from nodeagent.decide.check import Check
from nodeagent.decide.taints import HARDWARE_FAMILIES
from nodeagent.decide.xid_table import NUMBER_CHECKS, SXID_FLOOR
from nodeagent.memory import Memory, XidRecord
from nodeagent.model import NODE, Incident, Instant, NodeClass, Now

JOIN_SECONDS = 120.0
"""A sympathetic fault on a peer follows its cause within this time."""
MAX_MEMBERS = 32

Linked = Callable[[int], frozenset[int]]
"""Xid number -> numbers it accompanies or is caused by, from the Xid table."""


class _Member(Struct, frozen=True, kw_only=True):
    group: str
    label: str
    rank: int
    since: Instant


def update(memory: Memory, checks: Mapping[str, Check], linked: Linked, now: Now) -> Memory:
    """Incidents after this cycle: open ones keep their id and opening time and gather members."""
    members = _members(memory, checks, linked, now)
    known = {incident.target: incident for incident in memory.incidents}
    after: list[Incident] = []
    for group in sorted({member.group for member in members}):
        of_group = [member for member in members if member.group == group]
        after.append(_incident(group, of_group, known.get(group), now))
    return msgspec.structs.replace(memory, incidents=tuple(after))


def _incident(group: str, members: list[_Member], known: Incident | None, now: Now) -> Incident:
    lead = min(members, key=lambda m: (-m.rank, m.since.wall_seconds, m.label))
    labels = list(known.members) if known is not None else []
    labels += [m.label for m in sorted(members, key=lambda m: m.label) if m.label not in labels]
    return Incident(
        id=known.id if known is not None else f"{group}/{int(now.at.wall_seconds)}",
        target=group, root=lead.label,
        opened=known.opened if known is not None else min(
            (m.since for m in members), key=lambda i: i.wall_seconds
        ),
        members=tuple(labels[:MAX_MEMBERS]),
    )


def _members(
    memory: Memory, checks: Mapping[str, Check], linked: Linked, now: Now
) -> list[_Member]:
    raised = {k: h for k, h in memory.holds.items() if holds.is_raised(h)}
    targets = {key.partition("|")[2] for key in raised} - {NODE}
    live = [r for r in memory.xids.values() if r.cleared is None and not r.injected]
    joined = {target: _leader(target, live, targets, linked, now) for target in targets}
    known = {incident.target: incident for incident in memory.incidents}
    heard = {r.pci_address for r in live if r.node_class is not NodeClass.IGNORE}
    members = []
    for key, hold in raised.items():
        check_id, _, target = key.partition("|")
        if check_id in NUMBER_CHECKS and target in heard:
            continue  # its records speak for it
        hardware = check_id in checks and checks[check_id].family in HARDWARE_FAMILIES
        group = joined.get(target, "") if hardware else ""
        if check_id in NUMBER_CHECKS and target not in known:
            group = next((t for t, i in known.items() if t in targets and hold.cause in i.members), group)
        group = group or _node_group(check_id, checks)
        label = hold.cause if check_id in NUMBER_CHECKS and hold.cause else check_id
        members.append(_Member(group=group, label=label, rank=hold.node_class.rank, since=hold.since))
    for record in live:
        group = joined.get(record.pci_address, "")
        if group:
            kind = "sxid" if record.number >= SXID_FLOOR else "xid"
            members.append(_Member(group=group, label=f"{kind} {record.number}",
                                   rank=record.node_class.rank, since=record.first))
    return members


def _node_group(check_id: str, checks: Mapping[str, Check]) -> str:
    cause = checks[check_id].common_cause if check_id in checks else ""
    return cause or check_id


def _leader(
    target: str, live: list[XidRecord], targets: set[str], linked: Linked, now: Now
) -> str:
    """The GPU whose incident `target` belongs to: itself, or the peer that explains it."""
    own = [r for r in live if r.pci_address == target]
    if not own or any(r.node_class.taints for r in own):
        return target
    wanted = frozenset[int]().union(*(linked(r.number) for r in own))
    for peer in live:
        near = abs(now.age_seconds(peer.first) - now.age_seconds(own[0].first)) <= JOIN_SECONDS
        if peer.pci_address != target and peer.pci_address in targets and near and (
            peer.node_class.taints and peer.number in wanted
        ):
            return peer.pci_address
    return target
