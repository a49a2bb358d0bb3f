"""One cycle of writes to the own Node: take in what it shows and what became of the last ops, settle what is
wanted, plan what is missing.

Memory holds each intent before its plan runs, so a kill between any two steps changes nothing of the end.
While writes are held everything is worked out alike and thrown away: what would be written is shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from nodeagent.cluster import NO_SERVER, NodeObject, NodeWrites
from nodeagent.cluster_memory import ClusterMemory, NodeRelease, Pause, Retry
from nodeagent.decide import ledger, node_ops, node_taints, node_words
from nodeagent.decide.node_taints import Change, Wanted
from nodeagent.errors import ErrorKind
from nodeagent.memory import Hold, Memory
from nodeagent.model import NODE, Notice, Now, Op, Plan, State, Taint
from nodeagent.signals import NodeCommand, Outcome, SignalKey, Snapshot

FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS = 1.0, 300.0
"""Longest wait after the first failure of an op and after many, doubled between; with full jitter."""
STALE_WAIT_SECONDS = 0.05
STALE_TRIES = 5
"""As often is read and tried again at once when others write at the same time."""
KINDS = ("node.read", "node.taints", "node.conditions", "event.create", "event.fold")


class WriteOptions(Struct, frozen=True, kw_only=True):
    """What of the configuration and its surroundings writing depends on."""

    enabled: bool = False
    """There is an API server to write to."""
    held: str = ""
    """Why nothing may be written: a dry run, the kill switch."""


class Written(NamedTuple):
    """What a cycle has to say."""

    memory: Memory
    plan: Plan | None
    writes: NodeWrites
    notices: tuple[Notice, ...]
    next_due_seconds: float | None


def step(
    options: WriteOptions, snapshot: Snapshot, memory: Memory, wanted: Mapping[str, Wanted], verdict: State,
    *, prefix: str,
) -> Written:
    """Memory after this snapshot, and the plan when the Node is not as wanted. `verdict`: the node's."""
    now = snapshot.now
    cluster, notices = _commands(memory.cluster, snapshot)
    held = options.held or paused(cluster, now)
    cluster, confirmed = _outcomes(cluster, snapshot)
    reading = snapshot.readings.get(SignalKey("cluster.node", NODE))
    if not options.enabled or reading is None or not isinstance(reading.value, NodeObject):
        writes = NodeWrites(held=held or ("" if options.enabled else NO_SERVER))
        return Written(_with(memory, cluster), None, writes, notices, _due(cluster, now, ()))
    node = reading.value
    cluster, observed = node_taints.observe(cluster, node, prefix, now)
    seen = (*confirmed, *observed)
    given = _Given(cluster, node, reading.read_at_seconds, snapshot, verdict, prefix)
    after, decided, ops = _settled(given, memory.holds, wanted, seen)
    due_ops, waiting = _tried_now(after, ops, now)
    writes = NodeWrites(held=held, pending=tuple(node_ops.line(op) for op in ops), waiting=waiting)
    if held:
        cluster = node_words.events(cluster, node, seen, now)
        told = (*notices, *_change_notices(seen))
        return Written(_with(memory, cluster), None, writes, told, _due(cluster, now, ()))
    plan = Plan(executor=node_ops.EXECUTOR, ops=due_ops) if due_ops else None
    asked = {**after.asked, **{op.kind: node_ops.digest(op) for op in due_ops}}
    after = msgspec.structs.replace(after, asked=asked)
    told = (*notices, *_change_notices((*seen, *decided)))
    return Written(_with(memory, after), plan, writes, told, _due(after, now, ops))


def _with(memory: Memory, cluster: ClusterMemory) -> Memory:
    return msgspec.structs.replace(memory, cluster=cluster)


class _Given(NamedTuple):
    cluster: ClusterMemory
    node: NodeObject
    read_at_seconds: float
    snapshot: Snapshot
    verdict: State
    prefix: str


