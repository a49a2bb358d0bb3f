"""What a worker's read-all leaves on the board: new values, values grown stale, vanished targets.

A reading that is not renewed must never stay good for ever; one crash of a worker that is replaced
within a second must not make everything unknown either.
"""

from __future__ import annotations

from nodeagent import wire
from nodeagent.drivers.clock import Clock
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.signals import Reading, SignalKey, Unread, WorkerStatus

SHOW_PENDING_SECONDS = 2.0
"""A call pending for longer asks once for an early cycle."""
STALE_POLLS = 4
"""A reading not renewed for so many periods, while reads fail, is not known any more."""


class WorkerReadings:
    """The board as one sampler sees it; `signals` are the only ones its worker may bring."""

    def __init__(
        self, board: Board, inbox: Inbox, clock: Clock, signals: tuple[str, ...], poll_seconds: float
    ) -> None:
        """`poll_seconds`: the sampler's period."""
        self.seen: set[SignalKey] = set()
        """What the running (or last) read-all has brought."""
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._signals = signals
        self._stale_seconds = STALE_POLLS * poll_seconds
        self._pending_shown: float | None = None

    def take(self, message: wire.Value | wire.Missing) -> object:
        """Put one value on the board and return it. Raises DriverError(invalid) for a foreign or odd one."""
        if message.signal not in self._signals:
            detail = f"{message.signal[:80]!r} is not a signal of this worker"
            raise DriverError(ErrorKind.INVALID, message.target, "message", detail)
        value = message.typed() if isinstance(message, wire.Value) else message.unread
        self.seen.add(SignalKey(message.signal, message.target))
        self._board.put(message.signal, message.target, value)
        return value

    def value(self, signal: str) -> object:
        """Value of a signal of the node on the board, None when there is none."""
        reading = self._board.readings().get(SignalKey(signal, NODE))
        return None if reading is None else reading.value

    def fail(self, kind: ErrorKind, reason: str, expected: tuple[str, ...]) -> None:
        """Everything is unknown from now on, signals of the node that were `expected` included.

        The kind absent becomes lost: absent would tell the checks that they do not apply.
        """
        unread = _unread(kind, reason)
        for key in {*self._owned(), *(SignalKey(signal, NODE) for signal in expected)}:
            self._board.put(key.signal, key.target, unread)

    def grow_stale(self, kind: ErrorKind, reason: str) -> None:
        """What was not renewed for several periods is unknown from now on."""
        oldest_seconds = self._clock.monotonic_seconds() - self._stale_seconds
        for key, reading in self._owned().items():
            stale = reading.read_at_seconds < oldest_seconds and not isinstance(reading.value, Unread)
            if stale and key not in self.seen:
                self._board.put(key.signal, key.target, _unread(kind, reason))

    def vanished(self) -> list[SignalKey]:
        """Readings that a finished read-all has not renewed."""
        return [key for key in self._owned() if key not in self.seen]

    def forget(self) -> None:
        """Drop every reading."""
        for key in self._owned():
            self._board.drop(key.signal, key.target)

    def show_pending(self, status: WorkerStatus) -> None:
        """Ask once for an early cycle when a call takes long, so that status names it soon."""
        since_seconds = status.pending_since_seconds
        if since_seconds is None or since_seconds == self._pending_shown:
            return
        if self._clock.monotonic_seconds() - since_seconds > SHOW_PENDING_SECONDS:
            self._pending_shown = since_seconds
            self._inbox.wake()

    def _owned(self) -> dict[SignalKey, Reading]:
        readings = self._board.readings()
        return {key: reading for key, reading in readings.items() if key.signal in self._signals}


def _unread(kind: ErrorKind, reason: str) -> Unread:
    return Unread(kind=ErrorKind.LOST if kind is ErrorKind.ABSENT else kind, reason=reason)
