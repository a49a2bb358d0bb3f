"""What the agent remembers from one cycle to the next: nouns only, saved as one JSON file.

Everything here must survive a restart at any cycle with the same verdict, so it holds no open
handles, no clocks and nothing that grows without bound. Bounds are enforced by decide, which is
the only writer.
"""

from __future__ import annotations

from msgspec import Struct

from nodeagent.cluster_memory import ClusterMemory
from nodeagent.model import (
    Incident,
    Instant,
    NodeClass,
    State,
    Transition,
)
from nodeagent.net_memory import NodeNetMemory
from nodeagent.shape_memory import ShapeMemory
from nodeagent.traffic_memory import MarkMemory, TrafficMemory

MEMORY_SCHEMA = 1
"""Version of the state file; a newer one is set aside, never guessed at."""


class Hold(Struct, frozen=True, kw_only=True):
    """Where one check on one target stands between good and raised."""

    state: State
    """pending, warning or critical; a target that is plainly ok has no Hold."""
    since: Instant
    """When this state began; raised states keep it while any re-raise happens."""
    node_class: NodeClass
    polls: str = ""
    """The last polls, oldest first, as 'b' (bad) and 'g' (good), at most m of "n of m"."""
    good_polls: int = 0
    """Good polls in a row since the last bad one."""
    last_bad: Instant | None = None
    value: str = ""
    limit: str = ""
    sentence: str = ""
    cause: str = ""
    cause_since: Instant | None = None
    """Since when every bad poll has had this cause."""
    number: float | None = None


class XidRecord(Struct, frozen=True, kw_only=True):
    """One Xid number on one GPU since it was last cleared."""

    pci_address: str
    number: int
    node_class: NodeClass
    """Effective class after operator override, decode rows and repeat rule."""
    decoded_class: NodeClass | None = None
    """Class by decode rows or by the driver's recovery text (Xid 154); None: by number."""
    held: bool = False
    """Shown as class app until its hold window ends (Xid 109, or a line that was found late)."""
    found: Instant | None = None
    """When a line was read that was old by then: its cure may be just as old."""
    first: Instant
    last: Instant
    kernel_count: int = 0
    nvml_count: int = 0
    episodes: tuple[Instant, ...] = ()
    """Starts of distinct occurrences (bounded), for the repeat rule; kept after clearing."""
    cleared: Instant | None = None
    """When the fault was proven gone; kept for the repeat window, then dropped."""
    cleared_by: str = ""
    caused_by: int | None = None
    injected: bool = False
    text: str = ""
    detail: str = ""

    @property
    def count(self) -> int:
        """Occurrences: both sources see the same fault, so the larger count, not the sum."""
        return max(self.kernel_count, self.nvml_count)


class GpuMemory(Struct, frozen=True, kw_only=True):
    """What was last known of one GPU, for lost devices and for seeing resets."""

    uuid: str | None = None
    index: int | None = None
    name: str | None = None
    recovery_action: int | None = None
    remap_pending: bool | None = None
    volatile_uncorrected: int | None = None
    volatile_corrected: int | None = None
    links_seen: int | None = None
    """Most NVLinks that were up at once in this boot."""
    reset_seen: Instant | None = None
    reset_after: Instant | None = None
    """Nothing was reset yet when that was last read: what happened after it may be after the reset."""
    reset_evidence: str = ""
    replaced: Instant | None = None
    """When a device with another UUID, or an operator's word, took this one's place."""


class CounterWindow(Struct, frozen=True, kw_only=True):
    """The last two reads of one counter of a GPU; both are the same after the first one."""

    started_seconds: float
    """CLOCK_MONOTONIC of this boot."""
    ended_seconds: float
    started_count: int
    ended_count: int


class FaultStep(Struct, frozen=True, kw_only=True):
    """Something was counted; what follows within a minute is added to it."""

    at: Instant
    count: int


class FaultCount(Struct, frozen=True, kw_only=True):
    """How a count of faults has grown in the last day."""

    ended_count: int | None = None
    """The counter when it was last read; None for lines of the kernel log, or before the first read of a
    boot."""
    steps: tuple[FaultStep, ...] = ()
    text: str = ""
    """The newest line of the kernel log."""


