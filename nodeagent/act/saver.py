"""Keeps Memory on disk without ever making the cycle wait for a disk.

One save at a time, latest wins. The write runs in a thread of its own, because fsync on a failing
disk can hang for minutes; a pending or failed write is a finding, and the next change tries again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

from nodeagent.errors import DriverError
from nodeagent.memory import Memory
from nodeagent.signals import StateFileStatus

SLOW_SECONDS = 10.0
"""A write pending for longer counts as not writable."""
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
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while nothing waits to be written."""
        self.idle.set()

    def submit(self, memory: Memory, now_seconds: float, after: AfterSave, *, force: bool = False) -> None:
        """Save `memory` if it differs enough from the saved one, then call `after`.

        `now_seconds` is CLOCK_MONOTONIC. `after` is called at once when there is nothing to save.
        """
        lazy = now_seconds - self._saved_at_seconds < LAZY_SECONDS
        if not force and not _differs(self._saved, memory, only_urgent=lazy):
            after()
            return
        self._saved_at_seconds = now_seconds
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
            await self._save(memory)
            after()
            if self._latest is None:
                self.idle.set()

    async def _save(self, memory: Memory) -> None:
        done = asyncio.get_running_loop().create_future()
        threading.Thread(
            target=self._in_thread, args=(memory, asyncio.get_running_loop(), done), daemon=True
        ).start()
        waited_seconds = 0.0
        while not (await asyncio.wait([done], timeout=SLOW_SECONDS))[0]:
            waited_seconds += SLOW_SECONDS
            self._tell(False, f"a write has been pending for {waited_seconds:.0f} s")
        error = done.result()
        if error is None:
            self._saved = memory
        self._tell(error is None, "" if error is None else str(error))

    def _in_thread(
        self, memory: Memory, loop: asyncio.AbstractEventLoop, done: asyncio.Future[DriverError | None]
    ) -> None:
        error: DriverError | None = None
        try:
            self._store.save(memory)
        except DriverError as failure:
            error = failure
        loop.call_soon_threadsafe(done.set_result, error)

    def _tell(self, writable: bool, detail: str) -> None:
        self._report(StateFileStatus(writable=writable, detail=detail, set_aside=self._set_aside))


def _differs(saved: Memory | None, memory: Memory, *, only_urgent: bool) -> bool:
    """True when a restart from `saved` would judge otherwise than one from `memory`."""
    if saved is None:
        return True
    urgent = ("boot_id", "holds", "history", "incidents", "release", "verdict", "baseline", "marks")
    counted = ("xids", "unmatched", "gpus", "kernel_log", "traffic")
    lazy = (*counted, "unknown", "driver_version", "driver_absent")
    names = urgent if only_urgent else urgent + lazy
    return any(getattr(saved, name) != getattr(memory, name) for name in names)
