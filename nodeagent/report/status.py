"""Makes the reports that people and scripts read, out of what one cycle read and decided.

Pure: nothing here reads a clock, a file or a socket, and nothing is judged anew. What decide does
not know stays unknown here; no field is filled with a plausible zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from nodeagent.decide.xid_table import NUMBER_CHECKS
from nodeagent.memory import XidRecord
from nodeagent.model import NODE, CheckRow, Incident, Instant, NodeClass, Now, State, Transition
from nodeagent.report.cluster_status import api_report, taints_held
from nodeagent.report.given import ReportInput, pending_seconds, read, rfc3339, target_label, worker_states
from nodeagent.report.gpus import gpu_status
from nodeagent.report.net_status import network_status
from nodeagent.report.schema import (
    RAISED,
    SEVERITY,
    CheckReport,
    CheckStatus,
    ConfigSummary,
    CycleStatus,
    HistoryReport,
    IncidentStatus,
    KernelLogSummary,
    PendingCall,
    StateFileSummary,
    StatusReport,
    TaintRow,
    TaintStatus,
    TransitionStatus,
    UnreadValue,
    VerdictStatus,
    WorkerSummary,
    XidStatus,
    exit_code_of,
    in_force,
    worst,
)
from nodeagent.report.silences import build_silences, held_taints
from nodeagent.signals import (
    KernelLogStatus,
    SignalKey,
    StateFileStatus,
    Unread,
)

NEXT_COMMANDS = 3
_UNREAD_PREFIX = "not read: "


# --------------------------------------------------------------------------- the three reports


def build_status(given: ReportInput) -> StatusReport:
    """The whole node. Times RFC 3339 UTC, ages in seconds up to `given.moment`."""
    moment = given.moment
    rows = _check_rows(given)
    verdict = _verdict(given)
    incidents = [_incident(item, given) for item in _incidents(given)]
    return StatusReport(
        node=given.snapshot.node_name,
        version=given.version,
        generated_at=rfc3339(moment.at.wall_seconds),
        phase=_phase(given),
        verdict=verdict,
        exit_code=exit_code_of(verdict.state),
        cycle=CycleStatus(number=given.cycle_number, age_seconds=moment.age_seconds(given.snapshot.now.at)),
        gpus=gpu_status(given, rows),
        rows=rows,
        counts=_counts(rows),
        incidents=incidents,
        taint=_taint(given),
        silences=build_silences(given).silences,
        xids=_xids(given),
        workers=_workers(given),
        pending_calls=_pending_calls(given),
        kernel_log=_kernel_log(given),
        state_file=_state_file(given),
        network=network_status(given),
        api=api_report(given),
        config=ConfigSummary(files=list(given.config_files), reload_error=given.config_error),
        inbox_dropped=given.snapshot.inbox_dropped,
        dry_run=given.settings.node.dry_run,
        next=_next(given, rows, incidents),
    )


def build_check(
    given: ReportInput, ids: Collection[str] = (), *, duration_seconds: float = 0.0
) -> CheckReport:
    """The rows of some checks, of all when `ids` is empty. An id that no row has selects nothing."""
    rows = [row for row in _check_rows(given) if not ids or row.id in ids]
    state = worst(rows) if rows else State.UNKNOWN
    return CheckReport(
        node=given.snapshot.node_name,
        version=given.version,
        generated_at=rfc3339(given.moment.at.wall_seconds),
        checks=rows,
        counts=_counts(rows),
        exit_code=exit_code_of(state),
        duration_seconds=duration_seconds,
    )


def build_history(given: ReportInput, *, since_seconds: float | None = None) -> HistoryReport:
    """The transitions of the last `since_seconds`, of all that is remembered when None."""
    moment = given.moment
    return HistoryReport(
        node=given.snapshot.node_name,
        version=given.version,
        generated_at=rfc3339(moment.at.wall_seconds),
        since_seconds=since_seconds,
        transitions=[
            _transition(item, given)
            for item in given.memory.history
            if since_seconds is None or moment.age_seconds(item.at) <= since_seconds
        ],
    )


# --------------------------------------------------------------------------- rows


def _check_rows(given: ReportInput) -> list[CheckStatus]:
    rows = [_check_row(row, given) for row in given.check_rows]
    return sorted(rows, key=_row_order)


def _row_order(row: CheckStatus) -> tuple[int, str, int, str]:
    index = -1 if row.gpu_index is None else row.gpu_index
    return (SEVERITY.index(in_force(row)), row.id, index, row.target)


def _check_row(row: CheckRow, given: ReportInput) -> CheckStatus:
    moment = given.moment
    gpu = given.memory.gpus.get(row.target)
    read_age = None
    if row.read_at_seconds is not None:
        read_age = max(0.0, moment.at.monotonic_seconds - row.read_at_seconds)
    return CheckStatus(
        id=row.id,
        target=row.target,
        target_label=target_label(row.target, given.memory),
        gpu_index=gpu.index if gpu else None,
        gpu_uuid=gpu.uuid if gpu else None,
        state=row.state,
        value=_value_shown(row),
        limit=row.limit or None,
        number=row.number,
        sentence=row.sentence,
        node_class=row.node_class,
        cause=row.cause,
        held=row.held,
        since=_maybe_rfc3339(row.since),
        age_seconds=_maybe_age(moment, row.since),
        read_age_seconds=read_age,
        stale_state=row.stale_state,
        source=row.source,
        runbook=_explain(row.id, row.cause),
        silence=row.silence,
    )


def _value_shown(row: CheckRow) -> str | UnreadValue | None:
    if row.state is State.UNKNOWN:
        return UnreadValue(unread=row.sentence.removeprefix(_UNREAD_PREFIX) or "not read")
    return row.value or None


def _explain(check_id: str, cause: str) -> str:
    kind, _, number = cause.partition(" ")
    what = f"{kind}.{number}" if check_id in NUMBER_CHECKS and number.isdigit() else check_id
    return f"nodeagent explain {what}"


def _counts(rows: Iterable[CheckStatus]) -> dict[str, int]:
    counted = Counter(in_force(row) for row in rows)
    return {state.value: counted[state] for state in SEVERITY if counted[state]}


def _maybe_rfc3339(instant: Instant | None) -> str | None:
    return None if instant is None else rfc3339(instant.wall_seconds)


def _maybe_age(moment: Now, instant: Instant | None) -> float | None:
    return None if instant is None else moment.age_seconds(instant)


# --------------------------------------------------------------------------- parts of the status


def _phase(given: ReportInput) -> str:
    return "running" if given.ready and given.decision is not None else "starting"


def _verdict(given: ReportInput) -> VerdictStatus:
    if given.decision is None:
        return VerdictStatus(state=State.UNKNOWN, since=None, age_seconds=None, node_class=NodeClass.IGNORE)
    verdict = given.decision.verdict
    return VerdictStatus(
        state=verdict.state,
        since=rfc3339(verdict.since.wall_seconds),
        age_seconds=given.moment.age_seconds(verdict.since),
        node_class=verdict.node_class,
    )


def _incidents(given: ReportInput) -> tuple[Incident, ...]:
    return given.decision.incidents if given.decision is not None else given.memory.incidents


def _incident(item: Incident, given: ReportInput) -> IncidentStatus:
    return IncidentStatus(
        id=item.id,
        target=item.target,
        target_label=target_label(item.target, given.memory),
        root=item.root,
        opened=rfc3339(item.opened.wall_seconds),
        age_seconds=given.moment.age_seconds(item.opened),
        members=list(item.members),
    )


def _taint(given: ReportInput) -> TaintStatus:
    wanted = given.decision.wanted_taints if given.decision is not None else ()
    return TaintStatus(
        wanted=[TaintRow(key=taint.key, value=taint.value, effect=taint.effect) for taint in wanted],
        would=bool(taints_held(given)),
        held=taints_held(given),
        dry_run=given.settings.node.dry_run,
        silenced=held_taints(given),
    )


def _xids(given: ReportInput) -> list[XidStatus]:
    found = [_xid(key, record, given) for key, record in given.memory.xids.items()]
    return sorted(found, key=lambda x: (x.cleared is not None, x.age_seconds, x.target, x.number))


def _xid(key: str, record: XidRecord, given: ReportInput) -> XidStatus:
    return XidStatus(
        kind="sxid" if key.partition("|")[2].startswith("sxid") else "xid",
        target=record.pci_address,
        target_label=target_label(record.pci_address, given.memory),
        number=record.number,
        node_class=record.node_class,
        count=record.count,
        first=rfc3339(record.first.wall_seconds),
        last=rfc3339(record.last.wall_seconds),
        age_seconds=given.moment.age_seconds(record.last),
        cleared=_maybe_rfc3339(record.cleared),
        cleared_by=record.cleared_by,
        caused_by=record.caused_by,
        injected=record.injected,
        text=record.text,
        detail=record.detail,
    )


def _workers(given: ReportInput) -> list[WorkerSummary]:
    return [
        WorkerSummary(
            kind=kind,
            state=status.state,
            pid=status.pid,
            misses=status.misses,
            restarts=status.restarts,
            error_cause=status.error_cause,
            error_detail=status.error_detail,
            age_seconds=age_seconds,
        )
        for kind, (status, age_seconds) in worker_states(given).items()
    ]


def _pending_calls(given: ReportInput) -> list[PendingCall]:
    """Calls in flight at the cycle: how long until then, as nothing later is known of them."""
    return [
        PendingCall(
            worker=kind,
            call=status.pending_call,
            state=status.state,
            misses=status.misses,
            for_seconds=pending_seconds(given, status),
        )
        for kind, (status, _) in worker_states(given).items()
        if status.pending_call is not None and status.pending_since_seconds is not None
    ]


def _kernel_log(given: ReportInput) -> KernelLogSummary | None:
    reading = given.snapshot.readings.get(SignalKey("kernel_log", NODE))
    if reading is None:
        return None
    status = reading.value
    if not isinstance(status, KernelLogStatus):
        return KernelLogSummary(unread=_reason(status))
    return KernelLogSummary(
        records=status.records,
        lost_records=status.lost_records,
        refused_records=status.refused_records,
        reopened=status.reopened,
        backfilled=status.backfilled,
        age_seconds=max(0.0, given.moment.at.monotonic_seconds - reading.read_at_seconds),
    )


def _state_file(given: ReportInput) -> StateFileSummary | None:
    value = read(given, "state_file")
    if value is None:
        return None
    if not isinstance(value, StateFileStatus):
        return StateFileSummary(unread=_reason(value))
    return StateFileSummary(writable=value.writable, detail=value.detail, set_aside=value.set_aside)


def _reason(value: Any) -> str:
    return value.reason if isinstance(value, Unread) else "not understood"


_ROOT_CHECKS = {"xid": "xid", "sxid": "nvswitch.sxid"}
"""First word of an incident's root -> its check, where the two differ."""


