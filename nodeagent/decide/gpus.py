"""What is remembered of each GPU, and when a reset of it counts as seen.

A reset is seen for a device when, compared with the last good read of this boot, its recovery
action returned to 0, a pending row remap cleared, or a volatile counter fell; when the kernel
driver was loaded anew; or when another device (another UUID) answers at its place.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nodeagent.errors import ErrorKind
from nodeagent.memory import GpuBaseline, GpuMemory, Memory
from nodeagent.model import NODE, Now, State
from nodeagent.signals import (
    EccCounters,
    GpuDriver,
    GpuIdentity,
    KernelDriver,
    RecoveryAction,
    RowRemap,
    SignalKey,
    Snapshot,
    Unread,
)

MAX_GPUS = 64
"""Devices remembered; more than any node has, so that a faulty enumeration cannot grow Memory."""


def begin_boot(memory: Memory, now: Now, node_name: str) -> Memory:
    """Drop what belongs to an earlier boot: counters, poll times, and bad polls that raised nothing."""
    if memory.boot_id == now.at.boot_id and memory.node_name == node_name:
        return memory
    return msgspec.structs.replace(
        memory,
        boot_id=now.at.boot_id,
        node_name=node_name,
        driver_version="",
        driver_absent=False,
        gpus={pci: _without_counters(gpu) for pci, gpu in memory.gpus.items()},
        holds={key: hold for key, hold in memory.holds.items() if hold.state is not State.PENDING},
        last_poll_seconds={},
        release=None,
        auto_release_not_before_seconds=0.0,
    )


def _without_counters(gpu: GpuMemory) -> GpuMemory:
    return msgspec.structs.replace(
        gpu, recovery_action=None, remap_pending=None, volatile_uncorrected=None,
        volatile_corrected=None,
    )


def remember(memory: Memory, snapshot: Snapshot) -> Memory:
    """Take in identities and counters, and note the resets they show."""
    now = snapshot.now
    memory, reloaded = _driver_loads(memory, snapshot)
    devices = _value(snapshot, "gpu.devices", NODE)
    identities = {d.pci_address: d for d in devices} if isinstance(devices, tuple) else {}
    gpus = dict(memory.gpus)
    for pci in sorted(set(gpus) | set(identities))[:MAX_GPUS]:
        gpu = _identified(gpus.get(pci, GpuMemory()), identities.get(pci), now)
        evidence = reloaded or _reset_evidence(gpu, snapshot, pci)
        if evidence:
            gpu = msgspec.structs.replace(gpu, reset_seen=now.at, reset_evidence=evidence)
        gpus[pci] = _with_counters(gpu, snapshot, pci)
    baseline = memory.baseline
    if identities and (baseline is None or baseline.boot_id != now.at.boot_id):
        baseline = GpuBaseline(boot_id=now.at.boot_id, count=len(identities))
    return msgspec.structs.replace(memory, gpus=gpus, baseline=baseline)


def _driver_loads(memory: Memory, snapshot: Snapshot) -> tuple[Memory, str]:
    """Memory with the driver last seen, and why this counts as a reload ("" = it does not)."""
    version, absent = _loaded_driver(snapshot)
    if absent and memory.driver_version and not memory.driver_absent:
        return msgspec.structs.replace(memory, driver_absent=True), ""
    if not version:
        return memory, ""
    before = memory.driver_version
    after = msgspec.structs.replace(memory, driver_version=version, driver_absent=False)
    if before and before != version:
        return after, f"the driver was reloaded: {before} before, {version} now"
    if memory.driver_absent:
        return after, f"the driver was unloaded and loaded again ({version})"
    return after, ""


def _loaded_driver(snapshot: Snapshot) -> tuple[str, bool]:
    """Version of the loaded kernel driver, and whether it is known not to be loaded."""
    kernel = _value(snapshot, "gpu.kernel_driver", NODE)
    if isinstance(kernel, KernelDriver):
        return kernel.version, False
    by_nvml = _value(snapshot, "gpu.driver", NODE)
    if isinstance(by_nvml, GpuDriver):
        return by_nvml.driver_version, False
    return "", isinstance(kernel, Unread) and kernel.kind is ErrorKind.ABSENT


def _identified(gpu: GpuMemory, identity: GpuIdentity | None, now: Now) -> GpuMemory:
    if identity is None:
        return gpu
    replaced = gpu.replaced
    if gpu.uuid and identity.uuid and gpu.uuid != identity.uuid:
        replaced = now.at
    return msgspec.structs.replace(
        gpu, uuid=identity.uuid or gpu.uuid, index=identity.index,
        name=identity.name or gpu.name, replaced=replaced,
    )


def _reset_evidence(gpu: GpuMemory, snapshot: Snapshot, pci: str) -> str:
    action = _value(snapshot, "gpu.recovery_action", pci)
    if isinstance(action, RecoveryAction) and gpu.recovery_action and action.value == 0:
        return f"the driver's recovery action returned from {gpu.recovery_action} to 0"
    remap = _value(snapshot, "gpu.row_remap", pci)
    if isinstance(remap, RowRemap) and gpu.remap_pending and not remap.pending:
        return "the pending row remap was carried out"
    ecc = _value(snapshot, "gpu.ecc", pci)
    if isinstance(ecc, EccCounters):
        for name, before, after in (
            ("uncorrected", gpu.volatile_uncorrected, ecc.volatile_uncorrected),
            ("corrected", gpu.volatile_corrected, ecc.volatile_corrected),
        ):
            if before is not None and after < before:
                return f"volatile {name} ECC errors fell from {before} to {after}"
    return ""


def _with_counters(gpu: GpuMemory, snapshot: Snapshot, pci: str) -> GpuMemory:
    changes: dict[str, Any] = {}
    action = _value(snapshot, "gpu.recovery_action", pci)
    if isinstance(action, RecoveryAction):
        changes["recovery_action"] = action.value
    remap = _value(snapshot, "gpu.row_remap", pci)
    if isinstance(remap, RowRemap):
        changes["remap_pending"] = remap.pending
    ecc = _value(snapshot, "gpu.ecc", pci)
    if isinstance(ecc, EccCounters):
        changes["volatile_uncorrected"] = ecc.volatile_uncorrected
        changes["volatile_corrected"] = ecc.volatile_corrected
    return msgspec.structs.replace(gpu, **changes) if changes else gpu


def _value(snapshot: Snapshot, signal: str, target: str) -> Any:
    reading = snapshot.readings.get(SignalKey(signal, target))
    return None if reading is None else reading.value
