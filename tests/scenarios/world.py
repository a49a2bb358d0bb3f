"""A node on virtual time: a script sets what is outside, the real judgement runs, nothing waits.

The monotonic clock and the wall clock move apart on demand, the node reboots, the agent restarts with
what its state file would hold. Everything is derived from the script, so a day takes milliseconds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nodeagent.decide.check import Check
from nodeagent.decide.decide import decide
from nodeagent.decide.registry import registry
from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import (
    FabricState,
    MonotonicCount,
    NvLinkErrors,
    NvLinks,
    OwnerlessMemory,
    PcieLink,
    PersistenceMode,
    SlowedTime,
    SramErrors,
    TemperatureMargin,
)
from nodeagent.host_signals import (
    DiskErrors,
    GpuHolders,
    KernelCount,
    MemoryPressure,
    MountFlags,
    RuntimeHealth,
)
from nodeagent.memory import Memory
from nodeagent.model import NODE, CheckRow, Decision, Instant, Now, Plan, State
from nodeagent.net_signals import (
    ConntrackTable,
    Gateway,
    IbCounters,
    IbPort,
    NeighbourTable,
    NetAdapters,
    NetDevice,
)
from nodeagent.settings import Settings
from nodeagent.signals import (
    ClockSync,
    DiskUsage,
    EccCounters,
    Event,
    GpuDriver,
    GpuIdentity,
    GpuPresence,
    GpuProcesses,
    KernelDriver,
    KernelLogStatus,
    KubeletHealth,
    PciGpus,
    Reading,
    RecoveryAction,
    RowRemap,
    SignalKey,
    Snapshot,
    StateFileStatus,
    Unread,
    WorkerStatus,
    XidEvent,
)
from nodeagent.xid_data import load_xid_table

GPU_A, GPU_B = "0000:4e:00.0", "0000:5e:00.0"
HOST_SIGNALS = frozenset({"gpu.pci", "gpu.kernel_driver"})
"""GPU signals that are read without NVML."""
GIB_BYTES = 1 << 30
POLL_SECONDS = 15.0
WALL_SECONDS = 1_800_000_000.0
TABLE = load_xid_table()
CHECKS: dict[str, Check] = registry()


def identity(index: int, pci_address: str) -> GpuIdentity:
    """The H100 at this address."""
    return GpuIdentity(index=index, pci_address=pci_address, uuid=f"GPU-{index}", name="H100")


def ecc(uncorrected: int = 0, corrected: int = 0) -> EccCounters:
    """Volatile errors of one GPU."""
    return EccCounters(
        volatile_uncorrected=uncorrected, volatile_corrected=corrected,
        aggregate_uncorrected=uncorrected, aggregate_corrected=corrected,
    )  # fmt: skip


def remap(*, pending: bool = False) -> RowRemap:
    """Row remaps of one GPU."""
    return RowRemap(corrected_rows=0, uncorrected_rows=int(pending), pending=pending, failed=False)


def disk(available_percent: float = 60.0) -> DiskUsage:
    """A root disk of 100 GiB with so much room."""
    available_bytes = int(available_percent * GIB_BYTES)
    return DiskUsage(
        device="/dev/nvme0n1p2", fstype="ext4", size_bytes=100 * GIB_BYTES,
        available_bytes=available_bytes, used_bytes=100 * GIB_BYTES - available_bytes,
        inode_count=6_000_000, available_inode_count=5_000_000,
    )  # fmt: skip


def clock(*, synchronized: bool = True) -> ClockSync:
    """The kernel's word on the wall clock."""
    error_seconds = 0.01 if synchronized else 16.0
    return ClockSync(
        synchronized=synchronized, estimated_error_seconds=0.001, max_error_seconds=error_seconds
    )


def healthy_gpu(pci_address: str) -> dict[str, Any]:
    """All signals of one GPU without a fault and without a process."""
    return {
        f"gpu.presence@{pci_address}": GpuPresence(reachable=True),
        f"gpu.recovery_action@{pci_address}": RecoveryAction(value=0),
        f"gpu.ecc@{pci_address}": ecc(),
        f"gpu.row_remap@{pci_address}": remap(),
        f"gpu.processes@{pci_address}": GpuProcesses(count=1),
        f"gpu.sram@{pci_address}": SramErrors(threshold_exceeded=False, aggregate_uncorrected=0),
        f"gpu.retired_pages@{pci_address}": Unread(kind=ErrorKind.ABSENT, reason="Not Supported"),
        f"gpu.temperature_margin@{pci_address}": TemperatureMargin(margin_celsius=51),
        f"gpu.persistence@{pci_address}": PersistenceMode(enabled=True),
        f"gpu.thermal_slowdown@{pci_address}": SlowedTime(total_nanoseconds=0),
        f"gpu.power_brake@{pci_address}": SlowedTime(total_nanoseconds=0),
        f"gpu.pcie_link@{pci_address}": PcieLink(
            lane_count=16, max_lane_count=16, generation=5, max_generation=5
        ),
        f"gpu.pcie_replay@{pci_address}": MonotonicCount(total_count=0),
        f"gpu.ownerless_memory@{pci_address}": OwnerlessMemory(used_bytes=None),
        f"gpu.nvlink@{pci_address}": NvLinks(link_count=18),
        f"gpu.nvlink_errors@{pci_address}": NvLinkErrors(crc_errors=0, recovery_errors=0),
        f"gpu.fabric@{pci_address}": FabricState(state=3, status=0, health_mask=0x1AA, health_summary=1),
    }


