"""What is observed of the node itself beside its GPUs: the nouns of signals that kernel and runtime tell.

A value that could not be read is an `Unread` in place of the noun; a field that is None says why it may be.
"""

from __future__ import annotations

from msgspec import Struct


class MountFlags(Struct, frozen=True, kw_only=True):
    """Signal `disk.mount` (mount point): may a local file system be written, by mountinfo?"""

    device: str
    fstype: str
    mount_read_only: bool
    """This mount may not write; others of the same file system may."""
    super_read_only: bool
    """Nobody may write: the super block is read-only."""
    reason: str = ""
    """The super block's own word beside "ro": "emergency_ro" or "shutdown" after an error."""


class DiskErrors(Struct, frozen=True, kw_only=True):
    """Signal `disk.errors` (block device, or `btrfs:UUID`): errors that the kernel has counted."""

    scsi_errors: int | None = None
    """Commands that ended with an error, since the device appeared; None: no SCSI device."""
    file_system_errors: int | None = None
    """Kept on the disk until it is checked or reset; None: no file system that counts."""
    fstype: str = ""
    """ext4 or btrfs: whose count that is."""
    state: str = ""
    """Of an NVMe controller: live, resetting, connecting, dead ...; "" for other devices."""


class BlockedTask(Struct, frozen=True, kw_only=True):
    """A thread that sleeps uninterruptibly, of a process that has a GPU open."""

    pid: int
    thread: int
    """Thread id; the pid for the main thread."""
    name: str
    blocked_seconds: float
    """How long it has been seen asleep without running once."""


class GpuHolders(Struct, frozen=True, kw_only=True):
    """Signal `process.gpu_holders` (node): processes that have an NVIDIA device node open."""

    scanned_at_seconds: float
    """CLOCK_MONOTONIC of the scan; a signal read between two scans repeats the last one."""
    holder_count: int
    refused_count: int
    """Processes whose open files may not be seen."""
    blocked: tuple[BlockedTask, ...] = ()
    """The longest blocked first, at most 32."""


class KernelCount(Struct, frozen=True, kw_only=True):
    """Signals `memory.oom_kills` and `kernel.hung_tasks` (node): what the kernel has counted since boot."""

    total_count: int


class MemoryPressure(Struct, frozen=True, kw_only=True):
    """Signal `memory.pressure` (node): /proc/pressure/memory and /proc/meminfo."""

    some_percent: float
    """Part of the last 60 s in which at least one task waited for memory."""
    full_percent: float
    """Part of the last 60 s in which all tasks that wanted to run waited for memory."""
    available_bytes: int
    """What can be had without swapping."""
    size_bytes: int


class RuntimeHealth(Struct, frozen=True, kw_only=True):
    """Signal `runtime.health` (node): the container runtime's answer at its CRI socket."""

    healthy: bool
    detail: str
    """"answers", or why there is none."""
    socket: str
    """Path as the host sees it."""
