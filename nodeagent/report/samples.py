"""The samples of each metric, read out of one cycle's input.

One small function per metric, named by it in `SAMPLES`; none of them invents a value for what was
not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from nodeagent.model import State
from nodeagent.report.cluster_samples import CLUSTER_SAMPLES
from nodeagent.report.given import ReportInput, known_gpus, pending_seconds, read, worker_states
from nodeagent.report.net_samples import NET_SAMPLES
from nodeagent.report.schema import RAISED
from nodeagent.signals import KernelLogStatus, StateFileStatus, Unread

Samples = Iterator[tuple[tuple[str, ...], float]]
"""Label values in the order of the family's labels, and the value."""

_VERDICT_STATES = (State.OK, State.WARNING, State.CRITICAL, State.UNKNOWN)


def _build_info(given: ReportInput) -> Samples:
    yield (given.version,), 1.0


def _check_state(given: ReportInput) -> Samples:
    for row in given.check_rows:
        for state in State:
            yield (row.id, row.target, state.value), float(row.state is state)


def _fault_standing(given: ReportInput) -> Samples:
    for row in given.check_rows:
        if row.state in RAISED or row.stale_state in RAISED:
            yield (row.id, row.target, row.node_class.value), 1.0


def _check_value(given: ReportInput) -> Samples:
    for row in given.check_rows:
        if row.number is not None and row.state not in (State.UNKNOWN, State.NOT_APPLICABLE, State.MUTED):
            yield (row.id, row.target), row.number


def _verdict_state(given: ReportInput) -> Samples:
    verdict = State.UNKNOWN if given.decision is None else given.decision.verdict.state
    for state in _VERDICT_STATES:
        yield (state.value,), float(verdict is state)


def _verdict_since(given: ReportInput) -> Samples:
    if given.decision is not None:
        yield (), given.decision.verdict.since.wall_seconds


def _taint_wanted(given: ReportInput) -> Samples:
    for taint in given.decision.wanted_taints if given.decision is not None else ():
        yield (taint.key, taint.effect, taint.value), 1.0


def _taint_held(given: ReportInput) -> Samples:
    for held in given.decision.held_taints if given.decision is not None else ():
        yield (held.taint.key, held.taint.effect, held.taint.value), 1.0


def _silences(given: ReportInput) -> Samples:
    for check, count in sorted(Counter(silence.check for silence in given.memory.silences).items()):
        yield (check,), float(count)


def _gpu_info(given: ReportInput) -> Samples:
    for pci, gpu in sorted(known_gpus(given.memory).items()):
        index = "" if gpu.index is None else str(gpu.index)
        yield (pci, index, gpu.uuid or "", gpu.name or ""), 1.0


def _gpu_released(given: ReportInput) -> Samples:
    yield (), float(given.memory.release is not None)


def _xids(given: ReportInput) -> Samples:
    for key, record in sorted(given.memory.xids.items()):
        is_switch = key.partition("|")[2].startswith("sxid")
        yield (record.pci_address, f"{'sxid:' if is_switch else ''}{record.number}"), float(record.count)


def _signal_age(given: ReportInput) -> Samples:
    monotonic_seconds = given.moment.at.monotonic_seconds
    for key, reading in sorted(given.snapshot.readings.items()):
        yield (key.signal, key.target), max(0.0, monotonic_seconds - reading.read_at_seconds)


def _signal_unread(given: ReportInput) -> Samples:
    for key, reading in sorted(given.snapshot.readings.items()):
        if isinstance(reading.value, Unread):
            yield (key.signal, key.target, reading.value.kind.value), 1.0


def _worker_pending(given: ReportInput) -> Samples:
    for kind, (status, _) in worker_states(given).items():
        yield (kind,), pending_seconds(given, status)


def _worker_misses(given: ReportInput) -> Samples:
    for kind, (status, _) in worker_states(given).items():
        yield (kind,), float(status.misses)


def _worker_restarts(given: ReportInput) -> Samples:
    for kind, (status, _) in worker_states(given).items():
        yield (kind,), float(status.restarts)


def _worker_stuck(given: ReportInput) -> Samples:
    for kind, (status, _) in worker_states(given).items():
        yield (kind,), float(status.state == "stuck")


def _kernel_log(field: str) -> Callable[[ReportInput], Samples]:
    def samples(given: ReportInput) -> Samples:
        status = read(given, "kernel_log")
        if isinstance(status, KernelLogStatus):
            yield (), float(getattr(status, field))

    return samples


def _inbox_dropped(given: ReportInput) -> Samples:
    yield (), float(given.snapshot.inbox_dropped)


def _requests_refused(given: ReportInput) -> Samples:
    for reason, count in sorted(given.requests_refused.items()):
        yield (reason,), float(count)


def _last_cycle(given: ReportInput) -> Samples:
    if given.decision is not None:
        yield (), given.snapshot.now.at.wall_seconds


def _config_reload(given: ReportInput) -> Samples:
    yield (), float(not given.config_error)


def _state_file(given: ReportInput) -> Samples:
    status = read(given, "state_file")
    if isinstance(status, StateFileStatus):
        yield (), float(status.writable)


SAMPLES: Mapping[str, Callable[[ReportInput], Samples]] = {
    "nodeagent_build_info": _build_info,
    "nodeagent_check_state": _check_state,
    "nodeagent_check_fault_standing": _fault_standing,
    "nodeagent_check_value": _check_value,
    "nodeagent_verdict_state": _verdict_state,
    "nodeagent_verdict_since_timestamp_seconds": _verdict_since,
    "nodeagent_taint_wanted": _taint_wanted,
    "nodeagent_taint_held": _taint_held,
    "nodeagent_silences": _silences,
    "nodeagent_gpu_info": _gpu_info,
    "nodeagent_gpu_released": _gpu_released,
    "nodeagent_xid_total": _xids,
    "nodeagent_signal_age_seconds": _signal_age,
    "nodeagent_signal_unread": _signal_unread,
    "nodeagent_worker_pending_seconds": _worker_pending,
    "nodeagent_worker_deadline_misses": _worker_misses,
    "nodeagent_worker_restarts_total": _worker_restarts,
    "nodeagent_worker_stuck": _worker_stuck,
    "nodeagent_kernel_log_records_total": _kernel_log("records"),
    "nodeagent_kernel_log_lost_total": _kernel_log("lost_records"),
    "nodeagent_kernel_log_refused_total": _kernel_log("refused_records"),
    "nodeagent_inbox_dropped_total": _inbox_dropped,
    "nodeagent_requests_refused_total": _requests_refused,
    "nodeagent_last_cycle_timestamp_seconds": _last_cycle,
    "nodeagent_config_reload_success": _config_reload,
    "nodeagent_state_file_writable": _state_file,
    **NET_SAMPLES,
    **CLUSTER_SAMPLES,
}
"""Metric name -> its samples."""