def healthy_host() -> dict[str, Any]:
    """What the kernel and the runtime tell of a node that is well."""
    return {
        "disk.mount@/": MountFlags(
            device="/dev/nvme0n1p2", fstype="ext4", mount_read_only=False, super_read_only=False
        ),
        "disk.errors@nvme0n1": DiskErrors(state="live", file_system_errors=0, fstype="ext4"),
        "memory.pressure": MemoryPressure(
            some_percent=0.1, full_percent=0.0, available_bytes=900 * GIB_BYTES, size_bytes=1024 * GIB_BYTES
        ),
        "memory.oom_kills": KernelCount(total_count=2),
        "kernel.hung_tasks": KernelCount(total_count=0),
        "runtime.health": RuntimeHealth(healthy=True, detail="answers", socket="/run/crio/crio.sock"),
        "process.gpu_holders": GpuHolders(scanned_at_seconds=1.0, holder_count=8, refused_count=0),
    }


def healthy_network() -> dict[str, Any]:
    """The node's own network: one adapter, one InfiniBand port, a gateway that answers, room everywhere."""
    table = NeighbourTable(entries_count=30, limit_count=1024, overflow_count=0)
    return {
        "link.devices": (
            NetDevice(name="eth0", index=2, pci_address="0000:18:00.0", is_uplink=True, carrier=True,
                      up_count=1, down_count=1),
        ),
        "net.adapters": NetAdapters(addresses=("0000:18:00.0", "0000:9a:00.0")),
        "ib.port@mlx5_0/1": IbPort(
            state="ACTIVE", phys_state="LinkUp", link_layer="InfiniBand", pci_address="0000:9a:00.0"
        ),
        "ib.counters@mlx5_0/1": IbCounters(link_downed_count=0),
        "net.gateway@10.0.0.1%eth0": Gateway(state="reachable", used_seconds=0.5, confirmed_seconds=2.0),
        "conntrack": ConntrackTable(entries_count=900, limit_count=262_144, dropped_count=0),
        "neighbour.table@ipv4": table,
        "neighbour.table@ipv6": table,
    }  # fmt: skip


NETWORK_OFF = Unread(kind=ErrorKind.ABSENT, reason="network is off by configuration")


def healthy() -> dict[str, Any]:
    """Everything that a node with two GPUs shows when nothing is wrong; both GPUs run a job."""
    log = KernelLogStatus(
        sequence=900, records=900, lost_records=0, refused_records=0, reopened=0, backfilled=True
    )
    return {
        "gpu.driver": GpuDriver(driver_version="580.95.05", nvml_version="13.580"),
        "gpu.kernel_driver": KernelDriver(version="580.95.05"),
        "gpu.pci": PciGpus(addresses=(GPU_A, GPU_B)),
        "gpu.devices": (identity(0, GPU_A), identity(1, GPU_B)),
        **healthy_gpu(GPU_A),
        **healthy_gpu(GPU_B),
        "worker.nvml": WorkerStatus(state="idle", pid=4711),
        "worker.host": WorkerStatus(state="idle", pid=4712),
        "disk.usage@/": disk(),
        "clock.sync": clock(),
        "kubelet.health": KubeletHealth(healthy=True, detail="ok"),
        "kernel_log": log,
        **healthy_host(),
        **healthy_network(),
        "net.kernel": NETWORK_OFF,
        "net.links": NETWORK_OFF,
        "net.marks": NETWORK_OFF,
        "state_file": StateFileStatus(writable=True),
    }


def signal_key(name: str) -> SignalKey:
    """`gpu.ecc@0000:4e:00.0`; without a target it is the node's."""
    signal, _, target = name.partition("@")
    return SignalKey(signal, target or NODE)