def _settled(
    given: _Given, standing: Mapping[str, Hold], wanted: Mapping[str, Wanted], seen: tuple[Change, ...]
) -> tuple[ClusterMemory, tuple[Change, ...], tuple[Op, ...]]:
    """Memory with all intents, what was decided on the way, and every op that is missing."""
    node, now = given.node, given.snapshot.now
    is_released = given.cluster.release is not None
    is_judged = given.verdict is not State.UNKNOWN
    settled = node_taints.settle(
        given.cluster, node, {} if is_released else wanted, now, read_at_seconds=given.read_at_seconds,
        entropy=given.snapshot.entropy, is_judged=is_judged or is_released,
        listed={ledger.taint_id(e.key, e.effect) for e in ledger.read(node, given.prefix).taints},
    )
    memory = settled.memory
    if is_released:
        gone = {n: msgspec.structs.replace(c, removing=True) for n, c in memory.claims.items()}
        memory = msgspec.structs.replace(memory, claims=gone)
    memory = node_words.conditions(memory, node, standing, now, is_judged=is_judged)
    memory = node_words.events(memory, node, (*seen, *settled.changes), now)
    if memory.reread or settled.read_due:
        return memory, settled.changes, (node_ops.read(node),)
    is_waiting = any(node_taints.is_waiting(claim, now) for claim in memory.claims.values())
    made = (
        node_ops.taints(memory, node, given.prefix, now),
        None if is_waiting else node_ops.conditions(memory, node, now),
        node_ops.event(memory, node, now),
    )
    return memory, settled.changes, tuple(op for op in made if op is not None)


def by_identity(
    taints: tuple[Taint, ...], faults: Mapping[str, tuple[str, ...]], common: Collection[str] = ()
) -> dict[str, Wanted]:
    """Wanted taints by their identity. `faults`: taint key -> "check|target" of all that ask for it;
    `common`: checks whose faults may strike many nodes at once."""
    found = {}
    for taint in taints:
        names = faults.get(taint.key, ())
        is_common = bool(names) and all(name.partition("|")[0] in common for name in names)
        found[ledger.taint_id(taint.key, taint.effect)] = Wanted(taint, names, is_common)
    return found


# --------------------------------------------------------------------------- commands


def _commands(memory: ClusterMemory, snapshot: Snapshot) -> tuple[ClusterMemory, tuple[Notice, ...]]:
    notices: list[Notice] = []
    now = snapshot.now
    for event in snapshot.events:
        if not isinstance(event, NodeCommand):
            continue
        fields = {"reason": event.reason, "user_id": event.user_id, "duration_seconds": event.for_seconds}
        if event.verb == "pause":
            pause = Pause(
                since=now.at, for_seconds=event.for_seconds, reason=event.reason, user_id=event.user_id)
            memory = msgspec.structs.replace(memory, pause=pause)
            notices.append(Notice(event="writes_paused", fields=fields))
        elif event.verb == "unpause" and memory.pause is not None:
            memory = msgspec.structs.replace(memory, pause=None)
            notices.append(_resumed("asked by an operator", event.user_id))
        elif event.verb == "release":
            release = NodeRelease(since=now.at, user_id=event.user_id)
            memory = msgspec.structs.replace(memory, release=release)
            notices.append(Notice(event="node_released", fields=fields))
        elif event.verb == "resume":
            memory = msgspec.structs.replace(memory, release=None)
    if memory.pause is not None and now.age_seconds(memory.pause.since) >= memory.pause.for_seconds:
        memory = msgspec.structs.replace(memory, pause=None)
        notices.append(_resumed("the pause has ended", None))
    return memory, tuple(notices)


def _resumed(reason: str, user_id: int | None) -> Notice:
    return Notice(event="writes_resumed", fields={"reason": reason, "user_id": user_id})


def paused(memory: ClusterMemory, now: Now) -> str:
    """Who paused writes, for how long still and why; "" while nobody did."""
    pause = memory.pause
    if pause is None:
        return ""
    left_seconds = pause.for_seconds - now.age_seconds(pause.since)
    if left_seconds <= 0:
        return ""
    by = f"uid {pause.user_id}" if pause.user_id is not None else "an operator"
    return f"paused by {by} for another {left_seconds / 60:.0f} min: {pause.reason}"


def _change_notices(changes: tuple[Change, ...]) -> list[Notice]:
    return [
        Notice(event=f"taint_{change.kind}", fields={
            "key": change.claim.key, "value": change.claim.value, "effect": change.claim.effect,
            "by": change.by or "an unnamed writer",
        })
        for change in changes
    ]


