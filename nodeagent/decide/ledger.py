"""The ledger annotation, which says on the Node itself which taints are ours, and the list of taints as a
patch has to name it.

Foreign taints pass through as the server wrote them, letter by letter and in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw, Struct

from nodeagent.cluster import NodeObject
from nodeagent.cluster_memory import TaintClaim, TaintOverride

NAME = "ledger"
"""Of the annotation, below our prefix."""


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One taint of ours."""

    key: str
    effect: str
    value: str = ""
    since: str = ""


class Obeyed(Struct, frozen=True, kw_only=True):
    """A taint that somebody does not want."""

    key: str
    effect: str
    by: str


class Ledger(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole of it."""

    uid: str
    """Of the Node it was written for: a copy on another one says nothing."""
    taints: tuple[Entry, ...] = ()
    obeyed: tuple[Obeyed, ...] = ()


_ledgers = msgspec.json.Decoder(Ledger)
_lists = msgspec.json.Decoder(list[Raw] | None)
_entries = msgspec.json.Decoder(Entry)


def taint_id(key: str, effect: str) -> str:
    """Identity of a taint: a Node has no two alike."""
    return f"{key}:{effect}"


def annotation(prefix: str) -> str:
    """Name of the annotation."""
    return f"{prefix}/{NAME}"


def read(node: NodeObject, prefix: str) -> Ledger:
    """The ledger of this very Node; an empty one where there is none that can be believed."""
    try:
        found = _ledgers.decode(node.annotations.get(annotation(prefix), ""))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Ledger(uid=node.uid)
    ours = found.uid == node.uid
    keys = [entry.key for entry in found.taints] + [entry.key for entry in found.obeyed]
    believed = ours and all(key.startswith(f"{prefix}/") for key in keys)
    return found if believed else Ledger(uid=node.uid)


def text(uid: str, claims: Iterable[TaintClaim], overrides: Mapping[str, TaintOverride]) -> str:
    """What the annotation should say; "" when it should not be there."""
    taints = tuple(
        Entry(key=c.key, effect=c.effect, value=c.value, since=c.since)
        for c in sorted(claims, key=lambda claim: (claim.key, claim.effect))
    )
    obeyed = tuple(
        Obeyed(key=name.rpartition(":")[0], effect=name.rpartition(":")[2], by=override.by[:80])
        for name, override in sorted(overrides.items())
    )
    if not taints and not obeyed:
        return ""
    return msgspec.json.encode(Ledger(uid=uid, taints=taints, obeyed=obeyed)).decode()


def changed(
    taints_json: str, *, drop: set[str], replace: Mapping[str, TaintClaim], add: Iterable[TaintClaim]
) -> str:
    """The list of taints as JSON: without some, with other values, and with more at its end.

    It is `taints_json` itself when nothing changes.
    """
    after: list[Raw] = []
    for item in _lists.decode(taints_json) or []:
        given = _entries.decode(item)
        name = taint_id(given.key, given.effect)
        if name in drop:
            continue
        after.append(_item(replace[name]) if name in replace else item)
    after.extend(_item(claim) for claim in add)
    if not drop and not replace and after == (_lists.decode(taints_json) or []):
        return taints_json
    return "[" + ",".join(bytes(item).decode() for item in after) + "]"


def _item(claim: TaintClaim) -> Raw:
    return Raw(msgspec.json.encode({"key": claim.key, "value": claim.value, "effect": claim.effect}))