class World:
    """One node and the agent on it."""

    def __init__(self, *, settings: Settings | None = None, uptime_seconds: float = 3600.0,
                 restarts_always: bool = False) -> None:  # fmt: skip
        self.settings = settings or Settings()
        self.boot = 1
        self.monotonic_seconds = uptime_seconds
        self.wall_seconds = WALL_SECONDS
        self.restarts_always = restarts_always
        """True: the agent is restarted after every cycle."""
        self.values: dict[str, Any] = healthy()
        self.memory = Memory()
        self.decision: Decision | None = None
        self.plans: tuple[Plan, ...] = ()
        self.notices: list[tuple[str, dict[str, Any]]] = []
        self._read_at: dict[str, float] = {}
        self._sequence = 0
        self._events: list[Event] = []

    # ---------------------------------------------------------------- the script's verbs

    def put(self, values: dict[str, Any] | None = None, **of_node: Any) -> None:
        """Signals by `signal@target`, or the node's by keyword, a dot written `__`; None takes one away."""
        named = {name.replace("__", "."): value for name, value in of_node.items()}
        for name, value in {**(values or {}), **named}.items():
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value

    def emit(self, event: Event) -> None:
        """Something happened; the next cycle hears of it."""
        self._events.append(event)

    def xid(self, number: int, pci_address: str = GPU_A, **more: Any) -> None:
        """The kernel logs an Xid now."""
        self._sequence += 1
        line = f"NVRM: Xid (PCI:{pci_address[:-2]}): {number}, test"
        known = {"source": "kernel", "at_seconds": self.monotonic_seconds, "text": line}
        known |= {"kernel_sequence": self._sequence, **more}
        self.emit(XidEvent(pci_address=pci_address, number=number, **known))

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock; the monotonic clock knows nothing of it."""
        self.wall_seconds += seconds

    def restart(self) -> None:
        """The agent restarts: what its state file holds is all that it knows."""
        self.memory = msgspec.json.decode(msgspec.json.encode(self.memory), type=Memory)

    def reboot(self, down_seconds: float = 120.0, uptime_seconds: float = 20.0) -> None:
        """The node boots anew, and every volatile thing with it; the script sets what is different."""
        self.boot += 1
        self.monotonic_seconds = uptime_seconds
        self.wall_seconds += down_seconds + uptime_seconds
        self.values, self._events, self._read_at = healthy(), [], {}
        self.restart()

    # ---------------------------------------------------------------- the agent's cycles

    def cycle(self, seconds: float = POLL_SECONDS, *, poll: bool = True) -> Decision:
        """Let time pass, poll everything (or not), judge once."""
        self.monotonic_seconds += seconds
        self.wall_seconds += seconds
        snapshot = self.snapshot(poll=poll)
        self.decision, self.memory, self.plans = decide(
            self.settings, snapshot, self.memory, TABLE, checks=CHECKS
        )
        self.notices += [(notice.event, notice.fields) for notice in self.decision.notices]
        if self.restarts_always:
            self.restart()
        return self.decision

    def run(self, seconds: float) -> Decision:
        """Cycles of 15 s for so long, at least one."""
        for _ in range(max(1, int(seconds / POLL_SECONDS))):
            decision = self.cycle()
        return decision

    def snapshot(self, *, poll: bool = True) -> Snapshot:
        """What the agent is shown now; takes the events out of the inbox."""
        for name in self.values:
            if poll or name not in self._read_at:
                self._read_at[name] = self.monotonic_seconds
        self._sequence += 1
        readings = {
            signal_key(name): Reading(
                value=value, read_at_seconds=self._read_at[name], sequence=self._sequence
            )
            for name, value in self.values.items()
        }
        events, self._events = tuple(self._events), []
        return Snapshot(now=self.now(), node_name="gpu-a17", readings=readings, events=events, entropy=0.5)

    def now(self) -> Now:
        """The moment, as the snapshot freezes it."""
        sync = self.values.get("clock.sync")
        at = Instant(
            boot_id=f"boot-{self.boot}", monotonic_seconds=self.monotonic_seconds,
            wall_seconds=self.wall_seconds,
        )  # fmt: skip
        return Now(at=at, clock_synchronized=isinstance(sync, ClockSync) and sync.synchronized)

    # ---------------------------------------------------------------- what people see

    def row(self, check_id: str, target: str = NODE) -> CheckRow:
        """The row that `nodeagent check` shows."""
        assert self.decision is not None
        rows = [row for row in self.decision.rows if (row.id, row.target) == (check_id, target)]
        assert len(rows) == 1, f"{check_id} on {target}: {len(rows)} rows"
        return rows[0]

    def state(self, check_id: str, target: str = NODE) -> State:
        """The row's state."""
        return self.row(check_id, target).state

    def taints(self) -> list[str]:
        """Wanted taints as `key=value`, without the prefix."""
        assert self.decision is not None
        return [f"{taint.key.partition('/')[2]}={taint.value}" for taint in self.decision.wanted_taints]

    def raised(self) -> set[str]:
        """`check|target` of every fault in force."""
        return {
            key for key, hold in self.memory.holds.items() if hold.state in (State.WARNING, State.CRITICAL)
        }

    def told(self, event: str) -> list[dict[str, Any]]:
        """Fields of every notice of this kind so far."""
        return [fields for name, fields in self.notices if name == event]

    def trace(self) -> tuple[Any, ...]:
        """What must not depend on restarts and wall clocks: rows, verdict, taints."""
        assert self.decision is not None
        rows = tuple((row.id, row.target, row.state, row.held, row.node_class) for row in self.decision.rows)
        word = self.decision.verdict
        return rows, word.state, word.node_class, word.since.monotonic_seconds, tuple(self.taints())


def unread(kind: ErrorKind, *names: str) -> dict[str, Unread]:
    """These signals as not read."""
    return dict.fromkeys(names, Unread(kind=kind, reason=f"not read: {kind.value}"))


def of_gpus(values: dict[str, Any]) -> list[str]:
    """Names of the signals that NVML gives, the worker's own state aside."""
    return [name for name in values if name.startswith("gpu.") and name not in HOST_SIGNALS]
