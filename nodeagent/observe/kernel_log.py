"""Follows the kernel log and puts every Xid and SXid in it, and each trouble of the node, into the inbox.

It must never die quietly, never stop for a record that it cannot read, and never let a flood keep the loop
from other work: each turn reads a bounded number of records, and equal events become one with a count. What
user space wrote is refused, however much it looks like the driver.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from nodeagent.decide import kernel_line
from nodeagent.decide.xid_line import DRIVER_PREFIXES, parse_line
from nodeagent.decide.xid_table import XidTable
from nodeagent.drivers.clock import Clock
from nodeagent.drivers.kmsg import KernelRecord, RecordSource, parse_record
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.memory import KernelLogCursor
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.coalesce import Coalescer, LogEvent
from nodeagent.observe.inbox import Inbox
from nodeagent.signals import KernelLogGap, KernelLogStatus, Unread

SIGNAL = "kernel_log"
BATCH_RECORDS = 2000
"""Records read in one turn of the loop."""
FLUSH_SECONDS = 0.1
"""Events wait no longer than this to be put into the inbox, and only behind an earlier one."""
HEARTBEAT_SECONDS = 15.0
POLL_SECONDS = 0.2
"""How often a source is asked that the loop cannot watch."""
MAX_PAUSE_SECONDS = 30.0
MAX_ERRORS_IN_A_ROW = 100
"""Overruns without a record between them: the source is broken."""
SKEW_SECONDS = 1.0
"""The printk clock drifts from the monotonic one over weeks. A live record that seems further away than
this has the time at which it was read."""
PARSED_LINES = 512
_TELLING = (*DRIVER_PREFIXES, *kernel_line.PREFIXES)


class KernelLog:
    """The reader of one record source, for the life of the daemon."""

    def __init__(
        self,
        open_source: Callable[[], RecordSource],
        board: Board,
        inbox: Inbox,
        clock: Clock,
        table: XidTable,
        *,
        cursor: KernelLogCursor | None = None,
        driver_version: Callable[[], str] = str,
        first_pause_seconds: float = 0.5,
    ) -> None:
        """`open_source` raises DriverError while there is nothing to open. `cursor` is where an earlier run
        stopped; of another boot it says nothing. Pauses between attempts grow from the first to 30 s."""
        self._open_source = open_source
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._table = table
        self._driver_version = driver_version
        self._first_pause_seconds = first_pause_seconds
        same_boot = cursor is not None and cursor.boot_id == clock.instant().boot_id
        self._sequence = cursor.sequence if cursor is not None and same_boot else -1
        self._first_sequence: int | None = None
        self._records = self._lost = self._refused = self._malformed = self._reopened = 0
        self._errors_in_a_row = 0
        self._unsaid_lost = self._said_refused = 0
        self._overrun = False
        self._backfilled = False
        self._live = False
        self._pause_seconds = first_pause_seconds
        self._coalescer = Coalescer()
        self._flushed_seconds = float("-inf")
        self._parsed: dict[str, LogEvent | None] = {}
        self._parsed_for = ""

    async def run(self) -> None:
        """Follow the log until cancelled, opening it anew whenever it breaks off."""
        while True:
            try:
                source = self._open_source()
            except DriverError as error:
                self._unread(error.kind, error.detail or str(error))
            else:
                try:
                    await self._follow(source)
                except OSError as error:
                    reason = error.strerror or str(error)
                    self._unread(ErrorKind.LOST, f"the kernel log broke off ({reason}) and is opened anew")
                    self._reopened += 1
                finally:
                    source.close()
            await asyncio.sleep(self._pause_seconds)
            self._pause_seconds = min(MAX_PAUSE_SECONDS, self._pause_seconds * 2)

    # ------------------------------------------------------------------ reading

    async def _follow(self, source: RecordSource) -> None:
        """Read batch by batch until the source raises OSError."""
        self._live = False
        self._errors_in_a_row = 0
        while True:
            try:
                drained = self._read_batch(source)
            except OSError:
                self._flush()
                raise
            if drained and not self._live:
                self._live = self._backfilled = True
                self._flush()
            wait_seconds = self._flush_when_due()
            if drained:
                await _readable(source, wait_seconds)
            else:
                await asyncio.sleep(0)

    def _read_batch(self, source: RecordSource) -> bool:
        """Take in up to BATCH_RECORDS; True when the source has no more just now."""
        for _ in range(BATCH_RECORDS):
            try:
                raw = source.read()
            except BlockingIOError:
                return True
            except InterruptedError:
                continue
            except OSError as error:
                self._skip_or_raise(error)
                continue
            if not raw:
                raise ConnectionResetError(errno.ECONNRESET, "the other end has closed")
            self._errors_in_a_row = 0
            self._take(raw)
        return False

    def _skip_or_raise(self, error: OSError) -> None:
        """EPIPE: the ring overran us. EINVAL: a record did not fit. Both lose records and go on."""
        self._errors_in_a_row += 1
        passing = error.errno in (errno.EPIPE, errno.EINVAL)
        if not passing or self._errors_in_a_row > MAX_ERRORS_IN_A_ROW:
            raise error
        self._overrun = True

    def _take(self, raw: bytes) -> None:
        record = parse_record(raw)
        if record is None:
            self._malformed += 1
            return
        if self._first_sequence is None:
            self._first_sequence = record.sequence
        if record.sequence <= self._sequence:
            return
        self._note_gap(record.sequence)
        self._sequence = record.sequence
        self._records += 1
        self._pause_seconds = self._first_pause_seconds
        if not record.text.startswith(_TELLING):
            return
        if record.facility != 0:
            self._refused += 1
            return
        event = self._event(record.text)
        if event is not None:
            self._coalescer.add(event, self._at_seconds(record), record.sequence)

    def _note_gap(self, sequence: int) -> None:
        lost = sequence - self._sequence - 1 if self._sequence >= 0 else 0
        if self._overrun:
            lost = max(1, lost)
        self._overrun = False
        self._lost += lost
        self._unsaid_lost += lost

    def _event(self, text: str) -> LogEvent | None:
        """The line's event, without time; a flood repeats few lines, so what they say is kept."""
        version = self._driver_version()
        if version != self._parsed_for or len(self._parsed) >= PARSED_LINES:
            self._parsed, self._parsed_for = {}, version
        if text not in self._parsed:
            if text.startswith(DRIVER_PREFIXES):
                self._parsed[text] = parse_line(text, 0.0, self._table, version)
            else:
                self._parsed[text] = kernel_line.parse_fault(text, 0.0)
        return self._parsed[text]

    def _at_seconds(self, record: KernelRecord) -> float:
        now_seconds = self._clock.monotonic_seconds()
        if self._live and abs(now_seconds - record.at_seconds) > SKEW_SECONDS:
            return now_seconds
        return min(record.at_seconds, now_seconds)

    # ------------------------------------------------------------------ handing over

    def _flush_when_due(self) -> float:
        """Hand over what is due; seconds until the next hand-over."""
        waited_seconds = self._clock.monotonic_seconds() - self._flushed_seconds
        waiting = bool(self._coalescer) or self._unsaid_lost > 0 or self._refused > self._said_refused
        due_seconds = FLUSH_SECONDS if waiting else HEARTBEAT_SECONDS
        if waited_seconds >= due_seconds or self._coalescer.is_full:
            self._flush()
            return HEARTBEAT_SECONDS
        return due_seconds - waited_seconds

    def _flush(self) -> None:
        """Events first, then the status that says how far they go, with nothing awaited between."""
        for event in self._coalescer.drain():
            self._inbox.put(event, urgent=True)
        now_seconds = self._clock.monotonic_seconds()
        if self._unsaid_lost:
            self._inbox.put(KernelLogGap(lost_records=self._unsaid_lost, at_seconds=now_seconds))
            self._unsaid_lost = 0
        self._said_refused = self._refused
        self._board.put(SIGNAL, NODE, KernelLogStatus(
            sequence=self._sequence, records=self._records, lost_records=self._lost,
            refused_records=self._refused, reopened=self._reopened, backfilled=self._backfilled,
            malformed_records=self._malformed, first_sequence=self._first_sequence,
        ))
        self._flushed_seconds = now_seconds

    def _unread(self, kind: ErrorKind, reason: str) -> None:
        self._board.put(SIGNAL, NODE, Unread(kind=kind, reason=reason))


async def _readable(source: RecordSource, timeout_seconds: float) -> None:
    """Return when a record waits or the time is over; a source that cannot be watched is polled."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    descriptor = source.fileno()
    try:
        loop.add_reader(descriptor, _wake, ready)
    except (OSError, ValueError):
        await asyncio.sleep(min(POLL_SECONDS, timeout_seconds))
        return
    try:
        await asyncio.wait((ready,), timeout=timeout_seconds)
    finally:
        loop.remove_reader(descriptor)
        ready.cancel()


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
