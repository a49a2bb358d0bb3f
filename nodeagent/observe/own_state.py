"""Samples what the kernel holds of ours: once a period, soon after changes by others, and when asked.

One task for each part of the kernel; the marks and the shaper are two. It judges nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from nodeagent.drivers.clock import Clock
from nodeagent.errors import DriverError
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.pace import woken
from nodeagent.signals import Unread


class Reader(Protocol):
    """What reads one part of the kernel whole."""

    async def read(self) -> object:
        """All of ours; raises DriverError."""


class Events(Protocol):
    """What hears of changes; see NetlinkListener."""

    def start(self) -> None:
        """Begin to listen; raises DriverError."""

    def close(self) -> None:
        """End; further calls do nothing."""


class Times(Struct, frozen=True, kw_only=True):
    """How often one part is read."""

    period_seconds: float
    gap_seconds: float
    """Least time between two reads."""
    settle_seconds: float
    """Changes by others that come within this time are one."""
    event_gap_seconds: float
    """Least time from a read to one that a change by others asks for: they may change much and often."""


_R = TypeVar("_R", bound=Reader)


class OwnStateSampler(Generic[_R]):
    """One task; `reader` may come later, when it is known what to read with."""

    def __init__(
        self, signal: str, reader: _R | None, board: Board, inbox: Inbox, clock: Clock, *,
        times: Times, events: Callable[[Callable[[], None]], Events],
    ) -> None:
        """`events`: makes a listener that calls what it is given."""
        self.reader = reader
        self._signal = signal
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._times = times
        self._make_events = events
        self._events: Events | None = None
        self._wake = asyncio.Event()
        self._reading = asyncio.Lock()
        self._listening = False
        self._heard: asyncio.TimerHandle | None = None
        self._read_seconds = float("-inf")

    def hears(self) -> bool:
        """True where changes are told at all; without, the period still finds every one."""
        return self.reader is not None

    def idles(self) -> bool:
        """True while there is nothing to look after: then only a request has it read."""
        return False

    async def run(self) -> None:
        """Sample for ever; cancel it to end."""
        try:
            while True:
                self._listen()
                self._wake.clear()
                if self.reader is not None:
                    with contextlib.suppress(DriverError):
                        await self.read_now()
                due_seconds = self._clock.monotonic_seconds() + self._times.gap_seconds
                while not await woken(self._wake, self._times.period_seconds) and self.idles():
                    pass
                await asyncio.sleep(max(0.0, due_seconds - self._clock.monotonic_seconds()))
        finally:
            self._forget_event()
            if self._events is not None:
                self._events.close()
            self._listening = False

    def request_now(self) -> None:
        """Read soon instead of at the next period."""
        self._wake.set()

    async def read_now(self) -> object | None:
        """Read, put it on the board and return it; None without a reader. Raises DriverError."""
        if self.reader is None:
            return None
        async with self._reading:
            self._forget_event()
            self._read_seconds = self._clock.monotonic_seconds()
            try:
                reading = await self.reader.read()
            except DriverError as error:
                self._board.put(self._signal, NODE, Unread(kind=error.kind, reason=str(error)))
                self._inbox.wake()
                raise
            self._board.put(self._signal, NODE, reading)
            self._inbox.wake()
            return reading

    # ------------------------------------------------------------------ changes by others

    def _listen(self) -> None:
        if self.hears() and not self._listening:
            self._events = self._events or self._make_events(self._on_event)
            with contextlib.suppress(DriverError):
                self._events.start()
                self._listening = True

    def _on_event(self) -> None:
        """Also for our own writes: the read that follows each plan ends the wait that begins here."""
        if self._heard is None and not self.idles():
            times = self._times
            gap_seconds = self._read_seconds + times.event_gap_seconds - self._clock.monotonic_seconds()
            loop = asyncio.get_running_loop()
            self._heard = loop.call_later(max(times.settle_seconds, gap_seconds), self._wake.set)

    def _forget_event(self) -> None:
        if self._heard is not None:
            self._heard.cancel()
            self._heard = None
