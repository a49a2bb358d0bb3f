"""What is observed: the signals on the board, the events in the inbox, the snapshot of both.

A value that could not be read is an `Unread`, never 0 and never None. GPUs are targeted by PCI
address, because that alone is known when a device has fallen off the bus.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from nodeagent.errors import ErrorKind
from nodeagent.model import NODE, NodeClass, Now

_T = TypeVar("_T")


class Unread(Struct, frozen=True, kw_only=True):
    """A signal that could not be read, and why."""

    kind: ErrorKind
    reason: str


class SignalKey(NamedTuple):
    """Name of a reading on the board: `gpu.ecc` of `0000:4e:00.0`."""

    signal: str
    target: str


class Reading(Struct, frozen=True, kw_only=True):
    """The latest value of a signal."""

    value: Any
    """One of the signal nouns below, or `Unread`."""
    read_at_seconds: float
    """CLOCK_MONOTONIC when the read ended; a larger one is a new poll."""
    sequence: int
    """Counts writes to this signal since the daemon started."""


def read_as(reading: Reading | None, kind: type[_T]) -> _T | None:
    """The value of a reading; None when it was never read, or could not be."""
    return reading.value if reading is not None and isinstance(reading.value, kind) else None


class GpuDriver(Struct, frozen=True, kw_only=True):
    """Signal `gpu.driver` (node): the driver as NVML sees it."""

    driver_version: str
    nvml_version: str


class GpuIdentity(Struct, frozen=True, kw_only=True):
    """One enumerated GPU; signal `gpu.devices` (node) is a tuple of these."""

    index: int
    pci_address: str
    """`0000:4e:00.0`, lower case: the target of all signals and findings of this GPU."""
    uuid: str | None
    name: str | None
    minor: int | None = None
    pci_device_id: int | None = None
    """Device in the upper 16 bits, vendor in the lower: 0x233010de."""
    mig_enabled: bool = False
    pci_board_id: int | None = None
    """Subsystem, in the same form."""


class GpuPresence(Struct, frozen=True, kw_only=True):
    """Signal `gpu.presence` (GPU): does the driver still reach the device?"""

    reachable: bool
    detail: str = ""
    """What NVML returned when it does not ("GPU is lost")."""


class RecoveryAction(Struct, frozen=True, kw_only=True):
    """Signal `gpu.recovery_action` (GPU): NVML field 230, the driver's own verdict."""

    value: int
    """0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 IMEX, 6 bus reset, 7 reboot."""


class EccCounters(Struct, frozen=True, kw_only=True):
    """Signal `gpu.ecc` (GPU). Volatile counters start at 0 with the driver load or GPU reset."""

    volatile_uncorrected: int
    volatile_corrected: int
    aggregate_uncorrected: int
    aggregate_corrected: int


class RowRemap(Struct, frozen=True, kw_only=True):
    """Signal `gpu.row_remap` (GPU): nvmlDeviceGetRemappedRows."""

    corrected_rows: int
    uncorrected_rows: int
    pending: bool
    failed: bool


class GpuProcesses(Struct, frozen=True, kw_only=True):
    """Signal `gpu.processes` (GPU): compute processes that hold the device."""

    count: int


class PciGpus(Struct, frozen=True, kw_only=True):
    """Signal `gpu.pci` (node): NVIDIA display controllers that the PCI bus shows, from sysfs."""

    addresses: tuple[str, ...]


class KernelDriver(Struct, frozen=True, kw_only=True):
    """Signal `gpu.kernel_driver` (node): /proc/driver/nvidia/version."""

    version: str


class DiskUsage(Struct, frozen=True, kw_only=True):
    """Signal `disk.usage` (mount point): statvfs of a local file system."""

    device: str
    fstype: str
    size_bytes: int
    available_bytes: int
    """Bytes that an unprivileged process can still use."""
    used_bytes: int
    read_only: bool = False
    inode_count: int = 0
    """0: the file system makes inodes as it needs them."""
    available_inode_count: int = 0
    """Files that an unprivileged process can still make."""


class ClockSync(Struct, frozen=True, kw_only=True):
    """Signal `clock.sync` (node): adjtimex."""

    synchronized: bool
    estimated_error_seconds: float
    max_error_seconds: float


class KubeletHealth(Struct, frozen=True, kw_only=True):
    """Signal `kubelet.health` (node): the kubelet's own /healthz on loopback."""

    healthy: bool
    detail: str


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """Signal `worker.nvml` and `worker.host` (node): the disposable child process."""

    state: str
    """starting | idle | reading | stuck | released | absent (not wanted) | backoff"""
    pid: int | None = None
    pending_call: str | None = None
    """The call in flight ("nvmlDeviceGetTotalEccErrors GPU 3", "statvfs /var"), else None."""
    pending_since_seconds: float | None = None
    """CLOCK_MONOTONIC when that call began."""
    misses: int = 0
    """Deadlines missed in a row."""
    restarts: int = 0
    """Children replaced since the daemon started."""
    error_kind: ErrorKind | None = None
    """Why the last read-all failed as a whole, None when it worked."""
    error_cause: str = ""
    """absent | mismatch | access_lost | not_ready | died | other: the named cause."""
    error_detail: str = ""


class KernelLogStatus(Struct, frozen=True, kw_only=True):
    """Signal `kernel_log` (node): the reader of /dev/kmsg."""

    sequence: int
    """Kernel sequence number of the last record read; -1 before the first. Every event up to it is in
    the inbox."""
    records: int
    """Records read since the daemon started."""
    lost_records: int
    """Records the ring dropped before they were read (gaps in the sequence numbers)."""
    refused_records: int
    """Records from user space that look like a driver's: forged or echoed, never believed."""
    reopened: int
    backfilled: bool
    """True once everything since boot (or the saved cursor) has been read."""
    malformed_records: int = 0
    """Records without a readable prefix: skipped."""
    first_sequence: int | None = None
    """Sequence number of the oldest record found at start; 0: the ring reached back to boot."""


