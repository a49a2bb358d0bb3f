"""A kernel log reader under test: scripted and real sources, and a board and inbox to look at."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Sequence

from nodeagent.decide.xid_table import XidTable
from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.kmsg import RecordSource
from nodeagent.memory import KernelLogCursor
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.kernel_log import KernelLog
from nodeagent.signals import Event, KernelLogGap, KernelLogStatus, SignalKey, SxidEvent, Unread, XidEvent
from nodeagent.xid_data import load_xid_table

DEADLINE_SECONDS = 30.0
TABLE: XidTable = load_xid_table()
CLOCK = SystemClock()


def raw(
    sequence: int, text: str = "NVRM: nothing", *, facility: int = 0, at_seconds: float | None = None
) -> bytes:
    """One record as /dev/kmsg gives it; its time is now unless told otherwise."""
    at = CLOCK.monotonic_seconds() if at_seconds is None else at_seconds
    return f"{facility << 3 | 4},{sequence},{int(at * 1e6)},-;{text}\n".encode()


def xid(number: int, pci: str = "0000:4e:00", rest: str = "pid=1, name=x") -> str:
    """The text of an Xid line."""
    return f"NVRM: Xid (PCI:{pci}): {number}, {rest}"


def failure(number: int) -> OSError:
    """What a read raises for this errno."""
    return OSError(number, os.strerror(number))


class Scripted:
    """A source that plays a list of records and errors, then has no more; the loop cannot watch it."""

    def __init__(self, script: Iterable[bytes | OSError]) -> None:
        self._script = iter(script)
        self.closed = 0

    def fileno(self) -> int:
        """No descriptor: the reader has to poll."""
        return -1

    def read(self) -> bytes:
        """The next record, or the next error."""
        step = next(self._script, None)
        if step is None:
            raise BlockingIOError(errno.EAGAIN, "no more")
        if isinstance(step, OSError):
            raise step
        return step

    def close(self) -> None:
        """Count it: every source must be closed once."""
        self.closed += 1


class Rig:
    """One reader, and everything it did."""

    def __init__(
        self, *sources: RecordSource | Exception, cursor: KernelLogCursor | None = None,
        driver_version: str = "", capacity: int = 4096,
    ) -> None:
        self.board = Board(CLOCK)
        self.inbox = Inbox(capacity)
        self.opened = 0
        self._sources: list[RecordSource | Exception] = list(sources)
        self.reader = KernelLog(
            self._open, self.board, self.inbox, CLOCK, TABLE,
            cursor=cursor, driver_version=lambda: driver_version, first_pause_seconds=0.001,
        )

    def _open(self) -> RecordSource:
        self.opened += 1
        source = self._sources.pop(0) if self._sources else Scripted(())
        if isinstance(source, Exception):
            raise source
        return source

    @property
    def value(self) -> KernelLogStatus | Unread | None:
        """What the board says of the kernel log."""
        reading = self.board.readings().get(SignalKey("kernel_log", NODE))
        return None if reading is None else reading.value

    @property
    def status(self) -> KernelLogStatus:
        """The same, where it must have been read."""
        assert isinstance(self.value, KernelLogStatus), self.value
        return self.value

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Let the loop run until this is true; fail with what is known when it never is."""
        end_seconds = CLOCK.monotonic_seconds() + DEADLINE_SECONDS
        while not wanted():
            assert CLOCK.monotonic_seconds() < end_seconds, f"never came true: {self.value}"
            await asyncio.sleep(0.001)

    def play(
        self, script: Callable[[], object] | None = None, *, until: Callable[[], bool] | None = None
    ) -> None:
        """Run the reader, do `script`, and stop once `until` holds (default: the log was read to its end)."""

        async def played() -> None:
            task = asyncio.create_task(self.reader.run())
            try:
                if script is not None:
                    await self.until(self._backfilled)
                    script()
                await self.until(until or self._backfilled)
                assert not task.done(), task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(played())

    def _backfilled(self) -> bool:
        return isinstance(self.value, KernelLogStatus) and self.value.backfilled

    def events(self) -> list[Event]:
        """Everything in the inbox, once."""
        return list(self.inbox.drain())


def reported(events: Sequence[Event]) -> list[tuple[str, int, int]]:
    """(address, number, count) of each Xid and SXid."""
    return [(e.pci_address, e.number, e.count) for e in events if isinstance(e, XidEvent | SxidEvent)]


def gaps(events: Sequence[Event]) -> list[int]:
    """Lost records of each gap."""
    return [e.lost_records for e in events if isinstance(e, KernelLogGap)]