class MountSeen(Struct, frozen=True, kw_only=True):
    """What a local file system was like in this boot."""

    device: str
    fstype: str
    super_writable: bool = False
    """Its super block was writable once."""
    mount_writable: bool = False
    """Its mount was writable once."""


class GpuBaseline(Struct, frozen=True, kw_only=True):
    """What `gpu.count` compares with when no expected_count is configured."""

    boot_id: str
    count: int
    bus: tuple[str, ...] | None = None
    """Addresses that the PCI bus showed when it was first read in this boot; None until then."""


class Release(Struct, frozen=True, kw_only=True):
    """NVML is released so that a reset or a driver upgrade can go on."""

    since: Instant
    until_seconds: float | None
    """CLOCK_MONOTONIC of this boot when it ends by itself; None: until told."""
    reason: str
    by_operator: bool


class Silence(Struct, frozen=True, kw_only=True):
    """By somebody's word the faults of a check ask for no node action until it ends; they stay shown."""

    number: int
    """What `nodeagent unsilence` takes."""
    check: str
    target: str
    """"" means every target of the check."""
    began: Instant
    for_seconds: float
    reason: str
    user_id: int | None
    user_name: str
    """"" where the uid has no name."""


class UnknownSince(Struct, frozen=True, kw_only=True):
    """Since when one check on one target could not be judged."""

    since: Instant
    noted: bool = False
    """True once it lasted long enough to be told (a restart's first seconds are not worth a line)."""


class VerdictMemory(Struct, frozen=True, kw_only=True):
    """The verdict's stable transition time."""

    state: State
    since: Instant


class KernelLogCursor(Struct, frozen=True, kw_only=True):
    """Last kernel record that Memory has taken in."""

    boot_id: str
    sequence: int


class Memory(Struct, frozen=True, kw_only=True):
    """The whole of it."""

    schema: int = MEMORY_SCHEMA
    node_name: str = ""
    boot_id: str = ""
    driver_version: str = ""
    """Kernel driver last seen loaded; kept while it is unloaded."""
    driver_absent: bool = False
    """The driver was loaded in this boot and is gone: its return is a reset of every GPU."""
    holds: dict[str, Hold] = {}
    """By "check|target"."""
    xids: dict[str, XidRecord] = {}
    """By "pci|number"; SXids by "pci|sxid number"."""
    unmatched: tuple[XidRecord, ...] = ()
    """NVML 999 events that wait up to 5 s for the kernel line with the real number."""
    gpus: dict[str, GpuMemory] = {}
    baseline: GpuBaseline | None = None
    incidents: tuple[Incident, ...] = ()
    history: tuple[Transition, ...] = ()
    unknown: dict[str, UnknownSince] = {}
    """By "check|target"."""
    verdict: VerdictMemory | None = None
    release: Release | None = None
    auto_release_not_before_seconds: float = 0.0
    """CLOCK_MONOTONIC of this boot; between two own releases NVML is read again at least once."""
    silences: tuple[Silence, ...] = ()
    """Oldest first, at most one for a check and target."""
    silences_begun: int = 0
    """Number of the newest one that ever was."""
    kernel_log: KernelLogCursor | None = None
    counters_read_seconds: dict[str, float] = {}
    """read_at_seconds of the newest good value that can show a reset, by "signal|target"; of this boot."""
    counter_windows: dict[str, CounterWindow] = {}
    """By "signal|target"; of this boot."""
    last_poll_seconds: dict[str, float] = {}
    """read_at_seconds of the newest poll judged, by "check|target"; of this boot only."""
    fault_counts: dict[str, FaultCount] = {}
    """By "what|target"."""
    mounts: dict[str, MountSeen] = {}
    """By mount point."""
    marks: MarkMemory = MarkMemory()
    traffic: TrafficMemory = TrafficMemory()
    shape: ShapeMemory = ShapeMemory()
    net: NodeNetMemory = NodeNetMemory()
    cluster: ClusterMemory = ClusterMemory()
