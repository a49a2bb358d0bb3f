"""Which taints of the own Node are ours, and what becomes of one that somebody else took away.

A taint is ours when the ledger on the Node says so, or when we remember to have seen both there; nothing
else is ever removed. What we want is put back once where no person took it, and then no more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from nodeagent.cluster import NodeObject
from nodeagent.cluster_memory import ClusterMemory, TaintClaim, TaintLoss, TaintOverride
from nodeagent.decide import ledger
from nodeagent.model import Now, Taint

PERSONS_TOOLS = (
    "kubectl", "oc", "k9s", "lens", "openlens", "node-fetch", "headlamp", "mozilla", "kubernetes-dashboard",
)
"""How field managers begin by which people write; compared in lower case."""
CONFIRM_SHORTEST_SECONDS, CONFIRM_LONGEST_SECONDS = 10.0, 60.0
"""A lost taint is put back after a read that comes so long after the loss was seen."""
CONTESTED_SECONDS = 900.0
"""Gone again within this time after it was put back: contested."""
ADOPTED_SECONDS = 600.0
"""A taint whose fault is not remembered stays at least so long: its fault must be able to show again."""
OBEYED_SECONDS = 7 * 86400.0
SPLAY_SECONDS = 60.0
"""The first write of a fault of a common cause is spread over it."""


class Wanted(NamedTuple):
    """A taint that the faults ask for."""

    taint: Taint
    faults: tuple[str, ...]
    """"check|target" of all faults that ask for it."""
    is_common: bool = False
    """All of them are of a kind that strikes many nodes at once."""


class Change(NamedTuple):
    """What happened to a taint of ours."""

    kind: str
    """set | removed | withheld | contested"""
    claim: TaintClaim
    by: str = ""


class Settled(NamedTuple):
    """What is to be so."""

    memory: ClusterMemory
    changes: tuple[Change, ...]
    read_due: bool
    """The Node must be read before anything more can be said."""


def observe(
    memory: ClusterMemory, node: NodeObject, prefix: str, now: Now
) -> tuple[ClusterMemory, tuple[Change, ...]]:
    """Take in what the Node shows; another uid is another Node, of which only its ledger is known."""
    listed = ledger.read(node, prefix)
    if node.uid != memory.uid:
        memory = ClusterMemory(
            uid=node.uid, pause=memory.pause, release=memory.release,
            overrides={
                ledger.taint_id(o.key, o.effect): TaintOverride(
                    by=o.by, contested=o.by == "contested", since=now.at, faults=None)
                for o in listed.obeyed
            },
        )
    shown = shown_taints(node)
    entries = {ledger.taint_id(e.key, e.effect): e for e in listed.taints}
    claims, losses, changes = dict(memory.claims), dict(memory.losses), []
    for name, entry in entries.items():
        if name not in claims and name not in memory.overrides:
            claims[name] = TaintClaim(
                key=entry.key, effect=entry.effect, value=entry.value, since=entry.since, written=True,
                adopted=now.at)
    for name, claim in list(claims.items()):
        if name in shown:
            losses.pop(name, None)
            if not claim.written and name in entries:
                claims[name] = msgspec.structs.replace(claim, written=True)
                changes.append(Change("set", claim))
        elif claim.removing and name not in entries:
            del claims[name]
            changes.append(Change("removed", claim))
    return _with(memory, claims=claims, losses=losses), tuple(changes)


def confirmed(
    memory: ClusterMemory, carried: Collection[str]
) -> tuple[ClusterMemory, tuple[Change, ...]]:
    """Take in that a write went through; what the Node shows next may already be somebody's next write."""
    new = {n: c for n, c in memory.claims.items() if n in carried and not c.written}
    claims = {n: msgspec.structs.replace(c, written=True) for n, c in new.items()}
    changes = tuple(Change("set", claim) for claim in new.values())
    return _with(memory, claims={**memory.claims, **claims}), changes


def settle(
    memory: ClusterMemory, node: NodeObject, wanted: Mapping[str, Wanted], now: Now, *,
    read_at_seconds: float, entropy: float, is_judged: bool, listed: Collection[str] = (),
) -> Settled:
    """Move every claim towards what is wanted. `is_judged`: the node's verdict is not unknown; `listed`: the
    taints that the ledger on the Node names."""
    shown = shown_taints(node)
    memory = _overrides(memory, wanted, now)
    changes: list[Change] = []
    read_due = False
    for name, want in sorted(wanted.items()):
        if name in memory.overrides:
            continue
        claim = memory.claims.get(name)
        if claim is None:
            if name not in shown:  # else it is somebody else's, and serves as well
                memory = _claimed(memory, name, _fresh(want, now, entropy))
            continue
        claim = msgspec.structs.replace(
            claim, removing=False, value=want.taint.value,
            wait_seconds=claim.wait_seconds if want.is_common else 0.0)
        memory = _claimed(memory, name, claim)
        if claim.written and name not in shown:
            memory, change, due = _lost(
                memory, name, want, node, now, read_at_seconds=read_at_seconds, entropy=entropy,
                is_listed=name in listed)
            changes += [change] if change is not None else []
            read_due = read_due or due
    memory = _unwanted(memory, shown.keys(), wanted, now, is_judged=is_judged)
    return Settled(memory, tuple(changes), read_due)


def shown_taints(node: NodeObject) -> dict[str, str]:
    """Values of the Node's taints by their identity."""
    return {ledger.taint_id(taint.key, taint.effect): taint.value for taint in node.taints}


