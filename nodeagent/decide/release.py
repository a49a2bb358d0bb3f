"""When NVML is let go, so that the agent never stands in the way of a reset or driver upgrade.

By a person's word for a stated time; or by itself, in short periods, while the verdict asks for a
reset, a reboot or the vendor and no compute process is left on any GPU. Between two own releases
NVML is read again, because only a read can show that the fault is gone.
"""

from __future__ import annotations

import msgspec

from nodeagent.decide import gpus, holds
from nodeagent.decide.taints import HARDWARE_FAMILIES
from nodeagent.errors import ErrorKind
from nodeagent.memory import GpuMemory, Memory, Release
from nodeagent.model import NODE, Notice, Now, Op, Plan, State
from nodeagent.settings import Settings
from nodeagent.signals import (
    GpuCommand,
    GpuProcesses,
    Snapshot,
    Unread,
    WorkerStatus,
)

EXECUTOR = "gpu"
AUTO_RELEASE_SECONDS = 600.0
"""One own release: long enough for a reset script, short enough to notice a repaired GPU."""
AUTO_PAUSE_SECONDS = 120.0
"""Reading time between two own releases: several polls."""
AUTO_SETTLE_SECONDS = 60.0
"""Reading time after a fault before an own release: what the driver asks for may come late."""
AUTO_SETTLE_POLLS = 4
"""So many polls are enough, where NVML is read more often."""
FRESH_SECONDS = 60.0
OP_DEADLINE_SECONDS = 30.0
_OPEN = ("idle", "reading")
"""States in which the NVML worker has the library open."""


def step(
    memory: Memory, snapshot: Snapshot, settings: Settings
) -> tuple[Memory, tuple[Notice, ...]]:
    """Take in commands and end what is over."""
    notices: list[Notice] = []
    for event in snapshot.events:
        if isinstance(event, GpuCommand):
            memory, told = _commanded(memory, event, snapshot, settings)
            notices.extend(told)
    memory, told = _expired(memory, snapshot.now)
    return memory, (*notices, *told)


def _commanded(
    memory: Memory, command: GpuCommand, snapshot: Snapshot, settings: Settings
) -> tuple[Memory, list[Notice]]:
    now = snapshot.now
    by = f"uid {command.user_id}" if command.user_id is not None else "an operator"
    if command.verb == "release":
        for_seconds = command.for_seconds or settings.gpu.release_seconds
        release = Release(
            since=now.at, until_seconds=now.at.monotonic_seconds + for_seconds,
            reason=command.reason or f"asked by {by}", by_operator=True,
        )
        notice = Notice(event="gpu_released", fields={
            "reason": release.reason, "duration_seconds": for_seconds, "user_id": command.user_id,
        })
        return _begun(memory, snapshot, release), [notice]
    if command.verb == "resume":
        return _resumed(memory, now, f"asked by {by}")
    if command.verb == "repaired" and command.target in _concerned(memory):
        return _repaired(memory, command, now, f"reported by {by}")
    return memory, []


def _repaired(
    memory: Memory, command: GpuCommand, now: Now, reason: str
) -> tuple[Memory, list[Notice]]:
    target = command.target or ""
    gpu = msgspec.structs.replace(memory.gpus.get(target, GpuMemory()), replaced=now.at)
    notice = Notice(event="gpu_repaired", fields={
        "target": target, "reason": command.reason or reason, "user_id": command.user_id,
    })
    return msgspec.structs.replace(memory, gpus={**memory.gpus, target: gpu}), [notice]


def _concerned(memory: Memory) -> set[str]:
    """GPUs, and the switches and dead GPUs that are known by their faults alone."""
    return set(memory.gpus) | {record.pci_address for record in memory.xids.values()}


def _resumed(memory: Memory, now: Now, reason: str) -> tuple[Memory, list[Notice]]:
    not_before_seconds = now.at.monotonic_seconds + AUTO_PAUSE_SECONDS
    was_released = memory.release is not None
    memory = msgspec.structs.replace(
        memory, release=None, auto_release_not_before_seconds=not_before_seconds
    )
    return memory, [Notice(event="gpu_resumed", fields={"reason": reason})] if was_released else []


def _expired(memory: Memory, now: Now) -> tuple[Memory, list[Notice]]:
    release = memory.release
    if release is None or release.until_seconds is None:
        return memory, []
    if now.at.monotonic_seconds < release.until_seconds:
        return memory, []
    return _resumed(memory, now, "the release has ended")


