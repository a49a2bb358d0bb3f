"""The host sampler with real children: one dead mount never blinds the rest."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.worker import Worker
from nodeagent.errors import ErrorKind
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.node import NODE_SIGNALS, NodeSampler
from nodeagent.signals import DiskUsage, Reading, SignalKey, Unread
from tests.drivers.fuse import DeadMount, can_mount
from tests.drivers.rig import HOST, QUICK, alive, check_leaks, child_processes, until

needs_fuse = pytest.mark.skipif(not can_mount(), reason="needs root and FUSE: sudo modprobe fuse")


class Rig:
    """A sampler at work on this machine, with its board."""

    def __init__(self, poll_seconds: float, **options: Any) -> None:
        clock = SystemClock()
        self.board, self.inbox = Board(clock), Inbox()
        deadlines = {**QUICK, "call_deadline_seconds": 1.0, "stuck_seconds": 3.0, "kill_seconds": 0.0}
        self.worker = Worker("host", options.pop("argv", HOST), clock, **deadlines)
        self.sampler = NodeSampler(
            self.worker, self.board, self.inbox, clock, poll_seconds=poll_seconds, **options
        )

    def reading(self, signal_name: str, target: str = NODE) -> Reading | None:
        """What the board has of a signal."""
        return self.board.readings().get(SignalKey(signal_name, target))

    def value(self, signal_name: str, target: str = NODE) -> Any:
        """Its value, None when there is none."""
        reading = self.reading(signal_name, target)
        return None if reading is None else reading.value

    def sequence(self, signal_name: str, target: str = NODE) -> int:
        """Counts writes; 0 when there is none."""
        reading = self.reading(signal_name, target)
        return 0 if reading is None else reading.sequence


def sampling(main: Callable[[Rig], Awaitable[None]], poll_seconds: float = 0.2, **options: Any) -> None:
    """Run `main` beside a sampler; nothing is left behind."""

    async def whole() -> None:
        rig = Rig(poll_seconds, **options)
        task = asyncio.create_task(rig.sampler.run())
        try:
            await asyncio.wait_for(main(rig), 90)
        finally:
            task.cancel()
            await rig.worker.stop()

    check_leaks(whole())


def test_every_signal_of_the_host_is_read() -> None:
    """Each signal gets a reading, the root disk a size, and the worker is idle in between."""

    async def main(rig: Rig) -> None:
        await until(lambda: isinstance(rig.value("disk.usage", "/"), DiskUsage))
        assert all(rig.reading(name) for name in NODE_SIGNALS)
        root = rig.value("disk.usage", "/")
        assert 0 <= root.available_bytes <= root.size_bytes
        assert 0 < root.used_bytes <= root.size_bytes
        await until(lambda: rig.value("worker.host").state == "idle")
        again = rig.sequence("disk.usage", "/")
        await until(lambda: rig.sequence("disk.usage", "/") > again)

    sampling(main)


def test_a_request_reads_before_the_next_poll() -> None:
    """request_now starts a round at once, however long the period."""

    async def main(rig: Rig) -> None:
        await until(lambda: rig.sequence("disk.usage", "/"))
        first = rig.sequence("disk.usage", "/")
        await asyncio.sleep(0.1)
        rig.sampler.request_now()
        await until(lambda: rig.sequence("disk.usage", "/") > first)

    sampling(main, poll_seconds=3600)


def test_a_killed_worker_is_back_before_anything_is_unknown() -> None:
    """kill -9 costs one restart and no reading."""

    async def main(rig: Rig) -> None:
        await until(lambda: rig.value("worker.host").state == "idle")
        pid, before = rig.worker.status.pid, rig.sequence("disk.usage", "/")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: rig.worker.status.restarts == 1)
        assert isinstance(rig.value("disk.usage", "/"), DiskUsage)
        await until(lambda: rig.sequence("disk.usage", "/") > before)
        assert isinstance(rig.value("disk.usage", "/"), DiskUsage)

    sampling(main, poll_seconds=60)


@needs_fuse
def test_a_dead_mount_that_nobody_named_is_never_touched(tmp_path: Path) -> None:
    """Read-alls succeed beside a FUSE mount that answers nothing."""

    async def main(rig: Rig) -> None:
        await until(lambda: rig.sequence("disk.usage", "/"))
        first = rig.sequence("disk.usage", "/")
        await until(lambda: rig.sequence("disk.usage", "/") > first)
        assert rig.value("disk.usage", str(tmp_path / "dead")) is None
        assert rig.worker.status.restarts == 0

    with DeadMount(tmp_path / "dead"):
        sampling(main)


@needs_fuse
def test_a_named_dead_mount_is_shown_and_then_left_alone(tmp_path: Path) -> None:
    """The hung statvfs has a name, wakes the cycle, costs one worker, and the other signals go on."""
    dead = str(tmp_path / "dead")

    async def main(rig: Rig) -> None:
        await until(lambda: rig.worker.status.pending_call == f"statvfs {dead}")
        assert await asyncio.wait_for(rig.inbox.urgent.wait(), 10)
        await until(lambda: rig.worker.status.restarts == 1)
        shown = rig.value("disk.usage", dead)
        assert isinstance(shown, Unread) and shown.kind is ErrorKind.TIMEOUT
        before = rig.sequence("kubelet.health"), rig.sequence("disk.usage", "/")
        await until(lambda: rig.sequence("kubelet.health") > before[0])
        await until(lambda: rig.sequence("disk.usage", "/") > before[1])
        assert isinstance(rig.value("disk.usage", "/"), DiskUsage)
        assert rig.value("disk.usage", dead).kind is ErrorKind.TIMEOUT
        assert rig.worker.status.restarts == 1

    with DeadMount(tmp_path / "dead"):
        sampling(main, paths=(dead,))


@needs_fuse
@pytest.mark.parametrize(("entry", "call", "lost"), [
    ("driver", "read the driver version", "gpu.kernel_driver"),
    ("1", "read mountinfo", "disk.usage"),
])
def test_a_read_of_proc_that_hangs_costs_its_own_signal_only(
    tmp_path: Path, entry: str, call: str, lost: str
) -> None:
    """It is named, costs one worker and is left alone; every other signal of the host goes on."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / entry).symlink_to(tmp_path / "dead")

    async def main(rig: Rig) -> None:
        await until(lambda: rig.worker.status.pending_call == call)
        await until(lambda: rig.worker.status.restarts == 1)
        others = [name for name in NODE_SIGNALS if name != lost]
        before = {name: rig.sequence(name) for name in others}
        await until(lambda: all(rig.sequence(name) > before[name] for name in others))
        await until(lambda: isinstance(rig.value(lost), Unread))
        assert rig.value(lost).kind is ErrorKind.TIMEOUT
        assert rig.worker.status.restarts == 1

    with DeadMount(tmp_path / "dead"):
        sampling(main, proc_root=str(tmp_path / "proc"))