# --------------------------------------------------------------------------- outcomes


def _outcomes(memory: ClusterMemory, snapshot: Snapshot) -> tuple[ClusterMemory, tuple[Change, ...]]:
    """Memory after what became of ops, and the taints that a write is known to have set."""
    changes: tuple[Change, ...] = ()
    for event in snapshot.events:
        if not isinstance(event, Outcome) or event.op not in KINDS:
            continue
        if event.ok and event.op == "node.taints":
            memory, set_now = node_taints.confirmed(memory, event.detail.split())
            changes += set_now
        if event.ok:
            memory = _succeeded(memory, event, snapshot.now)
        elif event.op.startswith("event.") and event.error_kind in (ErrorKind.INVALID, ErrorKind.DENIED):
            memory = _told(memory, event.target)  # an event is not worth more
        else:
            memory = _failed(memory, event, snapshot)
    return memory, changes


def _succeeded(memory: ClusterMemory, event: Outcome, now: Now) -> ClusterMemory:
    retries = {kind: retry for kind, retry in memory.retries.items() if kind != event.op}
    memory = msgspec.structs.replace(memory, retries=retries)
    if event.op == "node.read":
        return msgspec.structs.replace(memory, reread=False)
    if event.op == "node.conditions":
        sent = {
            kind: msgspec.structs.replace(claim, asked=now.at) for kind, claim in memory.conditions.items()
        }
        return msgspec.structs.replace(memory, conditions=sent)
    return _told(memory, event.target) if event.op.startswith("event.") else memory


def _told(memory: ClusterMemory, name: str) -> ClusterMemory:
    events = tuple(
        msgspec.structs.replace(r, told_count=r.count) if r.name == name else r for r in memory.events
    )
    return msgspec.structs.replace(memory, events=events)


def _failed(memory: ClusterMemory, event: Outcome, snapshot: Snapshot) -> ClusterMemory:
    before = memory.retries.get(event.op)
    failures_count = 1 + (before.failures_count if before is not None else 0)
    is_quick = event.is_stale and failures_count <= STALE_TRIES
    first_seconds = STALE_WAIT_SECONDS if is_quick else FIRST_WAIT_SECONDS
    cap_seconds = min(LAST_WAIT_SECONDS, first_seconds * 2.0 ** min(failures_count - 1, 20))
    retry = Retry(
        failures_count=failures_count, since=snapshot.now.at, reason=event.detail[:300],
        wait_seconds=snapshot.entropy * cap_seconds + event.retry_after_seconds,
        refused=memory.asked.get(event.op, "") if event.error_kind is ErrorKind.INVALID else "",
    )
    return msgspec.structs.replace(
        memory, retries={**memory.retries, event.op: retry},
        reread=memory.reread or (event.is_stale and event.op == "node.taints"),
    )


def _tried_now(memory: ClusterMemory, ops: tuple[Op, ...], now: Now) -> tuple[tuple[Op, ...], str]:
    """The ops that are not waiting, and why the others are."""
    tried, waiting = [], ""
    for op in ops:
        retry = memory.retries.get(op.kind)
        left_seconds = 0.0 if retry is None else retry.wait_seconds - now.age_seconds(retry.since)
        if retry is not None and retry.refused == node_ops.digest(op):
            waiting = waiting or f"{op.kind} is invalid to the API server, not sent again: {retry.reason}"
        elif retry is not None and left_seconds > 0:
            waiting = waiting or f"{op.kind} again in {left_seconds:.0f} s: {retry.reason}"
        else:
            tried.append(op)
    return tuple(tried), waiting


def _due(memory: ClusterMemory, now: Now, ops: tuple[Op, ...]) -> float | None:
    """CLOCK_MONOTONIC of the next thing to happen by time alone."""
    at_seconds = now.at.monotonic_seconds
    dues = node_taints.next_due_seconds(memory, now)
    for op in ops:
        if op.kind in memory.retries:
            retry = memory.retries[op.kind]
            dues.append(at_seconds + retry.wait_seconds - now.age_seconds(retry.since))
    if memory.pause is not None:
        dues.append(at_seconds + memory.pause.for_seconds - now.age_seconds(memory.pause.since))
    return min((due for due in dues if due > at_seconds), default=None)
