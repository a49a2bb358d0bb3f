"""The JSON that the agent answers with, as nouns: the one contract of daemon, CLI and scripts.

Names carry their units and are never renamed within v1; fields may be added. Times are RFC 3339
UTC. null means "there is none", never zero: what could not be read is `{"unread": reason}`. Read
by the command line at every start, so it imports nothing heavier than msgspec.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from nodeagent.model import NodeClass, State
from nodeagent.report.cluster_schema import ApiReport
from nodeagent.report.net_schema import NetDiffReport, NetShowReport, NetTopReport, NetworkStatus
from nodeagent.report.silence_schema import HeldTaintRow, SilencesReport, SilenceStatus

STATUS_SCHEMA = "nodeagent/status/v1"
CHECK_SCHEMA = "nodeagent/check/v1"
HISTORY_SCHEMA = "nodeagent/history/v1"

SEVERITY = (
    State.CRITICAL,
    State.WARNING,
    State.UNKNOWN,
    State.PENDING,
    State.MUTED,
    State.OK,
    State.NOT_APPLICABLE,
)
"""Every state, the one to look at first in front."""

RAISED = (State.CRITICAL, State.WARNING)


class UnreadValue(Struct, frozen=True, kw_only=True):
    """Stands where a value would, when it could not be read."""

    unread: str
    """Why."""


class CheckStatus(Struct, frozen=True, kw_only=True):
    """One check on one target."""

    id: str
    target: str
    """PCI address of a GPU or NVSwitch, mount point, or "node"."""
    target_label: str
    """For people: "GPU 3 0000:4e:00.0"."""
    gpu_index: int | None
    """NVML's index, None when the target is no GPU or its index was never read."""
    gpu_uuid: str | None
    state: State
    value: str | UnreadValue | None
    """Measured, with unit; None when there is nothing to measure."""
    limit: str | None
    number: float | None
    """The measured number, as in nodeagent_check_value."""
    sentence: str
    node_class: NodeClass = field(name="class")
    cause: str
    held: str
    """"2/3" polls while pending or clearing, else ""."""
    since: str | None
    age_seconds: float | None
    """How long this state has stood."""
    read_age_seconds: float | None
    """Age of the newest reading used, None when never read."""
    stale_state: State | None
    """For unknown, muted, not_applicable: the last known state; a raised one stays in force."""
    source: str
    runbook: str
    """The command that prints the page."""
    silence: int | None = None
    """Number of the silence that covers it."""


class VerdictStatus(Struct, frozen=True, kw_only=True):
    """The node in one word."""

    state: State
    since: str | None
    """When the node left ok, or came back to it."""
    age_seconds: float | None
    node_class: NodeClass = field(name="class")
    """Highest class among the faults that stand."""


class CycleStatus(Struct, frozen=True, kw_only=True):
    """The cycle this report was made from."""

    number: int
    age_seconds: float


class ReleaseStatus(Struct, frozen=True, kw_only=True):
    """NVML is released."""

    since: str
    age_seconds: float
    left_seconds: float | None
    """Seconds until it ends by itself, None: until `nodeagent gpu resume`."""
    reason: str
    by_operator: bool


class GpuStatus(Struct, frozen=True, kw_only=True):
    """All GPUs in a few numbers."""

    wanted: bool | None
    """False: GPU checks do not apply to this node. None: not known yet."""
    seen: int | UnreadValue | None
    """GPUs the driver enumerates now; None when not wanted."""
    expected: int | None
    """None: not configured, and none on the bus or seen since boot."""
    expected_from: str
    """config | PCI bus | first seen after boot | ""."""
    healthy: int
    """Judged, and nothing raised."""
    faulty: int
    """A warning or critical fault stands."""
    unread: int
    """Neither: nothing known for certain."""
    driver_version: str | UnreadValue | None
    released: bool
    release: ReleaseStatus | None


class IncidentStatus(Struct, frozen=True, kw_only=True):
    """Faults that share a cause."""

    id: str
    target: str
    target_label: str
    root: str
    opened: str
    age_seconds: float
    members: list[str]


class TaintRow(Struct, frozen=True, kw_only=True):
    """One taint."""

    key: str
    value: str
    effect: str


class TaintStatus(Struct, frozen=True, kw_only=True):
    """What the verdict asks of the Node object."""

    wanted: list[TaintRow]
    would: bool
    """True: nothing is written to a cluster, the list says what would be."""
    held: str = ""
    """Why nothing is written; "" when it is."""
    dry_run: bool
    silenced: list[HeldTaintRow] = []
    """What would be wanted besides, were it not for silences."""


class XidStatus(Struct, frozen=True, kw_only=True):
    """One Xid or SXid number on one device."""

    kind: str
    """xid | sxid"""
    target: str
    target_label: str
    number: int
    node_class: NodeClass = field(name="class")
    count: int
    first: str
    last: str
    age_seconds: float
    """Since the last one."""
    cleared: str | None
    cleared_by: str
    caused_by: int | None
    injected: bool
    text: str
    """The kernel's own line."""
    detail: str


