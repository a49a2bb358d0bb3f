"""What is remembered of each GPU, and when a reset of it counts as seen.

A reset is seen for a device when, compared with the last good read of this boot, its recovery
action returned from one that asks for a reset to 0, a pending row remap cleared, or a volatile
counter fell; when the kernel driver was loaded anew; or when another device (another UUID) answers
at its place. It happened between two reads, so what was reported between them may be newer than it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nodeagent.decide import fault_counts, mounts
from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import NvLinks
from nodeagent.memory import GpuBaseline, GpuMemory, Memory
from nodeagent.model import NODE, Instant, Now, State
from nodeagent.signals import (
    EccCounters,
    GpuDriver,
    GpuIdentity,
    KernelDriver,
    PciGpus,
    Reading,
    RecoveryAction,
    RowRemap,
    SignalKey,
    Snapshot,
    Unread,
)

MAX_GPUS = 64
"""Devices remembered; more than any node has, so that a faulty enumeration cannot grow Memory."""
RESET_ACTIONS = frozenset({1, 2, 4, 6, 7})
"""Recovery actions that only a reset or a reboot ends; the others end without one."""
COUNTERS = ("gpu.recovery_action", "gpu.ecc", "gpu.row_remap")
"""Signals of a GPU by which a reset is seen."""
_KERNEL_DRIVER = SignalKey("gpu.kernel_driver", NODE)


def begin_boot(memory: Memory, now: Now, node_name: str) -> Memory:
    """Drop what belongs to an earlier boot: counters, polls, resets, and bad polls that raised nothing."""
    if memory.boot_id == now.at.boot_id and memory.node_name == node_name:
        return memory
    return msgspec.structs.replace(
        memory,
        boot_id=now.at.boot_id,
        node_name=node_name,
        driver_version="",
        driver_absent=False,
        gpus={pci: _without_counters(gpu) for pci, gpu in memory.gpus.items()},
        holds={
            key: msgspec.structs.replace(hold, good_polls=0)
            for key, hold in memory.holds.items() if hold.state is not State.PENDING
        },
        counters_read_seconds={},
        counter_windows={},
        fault_counts=fault_counts.begin_boot(memory.fault_counts),
        mounts=mounts.begin_boot(memory),
        last_poll_seconds={},
        release=None,
        auto_release_not_before_seconds=0.0,
    )


def _without_counters(gpu: GpuMemory) -> GpuMemory:
    return msgspec.structs.replace(
        gpu, recovery_action=None, remap_pending=None, volatile_uncorrected=None,
        volatile_corrected=None, links_seen=None, reset_seen=None, reset_after=None, reset_evidence="",
    )


def remember(memory: Memory, snapshot: Snapshot) -> Memory:
    """Take in identities and counters, and note the resets they show."""
    now = snapshot.now
    memory, reloaded = _driver_loads(memory, snapshot)
    devices = snapshot.value("gpu.devices")
    identities = {d.pci_address: d for d in devices} if isinstance(devices, tuple) else {}
    enumerated = frozenset(identity.uuid for identity in identities.values())
    gpus = dict(memory.gpus)
    for pci in sorted(set(gpus) | set(identities))[:MAX_GPUS]:
        gpu = _identified(gpus.get(pci, GpuMemory()), identities.get(pci), enumerated, now)
        signal, evidence = _reset_evidence(gpu, snapshot, pci)
        key = _KERNEL_DRIVER if reloaded else SignalKey(signal, pci)
        if reloaded or evidence:
            gpu = msgspec.structs.replace(
                gpu, reset_seen=now.at, reset_evidence=reloaded or evidence,
                reset_after=_last_read(memory, key, now),
            )
        gpus[pci] = _with_counters(gpu, snapshot, pci)
    return msgspec.structs.replace(
        memory, gpus=gpus, baseline=_baseline(memory, snapshot, len(identities)),
        counters_read_seconds=_read_seconds(memory, snapshot, gpus),
    )


def _baseline(memory: Memory, snapshot: Snapshot, enumerated: int) -> GpuBaseline | None:
    """What this boot first enumerated, and the most that the bus has shown since."""
    boot_id, known = snapshot.now.at.boot_id, memory.baseline
    if known is None or known.boot_id != boot_id:
        if not enumerated:
            return known
        known = GpuBaseline(boot_id=boot_id, count=enumerated)
    bus = snapshot.value("gpu.pci")
    if not isinstance(bus, PciGpus):
        return known
    first = bus.addresses if known.bus is None else known.bus
    return GpuBaseline(boot_id=boot_id, count=max(known.count, len(bus.addresses)), bus=first)


def _last_read(memory: Memory, key: SignalKey, now: Now) -> Instant:
    """When the signal was read before this cycle; the start of the boot, when it never was."""
    then_seconds = min(memory.counters_read_seconds.get("|".join(key), 0.0), now.at.monotonic_seconds)
    wall_seconds = now.at.wall_seconds - (now.at.monotonic_seconds - then_seconds)
    return Instant(boot_id=now.at.boot_id, monotonic_seconds=then_seconds, wall_seconds=wall_seconds)


def not_reset_until_now(memory: Memory, now: Now) -> Memory:
    """Memory that knows that no reset of any GPU has gone unseen until this moment."""
    keys = [SignalKey(signal, pci) for pci in memory.gpus for signal in COUNTERS]
    read = {"|".join(key): now.at.monotonic_seconds for key in (*keys, _KERNEL_DRIVER)}
    return msgspec.structs.replace(memory, counters_read_seconds=read)


def _read_seconds(
    memory: Memory, snapshot: Snapshot, gpus: dict[str, GpuMemory]
) -> dict[str, float]:
    """When each signal that can show a reset was last read; a module that is not loaded was read, too."""
    keys = [SignalKey(signal, pci) for pci in gpus for signal in COUNTERS]
    read = {}
    for key in (*keys, _KERNEL_DRIVER):
        name, reading = "|".join(key), snapshot.readings.get(key)
        if reading is not None and _is_read(key, reading):
            read[name] = max(reading.read_at_seconds, memory.counters_read_seconds.get(name, 0.0))
        elif name in memory.counters_read_seconds:
            read[name] = memory.counters_read_seconds[name]
    return read


def _is_read(key: SignalKey, reading: Reading) -> bool:
    unloaded = key == _KERNEL_DRIVER and _is_absent(reading.value)
    return unloaded or not isinstance(reading.value, Unread)


def _is_absent(value: Any) -> bool:
    return isinstance(value, Unread) and value.kind is ErrorKind.ABSENT


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
    kernel = snapshot.value("gpu.kernel_driver")
    if isinstance(kernel, KernelDriver):
        return kernel.version, False
    by_nvml = snapshot.value("gpu.driver")
    if isinstance(by_nvml, GpuDriver):
        return by_nvml.driver_version, False
    return "", _is_absent(kernel)


def _identified(
    gpu: GpuMemory, identity: GpuIdentity | None, enumerated: frozenset[str | None], now: Now
) -> GpuMemory:
    """A device that was only moved to another place in this node was not replaced."""
    if identity is None:
        return gpu
    replaced = gpu.replaced
    if gpu.uuid and identity.uuid and gpu.uuid != identity.uuid and gpu.uuid not in enumerated:
        replaced = now.at
    return msgspec.structs.replace(
        gpu, uuid=identity.uuid or gpu.uuid, index=identity.index,
        name=identity.name or gpu.name, replaced=replaced,
    )


def _reset_evidence(gpu: GpuMemory, snapshot: Snapshot, pci: str) -> tuple[str, str]:
    """The signal that shows a reset and what it shows; empty without one."""
    action = snapshot.value("gpu.recovery_action", pci)
    asked = gpu.recovery_action
    if isinstance(action, RecoveryAction) and asked in RESET_ACTIONS and action.value == 0:
        return "gpu.recovery_action", f"the driver's recovery action returned from {asked} to 0"
    remap = snapshot.value("gpu.row_remap", pci)
    if isinstance(remap, RowRemap) and gpu.remap_pending and not remap.pending:
        return "gpu.row_remap", "the pending row remap was carried out"
    ecc = snapshot.value("gpu.ecc", pci)
    if isinstance(ecc, EccCounters):
        for name, before, after in (
            ("uncorrected", gpu.volatile_uncorrected, ecc.volatile_uncorrected),
            ("corrected", gpu.volatile_corrected, ecc.volatile_corrected),
        ):
            if before is not None and after < before:
                return "gpu.ecc", f"volatile {name} ECC errors fell from {before} to {after}"
    return "", ""


def _with_counters(gpu: GpuMemory, snapshot: Snapshot, pci: str) -> GpuMemory:
    changes: dict[str, Any] = {}
    action = snapshot.value("gpu.recovery_action", pci)
    if isinstance(action, RecoveryAction) and (action.value == 0 or gpu.recovery_action not in RESET_ACTIONS):
        changes["recovery_action"] = action.value  # of those that need a reset the first waits for its end
    remap = snapshot.value("gpu.row_remap", pci)
    if isinstance(remap, RowRemap):
        changes["remap_pending"] = remap.pending
    ecc = snapshot.value("gpu.ecc", pci)
    if isinstance(ecc, EccCounters):
        changes["volatile_uncorrected"] = ecc.volatile_uncorrected
        changes["volatile_corrected"] = ecc.volatile_corrected
    links = snapshot.value("gpu.nvlink", pci)
    if isinstance(links, NvLinks) and links.active_count > (gpu.links_seen or 0):
        changes["links_seen"] = links.active_count
    return msgspec.structs.replace(gpu, **changes) if changes else gpu
