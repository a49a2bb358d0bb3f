"""The whole judgement of one cycle: Settings, Snapshot and Memory in; Decision, Memory, Plans out.

Pure: the same three inputs give the same three outputs, and no input is changed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from nodeagent.decide import (
    counters,
    fault_counts,
    gpus,
    incidents,
    mounts,
    network,
    node_write,
    own_links,
    release,
    silences,
    taints,
    verdict,
    xid,
    xid_clear,
)
from nodeagent.decide.check import Check, CheckInput, not_applicable, run_check
from nodeagent.decide.marks import MarkOptions
from nodeagent.decide.node_write import WriteOptions
from nodeagent.decide.registry import registry
from nodeagent.decide.rules import effective_limits, effective_rule
from nodeagent.decide.xid_table import NUMBER_CHECKS, XidTable
from nodeagent.errors import ErrorKind
from nodeagent.memory import Hold, Memory, VerdictMemory
from nodeagent.model import (
    NODE,
    CheckRow,
    Decision,
    Finding,
    Notice,
    Plan,
    State,
    Taint,
    Transition,
    Verdict,
)
from nodeagent.settings import Settings
from nodeagent.signals import (
    ConfigReloaded,
    KernelDriver,
    KernelLogGap,
    Outcome,
    PciGpus,
    Reading,
    SignalKey,
    Snapshot,
    Unread,
    WorkerStatus,
)

READ_THROUGH_RELEASE = NUMBER_CHECKS
"""Checks of GPU families that read something besides NVML, and so go on while it is released."""


def decide(
    settings: Settings,
    snapshot: Snapshot,
    memory: Memory,
    table: XidTable,
    *,
    checks: Mapping[str, Check] | None = None,
    marking: MarkOptions | None = None,
    writing: WriteOptions | None = None,
) -> tuple[Decision, Memory, tuple[Plan, ...]]:
    """Judge one snapshot. `marking`: how pods' packets are marked, None = not at all; `writing`: whether and
    why not the Node object is written, None = not at all."""
    checks, now = registry() if checks is None else checks, snapshot.now
    memory = _remembered(memory, snapshot)
    memory, marks_plans, refused = _mark(marking, snapshot, memory)
    memory, notices = _fold_xids(settings, snapshot, memory, table, checks)
    families = {check.id: check.family for check in checks.values()}
    memory, told = release.step(memory, snapshot, settings)
    memory, rows, transitions = _judge(settings, snapshot, memory, checks)
    memory, rows, silenced = silences.step(memory, rows, snapshot)
    memory, released = release.by_itself(memory, snapshot, settings, families)
    known, prefix = memory.verdict, settings.cluster.taint_prefix
    word, memory = verdict.node_verdict(memory, rows, now)
    memory = incidents.update(memory, checks, functools.partial(xid.linked_numbers, table), now)
    wanted = taints.wanted_taints(memory, checks, prefix)
    written = _write(writing, snapshot, memory, wanted, (word.state, checks, settings))
    memory = written.memory
    decision = Decision(
        verdict=word,
        rows=rows,
        incidents=memory.incidents,
        wanted_taints=wanted,
        held_taints=taints.held_taints(memory, checks, prefix),
        node_writes=written.writes,
        notices=(
            *notices, *told, *silenced, *released, *refused, *written.notices,
            *_event_notices(snapshot),
            *(_transition_notice(t, rows) for t in transitions),
            *_verdict_notices(known, word, memory),
        ),
        next_due_seconds=_earliest(
            release.next_due_seconds(memory), xid.due_seconds(memory, table),
            network.next_due_seconds(memory, now.at.monotonic_seconds), written.next_due_seconds,
            silences.next_due_seconds(memory.silences, now),
        ),
        released=memory.release is not None,
    )
    node_plans = () if written.plan is None else (written.plan,)
    return decision, memory, (*release.plan(memory, snapshot), *marks_plans, *node_plans)


def _remembered(memory: Memory, snapshot: Snapshot) -> Memory:
    """Memory of this boot with what was read or reported since."""
    memory = gpus.remember(gpus.begin_boot(memory, snapshot.now, snapshot.node_name), snapshot)
    memory = own_links.remember(counters.remember(memory, snapshot), snapshot)
    return mounts.remember(fault_counts.remember(memory, snapshot), snapshot)


def _mark(
    marking: MarkOptions | None, snapshot: Snapshot, memory: Memory
) -> tuple[Memory, tuple[Plan, ...], tuple[Notice, ...]]:
    """One cycle of pod traffic, where it is marked at all."""
    if marking is None:
        return memory, (), ()
    after, plan = network.step(marking, snapshot, memory)
    return after, () if plan is None else (plan,), network.notices(memory, after)


def _write(
    writing: WriteOptions | None, snapshot: Snapshot, memory: Memory, wanted: tuple[Taint, ...],
    by: tuple[State, Mapping[str, Check], Settings],
) -> node_write.Written:
    """One cycle of writes to the own Node. `by`: the verdict and what it was judged by."""
    verdict_state, checks, settings = by
    prefix = settings.cluster.taint_prefix
    common = {check.id for check in checks.values() if check.common_cause}
    by_identity = node_write.by_identity(wanted, taints.faults_by_key(memory, checks, prefix), common)
    options = writing or WriteOptions()
    return node_write.step(options, snapshot, memory, by_identity, verdict_state, prefix=prefix)


def _fold_xids(
    settings: Settings, snapshot: Snapshot, memory: Memory, table: XidTable,
    checks: Mapping[str, Check],
) -> tuple[Memory, tuple[Notice, ...]]:
    """Take in what was reported, then let go of what is proven gone."""
    now, overrides = snapshot.now, settings.gpu.xid
    memory, seen = xid.fold(memory, snapshot.events, now, table, overrides)
    memory = xid.read_to(memory, now, snapshot.readings)
    limits = {name: effective_limits(checks[name], settings) for name in NUMBER_CHECKS & checks.keys()}
    memory = xid_clear.clear(
        memory, now, table, overrides, limits=limits, readings=snapshot.readings
    )
    return memory, seen


def _judge(
    settings: Settings, snapshot: Snapshot, memory: Memory, checks: Mapping[str, Check]
) -> tuple[Memory, tuple[CheckRow, ...], tuple[Transition, ...]]:
    """Run every enabled check, parents before children, and move its holds."""
    rows: list[CheckRow] = []
    transitions: list[Transition] = []
    after = msgspec.structs.replace(memory, holds={}, unknown={}, last_poll_seconds={})
    is_gpu_node = gpu_wanted(settings, snapshot.readings, remembered=bool(memory.gpus))
    for check in _parents_first(checks):
        unwanted = check.family in taints.HARDWARE_FAMILIES and settings.gpu.enabled == "false"
        if unwanted or not settings.check(check.id).enabled:
            transitions.extend(verdict.let_go(check.id, memory, snapshot.now))
        if not settings.check(check.id).enabled:
            continue
        given = CheckInput(
            snapshot=snapshot, memory=memory, limits=effective_limits(check, settings),
            gpu_wanted=is_gpu_node, gpu_expected_count=settings.gpu.expected_count,
        )
        judged = verdict.judge_check(
            check, effective_rule(check, settings), _findings(check, given, memory),
            msgspec.structs.replace(memory, holds={}) if unwanted else memory,
            now=snapshot.now, muted=_muted(check, rows, after.holds),
        )
        rows.extend(judged.rows)
        transitions.extend(judged.transitions)
        after = msgspec.structs.replace(
            after,
            holds={**after.holds, **judged.holds},
            unknown={**after.unknown, **judged.unknown},
            last_poll_seconds={**after.last_poll_seconds, **judged.polls},
        )
    history = (*memory.history, *transitions)[-verdict.MAX_HISTORY :]
    return msgspec.structs.replace(after, history=history), tuple(rows), tuple(transitions)


def _findings(check: Check, given: CheckInput, memory: Memory) -> list[Finding]:
    reading_nvml = check.family in taints.HARDWARE_FAMILIES and check.id not in READ_THROUGH_RELEASE
    if memory.release is not None and reading_nvml and given.gpu_wanted:
        sentence = f"NVML is released: {memory.release.reason}"
        held = {key.partition("|")[2] for key in memory.holds if key.startswith(f"{check.id}|")}
        return [
            not_applicable(target, sentence)
            for target in sorted(held | {NODE})
        ]
    return run_check(check, given)


def gpu_wanted(
    settings: Settings, readings: Mapping[SignalKey, Reading], *, remembered: bool = False
) -> bool:
    """True when GPU checks apply here.

    While the bus cannot be read it stays as it was: an NVML worker that is wanted goes on, and GPUs
    that Memory knows (`remembered`) are judged.
    """
    shown = gpus_shown(settings, readings)
    if shown is not None:
        return shown
    worker = readings.get(SignalKey("worker.nvml", NODE))
    at_work = worker is not None and isinstance(worker.value, WorkerStatus) and worker.value.state != "absent"
    return remembered or at_work


def gpus_shown(settings: Settings, readings: Mapping[SignalKey, Reading]) -> bool | None:
    """Whether order, expectation, bus or driver say that there are NVIDIA GPUs; None: nobody could tell."""
    if settings.gpu.enabled != "auto":
        return settings.gpu.enabled == "true"
    if settings.gpu.expected_count > 0:
        return True
    driver = readings.get(SignalKey("gpu.kernel_driver", NODE))
    if driver is not None and isinstance(driver.value, KernelDriver):
        return True
    bus = readings.get(SignalKey("gpu.pci", NODE))
    if bus is None:
        return None
    if isinstance(bus.value, PciGpus):
        return bool(bus.value.addresses)
    return False if isinstance(bus.value, Unread) and bus.value.kind is ErrorKind.ABSENT else None


def _parents_first(checks: Mapping[str, Check]) -> list[Check]:
    """Checks in an order that has every depends_on before its child; cycles end by name order."""
    ordered: list[Check] = []
    waiting = [checks[check_id] for check_id in sorted(checks)]
    while waiting:
        placed = {check.id for check in ordered}
        free = [c for c in waiting if all(p in placed or p not in checks for p in c.depends_on)]
        ordered.extend(free or waiting[:1])
        waiting = [check for check in waiting if check not in ordered]
    return ordered


def _muted(check: Check, rows: list[CheckRow], standing: Mapping[str, Hold]) -> frozenset[str]:
    """Targets on which a parent of this check is raised, and not good again: what it hid can be judged
    while it is still being proven. `standing`: holds of the checks before this one."""
    raised = {State.WARNING, State.CRITICAL}
    bad = [row for row in rows if row.state in raised or row.stale_state in raised]
    answering = {key for key, hold in standing.items() if hold.good_polls}
    return frozenset(
        row.target for row in bad
        if row.id in check.depends_on and verdict.key_of(row.id, row.target) not in answering
    )


def _event_notices(snapshot: Snapshot) -> list[Notice]:
    notices: list[Notice] = []
    for event in snapshot.events:
        if isinstance(event, KernelLogGap):
            notices.append(Notice(event="kmsg_gap", fields={"lost_records": event.lost_records}))
        elif isinstance(event, ConfigReloaded):
            name = "config_rejected" if event.error else "config_reloaded"
            notices.append(Notice(event=name, fields={"reason": event.error}))
        elif isinstance(event, Outcome) and not event.ok and not event.is_stale:
            fields = {"op": event.op, "target": event.target, "reason": event.detail}
            notices.append(Notice(event="op_failed", fields=fields))
    return notices


def _transition_notice(transition: Transition, rows: tuple[CheckRow, ...]) -> Notice:
    raised = transition.state in (State.WARNING, State.CRITICAL)
    name = "finding_raised" if raised else "finding_cleared"
    if transition.state is State.UNKNOWN:
        name = "signal_unread"
    row = next((r for r in rows if (r.id, r.target) == (transition.check, transition.target)), None)
    return Notice(
        event=name,
        fields={
            "check": transition.check,
            "target": transition.target,
            "state": transition.state.value,
            "previous": transition.previous.value,
            "reason": transition.sentence,
            "cause": row.cause if row is not None else "",
        },
    )


def _verdict_notices(known: VerdictMemory | None, word: Verdict, memory: Memory) -> list[Notice]:
    previous = known.state if known is not None else None
    if previous is word.state or (previous is None and word.state is not State.CRITICAL):
        return []
    roots = ", ".join(
        f"{i.root} on {i.target}" if ":" in i.target else i.root for i in memory.incidents
    )
    fields = {
        "state": word.state.value,
        "previous": previous.value if previous is not None else "not judged",
        "reason": roots or "no fault stands",
    }
    return [Notice(event="verdict_changed", fields=fields)]


def _earliest(*due_seconds: float | None) -> float | None:
    return min((due for due in due_seconds if due is not None), default=None)
