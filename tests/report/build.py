"""Builders of report inputs: a good node, of which a scene changes what matters to it."""

from __future__ import annotations

from typing import Any

from nodeagent.memory import GpuBaseline, GpuMemory, Memory
from nodeagent.model import (
    NODE,
    CheckRow,
    Decision,
    Incident,
    Instant,
    NodeClass,
    Now,
    State,
    Taint,
    Verdict,
)
from nodeagent.report.given import ReportInput
from nodeagent.settings import Settings
from nodeagent.signals import (
    GpuIdentity,
    KernelDriver,
    KernelLogStatus,
    PciGpus,
    Reading,
    SignalKey,
    Snapshot,
    StateFileStatus,
    WorkerStatus,
)

WALL_SECONDS = 1_795_921_960.0
"""2026-11-29T03:12:40Z"""
UPTIME_SECONDS = 600_000.0
GPUS = tuple(f"0000:{bus:02x}:00.0" for bus in (0x18, 0x2A, 0x3A, 0x4E, 0x9A, 0xAB, 0xBA, 0xDB))
TAINT = Taint(key="nodeagent.io/gpu-unhealthy", value="xid", effect="NoSchedule")
PER_GPU = {
    "ecc.uncorrected": ("0 errors", "0 errors", "NVML volatile ECC since driver load"),
    "gpu.lost": ("reachable", "", "NVML and PCI bus"),
    "gpu.recovery_action": ("none", "", "NVML field 230"),
    "row_remap.pending": ("no", "", "NVML remapped rows"),
    "xid": ("", "", "kernel log and NVML events"),
}
PER_NODE = {
    "agent.state": ("saved", "", "state file"),
    "clock.unsynced": ("synchronised", "", "adjtimex"),
    "driver.stuck": ("answers", "30 s", "NVML worker"),
    "gpu.count": ("8 GPUs", "8 GPUs", "NVML device count"),
    "kubelet.down": ("healthy", "", "kubelet /healthz"),
}
GPU_CHECKS = frozenset({*PER_GPU, "driver.stuck", "gpu.count"})


def ago(seconds: float) -> Instant:
    """A point in this boot, so many seconds before the cycle."""
    return Instant(
        boot_id="b1", monotonic_seconds=UPTIME_SECONDS - seconds, wall_seconds=WALL_SECONDS - seconds
    )


def row(check_id: str, target: str = NODE, state: State = State.OK, **more: Any) -> CheckRow:
    """One row with the usual facts of its check; `more` replaces any of them."""
    value, limit, source = (PER_GPU | PER_NODE).get(check_id, ("", "", "somewhere"))
    facts: dict[str, Any] = {
        "value": value,
        "limit": limit,
        "source": source,
        "sentence": "",
        "held": "",
        "node_class": NodeClass.CHECK,
        "since": None,
        "read_at_seconds": UPTIME_SECONDS - 2,
    }
    return CheckRow(id=check_id, target=target, state=state, **facts | more)


def rows(*changed: CheckRow, gpus: tuple[str, ...] = GPUS) -> tuple[CheckRow, ...]:
    """All rows of a good node, some replaced."""
    replaced = {(item.id, item.target): item for item in changed}
    usual = [row(check, pci) for check in PER_GPU for pci in gpus] + [row(check) for check in PER_NODE]
    usual.append(row("disk.full", "/", value="61 % used", limit="95 %", source="statvfs"))
    kept = [item for item in usual if (item.id, item.target) not in replaced]
    return tuple(sorted([*kept, *replaced.values()], key=lambda item: (item.id, item.target)))


def reading(value: Any, age_seconds: float = 2.0) -> Reading:
    """A reading of that age."""
    return Reading(value=value, read_at_seconds=UPTIME_SECONDS - age_seconds, sequence=1)


def readings(**changed: Any) -> dict[SignalKey, Reading]:
    """The board of a good node; keys with "__" for the dot; None leaves a signal out."""
    devices = tuple(
        GpuIdentity(index=i, pci_address=pci, uuid=f"GPU-{i}", name="NVIDIA H200")
        for i, pci in enumerate(GPUS)
    )
    usual = {
        "gpu__devices": devices,
        "gpu__pci": PciGpus(addresses=GPUS),
        "gpu__kernel_driver": KernelDriver(version="570.124.06"),
        "worker__nvml": WorkerStatus(state="idle", pid=4211),
        "worker__host": WorkerStatus(state="idle", pid=4212),
        "kernel_log": KernelLogStatus(
            sequence=1300, records=1204, lost_records=0, refused_records=0, reopened=0, backfilled=True
        ),
        "state_file": StateFileStatus(writable=True),
    } | changed
    return {
        SignalKey(name.replace("__", "."), NODE): reading(value)
        for name, value in usual.items()
        if value is not None
    }


def memory(**changed: Any) -> Memory:
    """What is remembered of a good node."""
    gpus = {pci: GpuMemory(uuid=f"GPU-{i}", index=i, name="NVIDIA H200") for i, pci in enumerate(GPUS)}
    facts: dict[str, Any] = {
        "node_name": "gpu-a17",
        "boot_id": "b1",
        "gpus": gpus,
        "baseline": GpuBaseline(boot_id="b1", count=8),
    }
    return Memory(**facts | changed)


def given(
    state: State = State.OK,
    since_seconds: float = 525_600.0,
    *,
    check_rows: tuple[CheckRow, ...] | None = None,
    node_class: NodeClass = NodeClass.IGNORE,
    incidents: tuple[Incident, ...] = (),
    taints: tuple[Taint, ...] = (),
    board: dict[SignalKey, Reading] | None = None,
    remembered: Memory | None = None,
    inbox_dropped: int = 0,
    **more: Any,
) -> ReportInput:
    """The input of a report, two seconds after its cycle; a quiet node by default."""
    shown = rows() if check_rows is None else check_rows
    decision = Decision(
        verdict=Verdict(state=state, since=ago(since_seconds), node_class=node_class),
        rows=shown,
        incidents=incidents,
        wanted_taints=taints,
    )
    facts: dict[str, Any] = {
        "decision": decision,
        "memory": remembered or memory(),
        "settings": Settings(),
        "version": "0.1.0",
        "now": Now(at=ago(-2)),
        "cycle_number": 4711,
        "cycles": 4711,
        "cycles_seconds_total": 9.5,
        "config_files": ("/etc/nodeagent/nodeagent.toml",),
        "snapshot": Snapshot(
            now=Now(at=ago(0)),
            node_name="gpu-a17",
            inbox_dropped=inbox_dropped,
            readings=readings() if board is None else board,
        ),
    }
    return ReportInput(**facts | more)