class WorkerSummary(Struct, frozen=True, kw_only=True):
    """A disposable child process that reads."""

    kind: str
    """nvml | host"""
    state: str
    pid: int | None
    misses: int
    restarts: int
    error_cause: str
    error_detail: str
    age_seconds: float


class PendingCall(Struct, frozen=True, kw_only=True):
    """A call into the driver or the kernel that has not come back."""

    worker: str
    call: str
    for_seconds: float
    state: str
    misses: int


class KernelLogSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reader of the kernel log; only `unread` when it could not be opened."""

    unread: str | None = None
    records: int | None = None
    lost_records: int | None = None
    refused_records: int | None = None
    reopened: int | None = None
    backfilled: bool | None = None
    age_seconds: float | None = None


class StateFileSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the agent keeps its memory; only `unread` when its condition is unknown."""

    unread: str | None = None
    writable: bool | None = None
    detail: str | None = None
    set_aside: str | None = None


class ConfigSummary(Struct, frozen=True, kw_only=True):
    """The configuration in force."""

    files: list[str]
    reload_error: str
    """"" when the last load or reload succeeded."""


class StatusReport(Struct, frozen=True, kw_only=True):
    """Answer to `nodeagent status --json`."""

    schema: str = STATUS_SCHEMA
    node: str
    version: str
    generated_at: str
    phase: str
    """starting: not every signal was tried yet. running."""
    verdict: VerdictStatus
    exit_code: int
    cycle: CycleStatus
    gpus: GpuStatus
    rows: list[CheckStatus]
    """Every check on every target, worst first."""
    counts: dict[str, int]
    """Rows by the state in force: a raised fault that cannot be read now still counts as raised."""
    incidents: list[IncidentStatus]
    taint: TaintStatus
    xids: list[XidStatus]
    workers: list[WorkerSummary]
    pending_calls: list[PendingCall]
    kernel_log: KernelLogSummary | None
    state_file: StateFileSummary | None
    network: NetworkStatus | None = None
    """Marking and counting of pods' traffic."""
    api: ApiReport | None = None
    """The connection to the API server."""
    silences: list[SilenceStatus] = []
    """Those that stand, oldest first."""
    config: ConfigSummary
    inbox_dropped: int
    """Events lost because more happened at once than the inbox holds."""
    dry_run: bool
    next: list[str]
    """Commands, the most useful first."""


class CheckReport(Struct, frozen=True, kw_only=True):
    """Answer to `nodeagent check --json`."""

    schema: str = CHECK_SCHEMA
    node: str
    version: str
    generated_at: str
    checks: list[CheckStatus]
    counts: dict[str, int]
    exit_code: int
    duration_seconds: float


class TransitionStatus(Struct, frozen=True, kw_only=True):
    """One change of state."""

    at: str
    age_seconds: float
    this_boot: bool
    check: str
    target: str
    target_label: str
    previous: State
    state: State
    sentence: str
    event: str = ""
    """silenced | unsilenced, where the state stayed as it was."""


class HistoryReport(Struct, frozen=True, kw_only=True):
    """Answer to `nodeagent history --json`."""

    schema: str = HISTORY_SCHEMA
    node: str
    version: str
    generated_at: str
    since_seconds: float | None
    """The window asked for, None: all that is remembered."""
    transitions: list[TransitionStatus]
    """Oldest first."""


Report = (
    StatusReport | CheckReport | HistoryReport | SilencesReport | NetTopReport | NetShowReport | NetDiffReport
)

_EXIT_CODES = {State.OK: 0, State.WARNING: 1, State.CRITICAL: 2, State.UNKNOWN: 3}


def exit_code_of(state: State) -> int:
    """Exit code of a verdict: 0 ok, 1 warning, 2 critical, 3 unknown."""
    return _EXIT_CODES.get(state, 0)


def worst(rows: Iterable[CheckStatus]) -> State:
    """critical, warning, unknown or ok of some rows; an unread raised fault stays in force."""
    states = {in_force(row) for row in rows}
    return next((state for state in SEVERITY[:3] if state in states), State.OK)


def in_force(row: CheckStatus) -> State:
    """The state that counts: a raised fault that is unread, muted or released stays in force."""
    if row.stale_state in RAISED and row.state not in RAISED:
        return row.stale_state
    return row.state


def exit_code(report: StatusReport | CheckReport) -> int:
    """Exit code of the command that shows this report."""
    return report.exit_code


def encode(report: Report) -> bytes:
    """One compact JSON object, `schema` first."""
    try:
        return msgspec.json.encode(report)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(report)))


def _encodable(value: Any) -> Any:
    """The same with "?" for every byte that was no UTF-8, as in the name of a mount point."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def decode_status(data: bytes | str) -> StatusReport:
    """Raises msgspec.MsgspecError when `data` is no such report."""
    return msgspec.json.decode(data, type=StatusReport)


def decode_check(data: bytes | str) -> CheckReport:
    """Raises msgspec.MsgspecError when `data` is no such report."""
    return msgspec.json.decode(data, type=CheckReport)


def decode_history(data: bytes | str) -> HistoryReport:
    """Raises msgspec.MsgspecError when `data` is no such report."""
    return msgspec.json.decode(data, type=HistoryReport)