def _next(given: ReportInput, rows: list[CheckStatus], incidents: list[IncidentStatus]) -> list[str]:
    """The commands a person would type next, most useful first, at most three."""
    trouble = [row for row in rows if in_force(row) in (*RAISED, State.UNKNOWN)]
    worst = {row.target: place for place, row in reversed(list(enumerate(trouble)))}
    urgent_first = sorted(incidents, key=lambda item: worst.get(item.target, len(trouble)))
    roots = [(item.root.partition(" ")[0], item.root) for item in urgent_first]
    commands = [_explain(_ROOT_CHECKS.get(word, root), root) for word, root in roots]
    commands += [row.runbook for row in trouble if in_force(row) in RAISED]
    if given.memory.release is not None and given.memory.release.by_operator:
        commands.append("nodeagent gpu resume")
    if given.config_error:
        commands.append("nodeagent config check")
    if _phase(given) == "starting":
        commands.append("nodeagent status")
    elif not commands:
        commands += [row.runbook for row in trouble]
    if any(in_force(row) in RAISED for row in trouble):
        commands = [*list(dict.fromkeys(commands))[: NEXT_COMMANDS - 1], "nodeagent history"]
    return list(dict.fromkeys(commands))[:NEXT_COMMANDS]


def _transition(item: Transition, given: ReportInput) -> TransitionStatus:
    moment = given.moment
    return TransitionStatus(
        at=rfc3339(item.at.wall_seconds),
        age_seconds=moment.age_seconds(item.at),
        this_boot=item.at.boot_id == moment.at.boot_id,
        check=item.check,
        target=item.target,
        target_label=target_label(item.target, given.memory),
        previous=item.previous,
        state=item.state,
        sentence=item.sentence,
        event=item.event,
    )
