"""Threads of processes with a GPU open that sleep uninterruptibly: a bounded scan of /proc.

Only files are read that take no lock of the process's memory (`stat`, `schedstat`, the names under `fd`):
`cmdline`, `environ` and `maps` wait for that lock, which a process in the D state may hold for ever. No
open file is followed to the file system that it is on.
"""

from __future__ import annotations

import os
import re
import time

from msgspec import Struct

from nodeagent.drivers.host.system import driver_error
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.host_signals import BlockedTask, GpuHolders
from nodeagent.model import NODE
from nodeagent.wire import HostArguments

SCAN_SECONDS = 60.0
"""Between two scans of all processes."""
LOOK_AGAIN_SECONDS = 600.0
"""A known process may have opened a GPU since; its open files are looked at again after this."""
MAX_BLOCKED = 32
MAX_THREADS = 65536
"""More threads of holders than this are not read in one scan."""

_KERNEL_THREAD = 0x00200000
_READ_BYTES = 4096
_DEVICE = "/dev/nvidia"


class _Process:
    """What is known of one process."""

    __slots__ = ("holds", "looked_at_seconds", "started")

    def __init__(self, started: int) -> None:
        self.started = started
        self.holds = False
        self.looked_at_seconds = float("-inf")


class _Stat(Struct, frozen=True, kw_only=True):
    """The fields of /proc/PID/stat that are used."""

    name: str
    state: str
    parent: int
    flags: int
    threads: int
    started: int


class Processes:
    """Remembers from scan to scan who holds a GPU, and who has not run since when."""

    def __init__(self) -> None:
        self._known: dict[int, _Process] = {}
        self._asleep: dict[tuple[int, int], tuple[int, float]] = {}
        """(pid, thread) -> times it ran, and CLOCK_MONOTONIC when it was first seen asleep since."""
        self._last: GpuHolders | None = None
        self._refused = 0

    def read(self, arguments: HostArguments) -> GpuHolders:
        """Who holds a GPU and does not wake up; between two scans the last answer again.

        Raises DriverError: absent without an NVIDIA device node, denied when /proc cannot be listed.
        """
        if not _has_device(arguments.host_root):
            raise DriverError(ErrorKind.ABSENT, NODE, "scan processes", "no NVIDIA device node in /dev")
        now_seconds = time.monotonic()
        last = self._last
        due = last is None or self._asleep or now_seconds - last.scanned_at_seconds >= SCAN_SECONDS - 1.0
        if due:
            self._last = last = self._scan(arguments.proc_root, now_seconds)
        assert last is not None
        return last

    def _scan(self, proc_root: str, now_seconds: float) -> GpuHolders:
        try:
            pids = [int(name) for name in os.listdir(proc_root) if name.isdigit()]  # noqa: PTH208 - 4x faster
        except OSError as error:
            raise driver_error(error, proc_root, "list") from error
        self._known = {pid: self._known[pid] for pid in pids if pid in self._known}
        self._refused = 0
        holders = [(pid, stat) for pid in pids if (stat := self._holder(proc_root, pid, now_seconds))]
        asleep: dict[tuple[int, int], tuple[int, float]] = {}
        blocked: list[BlockedTask] = []
        left = MAX_THREADS
        for pid, stat in holders:
            threads = [pid] if stat.threads <= 1 else _threads(proc_root, pid)[: max(1, left)]
            left -= len(threads)
            for thread in threads:
                task = self._asleep_task(proc_root, pid, thread, now_seconds, asleep)
                if task is not None:
                    blocked.append(task)
        self._asleep = asleep
        blocked.sort(key=lambda task: (-task.blocked_seconds, task.pid, task.thread))
        return GpuHolders(
            scanned_at_seconds=now_seconds, holder_count=len(holders), refused_count=self._refused,
            blocked=tuple(blocked[:MAX_BLOCKED]),
        )

    def _holder(self, proc_root: str, pid: int, now_seconds: float) -> _Stat | None:
        """Its stat when the process holds a GPU, or held one before it began to end."""
        stat = _stat(f"{proc_root}/{pid}/stat")
        if stat is None or stat.flags & _KERNEL_THREAD or (stat.state == "Z" and stat.threads <= 1):
            return None  # of a zombie that has threads left, one may be what does not wake up
        if stat.parent == os.getppid() != 0:
            return None  # the agent's own reader of GPUs is judged by driver.stuck
        known = self._known.get(pid)
        if known is None or known.started != stat.started:
            known = self._known[pid] = _Process(stat.started)
        age_seconds = now_seconds - known.looked_at_seconds
        if age_seconds >= LOOK_AGAIN_SECONDS + pid % 60 or (stat.state == "D" and not known.holds):
            self._look(proc_root, pid, known, now_seconds)
        return stat if known.holds else None

    def _look(self, proc_root: str, pid: int, known: _Process, now_seconds: float) -> None:
        """Does it have a GPU open? Once its files are closed while it ends, it counts as before."""
        known.looked_at_seconds = now_seconds
        folder = f"{proc_root}/{pid}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208 - called for each process of the node
        except PermissionError:
            self._refused += 1
            return
        except OSError:
            return
        if not names:
            return
        known.holds = any(_link(f"{folder}/{name}").startswith(_DEVICE) for name in names)

    def _asleep_task(
        self, proc_root: str, pid: int, thread: int, now_seconds: float,
        asleep: dict[tuple[int, int], tuple[int, float]],
    ) -> BlockedTask | None:
        folder = f"{proc_root}/{pid}/task/{thread}"
        stat = _stat(f"{folder}/stat")
        if stat is None or stat.state != "D":
            return None
        runs = _runs(folder)
        before = self._asleep.get((pid, thread))
        since_seconds = before[1] if before is not None and before[0] == runs else now_seconds
        asleep[pid, thread] = (runs, since_seconds)
        return BlockedTask(
            pid=pid, thread=thread, name=stat.name, blocked_seconds=round(now_seconds - since_seconds, 1)
        )


def _has_device(host_root: str) -> bool:
    try:
        return any(name.startswith("nvidia") for name in os.listdir(f"{host_root}/dev"))  # noqa: PTH208 - text
    except OSError:
        return False


def _threads(proc_root: str, pid: int) -> list[int]:
    try:
        names = os.listdir(f"{proc_root}/{pid}/task")  # noqa: PTH208 - called for each holder
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit()]


def _stat(path: str) -> _Stat | None:
    """None when the process is gone, or the line is not of proc(5)'s form."""
    head, _, tail = _read(path).rpartition(b")")
    fields = tail.split()
    if len(fields) < 20 or b"(" not in head:
        return None
    try:
        return _Stat(
            name=_printable(head.partition(b"(")[2]), state=fields[0].decode("ascii", "replace"),
            parent=int(fields[1]), flags=int(fields[6]), threads=int(fields[17]), started=int(fields[19]),
        )
    except ValueError:
        return None


def _runs(folder: str) -> int:
    """How often the thread got a CPU: `schedstat`, else the context switches of `status`."""
    fields = _read(f"{folder}/schedstat").split()
    if len(fields) == 3 and fields[2].isdigit():
        return int(fields[2])
    counts = re.findall(rb"ctxt_switches:\s+(\d+)", _read(f"{folder}/status"))
    return sum(map(int, counts))


def _read(path: str) -> bytes:
    """The beginning of a file of /proc; empty when it is gone. Plain calls: this runs for each process."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - the text alone, quickly
    except OSError:
        return ""


def _printable(name: bytes) -> str:
    """A process name, which its user chooses, without control characters."""
    text = name.decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "?" for character in text)