def next_due_seconds(memory: ClusterMemory, now: Now) -> list[float]:
    """CLOCK_MONOTONIC of each loss that waits to be confirmed."""
    at_seconds = now.at.monotonic_seconds
    dues = [at_seconds + loss.wait_seconds - now.age_seconds(loss.since) for loss in memory.losses.values()]
    dues += [
        at_seconds + claim.wait_seconds - now.age_seconds(claim.begun)
        for claim in memory.claims.values() if claim.begun is not None and is_waiting(claim, now)
    ]
    return [due for due in dues if due > at_seconds]


def is_person(manager: str) -> bool:
    """True for a field manager by which people write."""
    name = manager.lower()
    return any(name == tool or name.startswith((f"{tool}-", f"{tool}/")) for tool in PERSONS_TOOLS)


# --------------------------------------------------------------------------- steps


def _fresh(want: Wanted, now: Now, entropy: float) -> TaintClaim:
    taint = want.taint
    return TaintClaim(
        key=taint.key, effect=taint.effect, value=taint.value, since=rfc3339(now.at.wall_seconds),
        begun=now.at, wait_seconds=entropy * SPLAY_SECONDS if want.is_common else 0.0)


def is_waiting(claim: TaintClaim, now: Now) -> bool:
    """True while the first write of a fault that may strike many nodes is spread."""
    return not claim.written and claim.begun is not None and now.age_seconds(claim.begun) < claim.wait_seconds


def rfc3339(wall_seconds: float) -> str:
    """`2026-11-30T03:12:40Z`."""
    return datetime.fromtimestamp(int(max(0.0, wall_seconds)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _overrides(memory: ClusterMemory, wanted: Mapping[str, Wanted], now: Now) -> ClusterMemory:
    """Overrides that still hold: the same boot, and no fault that is new."""
    kept = {}
    for name, override in memory.overrides.items():
        want = wanted.get(name)
        if want is None or override.since.boot_id != now.at.boot_id:
            continue
        faults = want.faults if override.faults is None else override.faults
        if now.age_seconds(override.since) > OBEYED_SECONDS or set(want.faults) - set(faults):
            continue
        kept[name] = msgspec.structs.replace(override, faults=tuple(sorted(set(faults) & set(want.faults))))
    ended = memory.overrides.keys() - kept.keys()
    put_backs = {name: at for name, at in memory.put_backs.items() if name not in ended}
    return _with(memory, overrides=kept, put_backs=put_backs)


def _lost(
    memory: ClusterMemory, name: str, want: Wanted, node: NodeObject, now: Now, *, read_at_seconds: float,
    entropy: float, is_listed: bool,
) -> tuple[ClusterMemory, Change | None, bool]:
    """A taint that was there is gone: obey a person, put it back once, or give way."""
    claim = memory.claims[name]
    put_back = memory.put_backs.get(name)
    person = is_person(node.taints_manager)
    again = not person and put_back is not None and now.age_seconds(put_back) < CONTESTED_SECONDS
    loss = memory.losses.get(name)
    waited_seconds = now.age_seconds(loss.since) if loss is not None else 0.0
    is_over = loss is not None and waited_seconds >= loss.wait_seconds
    is_confirmed = loss is not None and is_over and (
        now.at.monotonic_seconds - read_at_seconds <= waited_seconds - loss.wait_seconds)
    # A view from before our own write lacks the taint, too, but then it lacks the ledger's entry.
    if (again or person) and (is_listed or is_confirmed):
        by = "contested" if again else node.taints_manager
        override = TaintOverride(by=by, contested=again, since=now.at, faults=want.faults)
        memory = _with(
            memory, overrides={**memory.overrides, name: override},
            claims={key: kept for key, kept in memory.claims.items() if key != name},
            losses={key: kept for key, kept in memory.losses.items() if key != name},
        )
        return memory, Change("contested" if again else "withheld", claim, node.taints_manager), False
    if loss is None:
        spread_seconds = CONFIRM_LONGEST_SECONDS - CONFIRM_SHORTEST_SECONDS
        wait_seconds = CONFIRM_SHORTEST_SECONDS + entropy * spread_seconds
        loss = TaintLoss(since=now.at, wait_seconds=wait_seconds)
        return _with(memory, losses={**memory.losses, name: loss}), None, False
    if not is_confirmed:
        return memory, None, is_over
    memory = _with(
        memory, put_backs={**memory.put_backs, name: now.at},
        losses={key: kept for key, kept in memory.losses.items() if key != name},
    )
    return _claimed(memory, name, msgspec.structs.replace(claim, written=False)), None, False


def _unwanted(
    memory: ClusterMemory, shown: Collection[str], wanted: Mapping[str, Wanted], now: Now, *, is_judged: bool
) -> ClusterMemory:
    """Claims without a fault go; what was only found in the ledger not before its fault could show."""
    claims = {}
    for name, claim in memory.claims.items():
        if name not in wanted and not claim.written:
            continue  # it was never there, or it is somebody else's
        ripe = claim.adopted is None or (is_judged and now.age_seconds(claim.adopted) >= ADOPTED_SECONDS)
        claims[name] = (
            msgspec.structs.replace(claim, removing=True)
            if name not in wanted and (ripe or name not in shown) else claim
        )
    losses = {name: loss for name, loss in memory.losses.items() if name in wanted}
    put_backs = {n: at for n, at in memory.put_backs.items() if now.age_seconds(at) < CONTESTED_SECONDS}
    return _with(memory, claims=claims, losses=losses, put_backs=put_backs)


def _claimed(memory: ClusterMemory, name: str, claim: TaintClaim) -> ClusterMemory:
    return _with(memory, claims={**memory.claims, name: claim})


def _with(memory: ClusterMemory, **changed: object) -> ClusterMemory:
    return msgspec.structs.replace(memory, **changed)