@needs_fuse
def test_a_worker_that_cannot_be_killed_stays_alone(tmp_path: Path) -> None:
    """Killed in vain in uninterruptible sleep, it is shown as stuck, and only its end brings another."""
    before = child_processes()

    async def main(rig: Rig) -> None:
        with DeadMount(tmp_path / "dead", takes_requests=True) as dead:
            rig.sampler.set_paths((str(dead.directory),))
            await stuck_until_it_ends(rig, dead)

    async def stuck_until_it_ends(rig: Rig, dead: DeadMount) -> None:
        await until(lambda: rig.worker.status.state == "stuck")
        pid = rig.worker.status.pid
        assert pid is not None
        for _ in range(20):  # many polls' worth
            rig.sampler.request_now()
            await asyncio.sleep(0.05)
            assert child_processes() - before == {pid}
        assert rig.worker.status.state == "stuck"
        dead.end()
        await until(lambda: not alive(pid))
        await until(lambda: rig.worker.status.state == "idle")
        assert rig.worker.status.pid != pid

    sampling(main)


def test_a_worker_that_cannot_be_started_is_shown_with_the_reason() -> None:
    """Without a process there is a status all the same, and it says why."""

    async def main(rig: Rig) -> None:
        await until(lambda: rig.value("worker.host") is not None and rig.value("worker.host").error_detail)
        assert "cannot start the worker" in rig.value("worker.host").error_detail

    sampling(main, argv=("/nonexistent/python",))


def test_a_vanished_disk_is_dropped(tmp_path: Path) -> None:
    """A path that no longer exists leaves the board with the next read-all."""
    (tmp_path / "here").mkdir()

    async def main(rig: Rig) -> None:
        path = str(tmp_path / "here")
        await until(lambda: isinstance(rig.value("disk.usage", path), DiskUsage))
        (tmp_path / "here").rmdir()
        await until(lambda: rig.value("disk.usage", path) is None)
        rig.sampler.set_paths((str(tmp_path),))
        await until(lambda: isinstance(rig.value("disk.usage", str(tmp_path)), DiskUsage))

    sampling(main, paths=(str(tmp_path / "here"),))


def test_an_unreadable_list_of_mounts_leaves_no_disk_good(tmp_path: Path) -> None:
    """Without mountinfo the disks become unknown, and the other signals are still read."""
    proc = tmp_path / "proc"
    (proc / "1").mkdir(parents=True)
    (proc / "1/mountinfo").write_bytes(Path("/proc/self/mountinfo").read_bytes())

    async def main(rig: Rig) -> None:
        await until(lambda: isinstance(rig.value("disk.usage", "/"), DiskUsage))
        (proc / "1/mountinfo").unlink()
        await until(lambda: isinstance(rig.value("disk.usage", "/"), Unread))
        again = rig.sequence("clock.sync")
        await until(lambda: rig.sequence("clock.sync") > again)
        assert not isinstance(rig.value("clock.sync"), Unread)

    sampling(main, proc_root=str(proc))
