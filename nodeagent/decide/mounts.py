"""Which local file systems were writable in this boot: only what was can have turned read-only.

What is read-only since it was first seen is so by design. A fault that stands is not forgotten by a reboot.
"""

from __future__ import annotations

import msgspec

from nodeagent.host_signals import MountFlags
from nodeagent.memory import Memory, MountSeen
from nodeagent.signals import Snapshot, Unread

CHECK = "disk.read_only"
SIGNAL = "disk.mount"
MAX_MOUNTS = 256


def begin_boot(memory: Memory) -> dict[str, MountSeen]:
    """Nothing is known of this boot's mounts, except of those on which a fault stands."""
    return {point: seen for point, seen in memory.mounts.items() if f"{CHECK}|{point}" in memory.holds}


def remember(memory: Memory, snapshot: Snapshot) -> Memory:
    """Memory with what each local file system was like; those that are gone are forgotten."""
    readings = {key.target: r.value for key, r in snapshot.readings.items() if key.signal == SIGNAL}
    flags = {point: value for point, value in readings.items() if isinstance(value, MountFlags)}
    if not flags:
        return memory
    blind = any(isinstance(value, Unread) for value in readings.values())
    held = {point for point in memory.mounts if blind or f"{CHECK}|{point}" in memory.holds}
    mounts = {point: seen for point, seen in memory.mounts.items() if point in flags or point in held}
    for point in sorted(flags):
        if point in mounts or len(mounts) < MAX_MOUNTS:
            mounts[point] = _seen(mounts.get(point), flags[point])
    return msgspec.structs.replace(memory, mounts=mounts)


def _seen(known: MountSeen | None, flags: MountFlags) -> MountSeen:
    if known is None or (known.device, known.fstype) != (flags.device, flags.fstype):
        known = MountSeen(device=flags.device, fstype=flags.fstype)
    return msgspec.structs.replace(
        known,
        super_writable=known.super_writable or not flags.super_read_only,
        mount_writable=known.mount_writable or not flags.mount_read_only,
    )