class StateFileStatus(Struct, frozen=True, kw_only=True):
    """Signal `state_file` (node): can the agent keep its memory?"""

    writable: bool
    detail: str = ""
    set_aside: str = ""
    """Path of a state file that could not be used and was kept for inspection."""


# --------------------------------------------------------------------------- events


class XidEvent(Struct, frozen=True, kw_only=True, tag="xid"):
    """One or more equal Xid records of one GPU."""

    source: str
    """kernel | nvml"""
    pci_address: str
    """Normalised `0000:4e:00.0`; for NVML events resolved from the handle."""
    number: int
    """79 also for "fallen off the bus" without a number; 999 = unknown to the NVML library."""
    at_seconds: float
    """CLOCK_MONOTONIC: the kernel record's own time stamp, or when NVML delivered it."""
    text: str = ""
    """The whole line as evidence, control characters removed, at most 500 characters."""
    count: int = 1
    """0 for a line without a number: it repeats what a numbered line says, where there is one."""
    caused_by: int | None = None
    """N of "caused by previous Xid N"."""
    recovery_text: str | None = None
    """Xid 154 only: the words in the last parentheses."""
    node_class: NodeClass | None = None
    """Class already decided by decode rows (NVLink5, Xid 74), None = by table."""
    injected: bool = False
    """Test injection flag i1 of an NVLink5 line: shown, never acted on."""
    detail: str = ""
    """Decoded meaning, when the table's meaning of the number is not enough."""
    kernel_sequence: int | None = None
    """Sequence number of the newest kernel record in this event; None for NVML."""


class SxidEvent(Struct, frozen=True, kw_only=True, tag="sxid"):
    """One or more equal SXid records of one NVSwitch."""

    pci_address: str
    number: int
    at_seconds: float
    fatal: bool | None
    """The severity word on the line; None where the line has none."""
    link: int | None = None
    text: str = ""
    count: int = 1
    kernel_sequence: int | None = None
    """Sequence number of the newest kernel record in this event."""


class KernelLogGap(Struct, frozen=True, kw_only=True, tag="kernel_log_gap"):
    """Records that the kernel dropped before they were read."""

    lost_records: int
    at_seconds: float


class KernelFault(Struct, frozen=True, kw_only=True, tag="kernel_fault"):
    """One or more kernel records that report trouble of the same kind with the same thing."""

    kind: str
    """disk | hung | oom"""
    target: str
    """Block device, or the node."""
    at_seconds: float
    """CLOCK_MONOTONIC: the newest record's own time stamp."""
    text: str = ""
    """The first line as evidence, control characters removed."""
    count: int = 1
    kernel_sequence: int | None = None
    """Sequence number of the newest kernel record in this event."""


class GpuCommand(Struct, frozen=True, kw_only=True, tag="gpu_command"):
    """`nodeagent gpu release|resume|repaired`, from the socket."""

    verb: str
    for_seconds: float | None = None
    target: str | None = None
    user_id: int | None = None
    """uid of the socket's peer."""
    reason: str = ""


class NodeCommand(Struct, frozen=True, kw_only=True, tag="node_command"):
    """`nodeagent pause|unpause` and `nodeagent node release|resume`, from the socket."""

    verb: str
    """pause | unpause | release | resume"""
    for_seconds: float = 0.0
    reason: str = ""
    user_id: int | None = None
    """uid of the socket's peer."""
class SilenceCommand(Struct, frozen=True, kw_only=True, tag="silence_command"):
    """`nodeagent silence` or `unsilence`, from the socket."""

    check: str = ""
    target: str = ""
    """"" means every target of the check."""
    for_seconds: float = 0.0
    reason: str = ""
    ends: int | None = None
    """Number of the silence to end; None: one begins."""
    user_id: int | None = None
    """uid of the socket's peer."""
    user_name: str = ""
    """Name of that uid on the node, "" when it has none."""


class ConfigReloaded(Struct, frozen=True, kw_only=True, tag="config_reloaded"):
    """SIGHUP was handled; `error` is empty when the new configuration is in force."""

    error: str = ""


class Outcome(Struct, frozen=True, kw_only=True, tag="outcome"):
    """What one attempt of one op did."""

    op: str
    target: str
    ok: bool
    error_kind: ErrorKind | None = None
    detail: str = ""
    is_stale: bool = False
    """What the op was based on is no longer so: read, then decide anew."""
    retry_after_seconds: float = 0.0
    """The least wait that was asked for."""


Event = (
    XidEvent | SxidEvent | KernelLogGap | KernelFault
    | GpuCommand | NodeCommand | SilenceCommand | ConfigReloaded | Outcome
)


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything decide may know of one moment."""

    now: Now
    node_name: str
    readings: Mapping[SignalKey, Reading]
    events: tuple[Event, ...] = ()
    entropy: float = 0.0
    """0 <= entropy < 1, fresh in each cycle: the only source of jitter."""
    inbox_dropped: int = 0
    """Events the bounded inbox has dropped since the daemon started."""

    def value(self, signal: str, target: str = NODE) -> Any:
        """Value of one signal, `Unread`, or None when nothing was ever put on the board."""
        reading = self.readings.get(SignalKey(signal, target))
        return None if reading is None else reading.value
