"""Memory reaches the disk before the ops that depend on it, and no disk makes the loop wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from nodeagent.act import saver as saver_module
from nodeagent.act.saver import LAZY_SECONDS, Saver
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.memory import GpuMemory, Hold, Memory
from nodeagent.model import Instant, NodeClass, State
from nodeagent.signals import StateFileStatus


class Disk:
    """A store that keeps what is saved, refuses, or hangs until told."""

    def __init__(self) -> None:
        self.saved: list[Memory] = []
        self.refuse: DriverError | None = None
        self.gate = threading.Event()
        self.gate.set()

    def save(self, memory: Memory) -> None:
        """Save, refuse or hang."""
        self.gate.wait(5)
        if self.refuse is not None:
            raise self.refuse
        self.saved.append(memory)


def play(disk: Disk, script: Callable[[Saver, list[StateFileStatus]], Awaitable[None]]) -> None:
    """Run a script with a running saver."""
    async def main() -> None:
        told: list[StateFileStatus] = []
        saver = Saver(disk, told.append)
        running = asyncio.create_task(saver.run())
        async with asyncio.timeout(5):
            await script(saver, told)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_what_depends_on_a_save_waits_for_it() -> None:
    """`after` is called when the memory is on disk, never before."""
    disk = Disk()
    seen: list[int] = []

    async def script(saver: Saver, _told: list[StateFileStatus]) -> None:
        disk.gate.clear()
        saver.submit(Memory(node_name="a"), 0.0, lambda: seen.append(len(disk.saved)))
        await asyncio.sleep(0.02)
        seen.append(-1)
        disk.gate.set()
        await saver.idle.wait()

    play(disk, script)

    assert seen == [-1, 1]


def test_nothing_to_save_is_nothing_to_wait_for() -> None:
    """An equal memory is not written again and what waits goes on at once."""
    disk = Disk()
    seen: list[str] = []

    async def script(saver: Saver, _told: list[StateFileStatus]) -> None:
        memory = Memory(node_name="a", last_poll_seconds={"x|node": 1.0})
        saver.submit(memory, 0.0, lambda: None)
        await saver.idle.wait()
        polled = msgspec.structs.replace(memory, last_poll_seconds={"x|node": 16.0})
        saver.submit(polled, 100.0, lambda: seen.append("at once"))

    play(disk, script)

    assert (len(disk.saved), seen) == (1, ["at once"])


@pytest.mark.parametrize(("later_seconds", "saves"), [(LAZY_SECONDS - 1, 1), (LAZY_SECONDS + 1, 2)])
def test_what_only_counts_is_saved_now_and_then(later_seconds: float, saves: int) -> None:
    """A counter that moves is worth a write every few seconds, not one in each cycle."""
    disk = Disk()

    async def script(saver: Saver, _told: list[StateFileStatus]) -> None:
        saver.submit(Memory(node_name="a"), 0.0, lambda: None)
        await saver.idle.wait()
        counted = Memory(node_name="a", gpus={"0000:01:00.0": GpuMemory(volatile_corrected=1)})
        saver.submit(counted, later_seconds, lambda: None)
        await saver.idle.wait()

    play(disk, script)

    assert len(disk.saved) == saves


@pytest.mark.parametrize("kind", [ErrorKind.DENIED, ErrorKind.BUSY])
def test_a_save_that_fails_is_told_and_tried_again(kind: ErrorKind) -> None:
    """A full or read-only disk is a finding, ops go on, and the next cycle writes."""
    disk = Disk()
    seen: list[str] = []
    states: list[bool] = []

    async def script(saver: Saver, told: list[StateFileStatus]) -> None:
        disk.refuse = DriverError(kind, "/state", "write", "scripted")
        saver.submit(Memory(node_name="a"), 0.0, lambda: seen.append("after"))
        await saver.idle.wait()
        disk.refuse = None
        saver.submit(Memory(node_name="a"), 15.0, lambda: None)
        await saver.idle.wait()
        states.extend(state.writable for state in told)

    play(disk, script)

    assert (seen, states, len(disk.saved)) == (["after"], [False, True], 1)


def test_a_hanging_disk_is_told_while_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop runs on, and the state says that a write is pending."""
    disk = Disk()
    monkeypatch.setattr(saver_module, "SLOW_SECONDS", 0.02)
    pending: list[StateFileStatus] = []

    async def script(saver: Saver, told: list[StateFileStatus]) -> None:
        disk.gate.clear()
        saver.submit(Memory(node_name="a"), 0.0, lambda: None)
        while not told:
            await asyncio.sleep(0.01)
        pending.extend(told)
        disk.gate.set()
        await saver.idle.wait()

    play(disk, script)

    assert (pending[0].writable, "pending" in pending[0].detail, len(disk.saved)) == (False, True, 1)