def by_itself(
    memory: Memory, snapshot: Snapshot, settings: Settings, families: dict[str, str]
) -> tuple[Memory, tuple[Notice, ...]]:
    """Begin a release that nobody asked for, once this cycle is judged. `families`: check id -> family."""
    now = snapshot.now
    due = now.at.monotonic_seconds >= memory.auto_release_not_before_seconds
    if not settings.gpu.auto_release or memory.release is not None or not due:
        return memory, ()
    fault_seconds = _newest_fault_seconds(memory, families, now)
    if fault_seconds is None or not _idle(snapshot):
        return memory, ()
    settle_seconds = min(AUTO_SETTLE_SECONDS, AUTO_SETTLE_POLLS * settings.gpu.poll_seconds)
    if not _read_since(snapshot, fault_seconds + settle_seconds):
        return memory, ()
    release = Release(
        since=now.at, until_seconds=now.at.monotonic_seconds + AUTO_RELEASE_SECONDS,
        reason="the verdict asks for a cure and no compute process is left", by_operator=False,
    )
    notice = Notice(event="gpu_released",
                    fields={"reason": release.reason, "duration_seconds": AUTO_RELEASE_SECONDS})
    return _begun(memory, snapshot, release), (notice,)


def _begun(memory: Memory, snapshot: Snapshot, release: Release) -> Memory:
    """Memory with the release. No GPU can be reset while the agent has NVML open, so that any reset seen
    later came after this moment."""
    memory = msgspec.structs.replace(memory, release=release)
    worker = snapshot.value("worker.nvml")
    is_open = isinstance(worker, WorkerStatus) and worker.state in _OPEN
    return gpus.not_reset_until_now(memory, snapshot.now) if is_open else memory


def _newest_fault_seconds(memory: Memory, families: dict[str, str], now: Now) -> float | None:
    """CLOCK_MONOTONIC of the newest raised GPU fault that needs a cure not seen yet.

    None without one, and while another fault is still being counted: it is read until it is known.
    """
    newest_seconds: float | None = None
    for key, hold in memory.holds.items():
        check_id, _, target = key.partition("|")
        if families.get(check_id) not in HARDWARE_FAMILIES or target == NODE:
            continue
        if hold.state is State.PENDING and now.age_seconds(hold.last_bad or hold.since) < FRESH_SECONDS:
            return None
        if holds.is_raised(hold) and hold.node_class.taints and hold.good_polls == 0:
            this_boot = hold.since.boot_id == memory.boot_id
            since_seconds = hold.since.monotonic_seconds if this_boot else 0.0
            newest_seconds = max(since_seconds, newest_seconds or 0.0)
    if newest_seconds is None:
        return None
    return max(newest_seconds, *_occurred_seconds(memory), 0.0)


def _occurred_seconds(memory: Memory) -> list[float]:
    """When standing Xids last struck anew. Not each line: reading NVML may itself bring forth the next."""
    return [
        record.episodes[-1].monotonic_seconds
        for record in memory.xids.values()
        if record.cleared is None and record.node_class.taints and record.episodes
        and record.episodes[-1].boot_id == memory.boot_id
    ]


def _read_since(snapshot: Snapshot, fault_seconds: float) -> bool:
    """True when every counter that can show a reset was read after the fault.

    What it read before the fault could look the same after a reset: the reset would never be seen.
    """
    return all(
        reading.read_at_seconds > fault_seconds
        for key, reading in snapshot.readings.items()
        if key.signal in gpus.COUNTERS
    )


def _idle(snapshot: Snapshot) -> bool:
    """True when every GPU was just read and none has a compute process; a lost GPU has none."""
    readings = [r for key, r in snapshot.readings.items() if key.signal == "gpu.processes"]
    if not readings:
        return False
    for reading in readings:
        age_seconds = snapshot.now.at.monotonic_seconds - reading.read_at_seconds
        value = reading.value
        lost = isinstance(value, Unread) and value.kind is ErrorKind.LOST
        none_left = isinstance(value, GpuProcesses) and value.count == 0
        if age_seconds > FRESH_SECONDS or not (lost or none_left):
            return False
    return True


def plan(memory: Memory, snapshot: Snapshot) -> tuple[Plan, ...]:
    """One op while the NVML worker is not in the wanted state; none when it is."""
    worker = snapshot.value("worker.nvml")
    if not isinstance(worker, WorkerStatus):
        return ()
    is_released = worker.state == "released"
    is_wanted = memory.release is not None
    if is_released == is_wanted or worker.state == "absent":
        return ()
    kind = "nvml.release" if is_wanted else "nvml.resume"
    op = Op(kind=kind, target="nvml", deadline_seconds=OP_DEADLINE_SECONDS)
    return (Plan(executor=EXECUTOR, ops=(op,)),)


def next_due_seconds(memory: Memory) -> float | None:
    """CLOCK_MONOTONIC when a running release ends."""
    return memory.release.until_seconds if memory.release is not None else None
