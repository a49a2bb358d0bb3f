"""Keeps Memory on disk without ever making the cycle wait for a disk.

One save at a time, latest wins. The write runs in a thread of its own, because fsync on a failing
disk can hang for minutes; a pending or failed write is a finding, and the next change tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from nodeagent.drivers.store import Store
from nodeagent.errors import DriverError
from nodeagent.memory import Hold, Memory
from nodeagent.signals import StateFileStatus

SLOW_SECONDS = 10.0
"""A write pending for longer counts as not writable."""
LOAD_SECONDS = 5.0
"""A file that cannot be read within this time is left for later; the node is judged without it."""
LAST_BAD_SECONDS = 60.0
"""How far the saved time of a standing fault's last bad poll may lag."""
LAZY_SECONDS = 10.0
"""Least time between two saves of what only counts (Xid repeats, ECC counters)."""

AfterSave = Callable[[], None]


class StateStore(Protocol):
    """What can keep a Memory; blocks, raises DriverError."""

    def save(self, memory: Memory) -> None:
        """Replace the saved memory in one step."""


class Saver:
    """Saves what changed; `report` gets the state of the file after each attempt."""

    def __init__(
        self, store: StateStore, report: Callable[[StateFileStatus], None], set_aside: str = ""
    ) -> None:
        self._store = store
        self._report = report
        self._set_aside = set_aside
        self._saved: Memory | None = None
        self._saved_at_seconds = float("-inf")
        self._latest: tuple[Memory, AfterSave] | None = None
        self._hangs = False
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while nothing waits to be written."""
        self.idle.set()

    def submit(self, memory: Memory, now_seconds: float, after: AfterSave, *, force: bool = False) -> None:
        """Save `memory` if it differs enough from the saved one, then call `after`.

        `now_seconds` is CLOCK_MONOTONIC. `after` is called at once when there is nothing to save, and
        when the disk hangs: a dead disk must not keep the GPUs from being released.
        """
        lazy = now_seconds - self._saved_at_seconds < LAZY_SECONDS
        if not force and not _differs(self._saved, memory, only_urgent=lazy):
            after()
            return
        self._saved_at_seconds = now_seconds
        if self._hangs:
            after()
            after = _nothing
        self._latest = (memory, after)
        self.idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Serve saves until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._latest is None:
                continue
            (memory, after), self._latest = self._latest, None
            await self._save(memory, after)
            if self._latest is None:
                self.idle.set()

    async def _save(self, memory: Memory, after: AfterSave) -> None:
        done = asyncio.get_running_loop().create_future()
        thread = threading.Thread(
            target=self._in_thread, args=(memory, asyncio.get_running_loop(), done), daemon=True
        )
        try:
            thread.start()
        except RuntimeError as failure:  # no memory or process id left for a thread
            done.set_result(failure)
        waited_seconds = 0.0
        while not (await asyncio.wait([done], timeout=SLOW_SECONDS))[0]:
            waited_seconds += SLOW_SECONDS
            self._tell(False, f"a write has been pending for {waited_seconds:.0f} s")
            if not self._hangs:
                self._go_on(after)
        error = done.result()
        if error is None:
            self._saved = memory
        self._tell(error is None, "" if error is None else str(error))
        if not self._hangs:
            after()
        self._hangs = False

    def _go_on(self, after: AfterSave) -> None:
        """Let the latest of what waits for a save go ahead: the disk hangs."""
        self._hangs = True
        if self._latest is not None:
            memory, after = self._latest
            self._latest = (memory, _nothing)
        after()

    def _in_thread(
        self, memory: Memory, loop: asyncio.AbstractEventLoop, done: asyncio.Future[Exception | None]
    ) -> None:
        error: Exception | None = None
        try:
            self._store.save(memory)
        except Exception as failure:  # whatever it is, the next save must not wait for it for ever
            error = failure
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_settle, done, error)

    def _tell(self, writable: bool, detail: str) -> None:
        self._report(StateFileStatus(writable=writable, detail=detail, set_aside=self._set_aside))


def _nothing() -> None:
    pass


def _settle(done: asyncio.Future[Exception | None], error: Exception | None) -> None:
    if not done.done():
        done.set_result(error)


def load(
    path: str, node_name: str, *, look_only: bool = False
) -> tuple[StateStore, Memory, StateFileStatus]:
    """The store at `path`, the memory in it, and how reading it went; takes LOAD_SECONDS at most.

    Where it could not be read the memory is empty, and the first save sets the old file aside.
    `look_only`: the file is touched in no way.
    """
    answers: queue.SimpleQueue[tuple[Memory, StateFileStatus]] = queue.SimpleQueue()

    def read() -> None:
        try:
            memory, set_aside = Store(path, look_only=look_only).load(node_name)
        except DriverError as error:
            answers.put((Memory(node_name=node_name), StateFileStatus(writable=False, detail=str(error))))
        else:
            answers.put((memory, StateFileStatus(writable=True, set_aside=set_aside)))

    threading.Thread(target=read, daemon=True).start()
    try:
        memory, status = answers.get(timeout=LOAD_SECONDS)
    except queue.Empty:
        memory = Memory(node_name=node_name)
        detail = f"read on {path}: no answer within {LOAD_SECONDS:g} s"
        status = StateFileStatus(writable=False, detail=detail)
    return Store(path, keep_unread=not status.writable), memory, status


def _differs(saved: Memory | None, memory: Memory, *, only_urgent: bool) -> bool:
    """True when a restart from `saved` would judge otherwise than one from `memory`."""
    if saved is None:
        return True
    if _holds_differ(saved.holds, memory.holds, only_urgent=only_urgent):
        return True
    urgent = ("boot_id", "history", "incidents", "release", "verdict", "baseline", "marks", "cluster",
              "silences", "mounts")
    counted = ("xids", "unmatched", "gpus", "kernel_log", "traffic", "fault_counts")
    lazy = (*counted, "unknown", "driver_version", "driver_absent")
    names = urgent if only_urgent else urgent + lazy
    return any(getattr(saved, name) != getattr(memory, name) for name in names)


def _holds_differ(saved: Mapping[str, Hold], holds: Mapping[str, Hold], *, only_urgent: bool) -> bool:
    """A fault that merely goes on renews the time of its last bad poll: worth a write now and then."""
    if saved.keys() != holds.keys():
        return True
    for key, hold in holds.items():
        if _essence(hold) != _essence(saved[key]):
            return True
        late_seconds = _seconds(hold) - _seconds(saved[key])
        if not only_urgent and late_seconds >= LAST_BAD_SECONDS:
            return True
    return False


def _essence(hold: Hold) -> tuple[object, ...]:
    return (hold.state, hold.since, hold.node_class, hold.polls, hold.good_polls, hold.cause)


def _seconds(hold: Hold) -> float:
    return hold.last_bad.monotonic_seconds if hold.last_bad is not None else 0.0