def test_a_hanging_disk_does_not_keep_ops_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the plans behind a write that hangs only the latest goes on, and later ones do at once."""
    disk = Disk()
    monkeypatch.setattr(saver_module, "SLOW_SECONDS", 0.05)
    seen: list[str] = []

    async def script(saver: Saver, told: list[StateFileStatus]) -> None:
        disk.gate.clear()
        saver.submit(Memory(node_name="a"), 0.0, lambda: seen.append("old"))
        await asyncio.sleep(0.01)
        saver.submit(Memory(node_name="a", boot_id="b"), 15.0, lambda: seen.append("latest"))
        while not seen:
            await asyncio.sleep(0.01)
        saver.submit(Memory(node_name="a", boot_id="c"), 30.0, lambda: seen.append("later"))
        seen.append("told" if told else "not told")
        disk.gate.set()
        await saver.idle.wait()

    play(disk, script)

    assert seen == ["latest", "later", "told"]
    assert [memory.boot_id for memory in disk.saved] == ["", "c"]


def test_a_bug_in_a_save_is_told_and_does_not_end_saving() -> None:
    """Whatever the store raises, the next save is tried."""
    disk = Disk()
    details: list[str] = []

    async def script(saver: Saver, told: list[StateFileStatus]) -> None:
        disk.refuse = RecursionError("a bug")  # type: ignore[assignment]
        saver.submit(Memory(node_name="a"), 0.0, lambda: None)
        await saver.idle.wait()
        disk.refuse = None
        saver.submit(Memory(node_name="a"), 15.0, lambda: None)
        await saver.idle.wait()
        details.extend(state.detail for state in told)

    play(disk, script)

    assert (details, len(disk.saved)) == (["a bug", ""], 1)


def test_a_file_that_does_not_answer_is_left_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start waits for the disk only so long, says so, and keeps the old file."""
    path = tmp_path / "memory.json"
    path.write_text("unread")
    gate = threading.Event()
    monkeypatch.setattr(saver_module, "LOAD_SECONDS", 0.05)
    answer = (Memory(node_name="late"), "")
    monkeypatch.setattr(saver_module.Store, "load", lambda _store, _name: gate.wait(5) and answer)
    store, memory, status = saver_module.load(str(path), "a")
    gate.set()
    store.save(memory)

    assert (memory, status.writable, "no answer" in status.detail) == (Memory(node_name="a"), False, True)
    assert (tmp_path / "memory.json.bad-0").read_text() == "unread"


@pytest.mark.parametrize(
    ("bad_later_seconds", "now_seconds", "saves"),
    [(15.0, 15.0, 1), (15.0, 3600.0, 1), (61.0, 61.0, 2)],
    ids=["the next poll", "the next poll, long after", "a minute of polls"],
)
def test_a_fault_that_goes_on_is_not_a_write_a_poll(
    bad_later_seconds: float, now_seconds: float, saves: int
) -> None:
    """What a standing fault renews with each poll is saved once a minute."""
    disk = Disk()

    def memory(bad_seconds: float) -> Memory:
        at = Instant(boot_id="b", monotonic_seconds=1.0, wall_seconds=1.0)
        last_bad = msgspec.structs.replace(at, monotonic_seconds=bad_seconds)
        hold = Hold(state=State.CRITICAL, since=at, node_class=NodeClass.RESET, polls="b", last_bad=last_bad)
        return Memory(node_name="a", holds={"xid|0000:01:00.0": hold})

    async def script(saver: Saver, _told: list[StateFileStatus]) -> None:
        saver.submit(memory(1.0), 0.0, lambda: None)
        await saver.idle.wait()
        saver.submit(memory(1.0 + bad_later_seconds), now_seconds, lambda: None)
        await saver.idle.wait()

    play(disk, script)

    assert len(disk.saved) == saves
