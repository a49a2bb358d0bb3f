"""Samples what tc holds of ours, with its counters: ifb, HTB tree, filters. It judges nothing.

Where no budget is set and nothing of ours is left, it reads once and then only when asked.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Protocol

from nodeagent.drivers.clock import Clock
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.own_state import Events, OwnStateSampler, Times
from nodeagent.shape import ShapeReading, ShapeState

SIGNAL = "net.shape"
PERIOD_SECONDS = 60.0
GAP_SECONDS = 0.3
"""Least time between two reads. A pod that comes right after another one waits for it."""
SETTLE_SECONDS = 0.1
"""Changes that come within this time are one. A lost ifb loses packets until it is back."""
EVENT_GAP_SECONDS = 1.0
"""Least time from a read to one that a change asks for."""


class ShapeReader(Protocol):
    """What reads tc; `drivers.tc.Shaper` is one."""

    async def read(self) -> ShapeReading:
        """Everything of ours, whole; raises DriverError."""


class ShapeSampler(OwnStateSampler[ShapeReader]):
    """One task; `reader` may come later, when pods are known."""

    def __init__(self, reader: ShapeReader | None, board: Board, inbox: Inbox, clock: Clock) -> None:
        times = Times(
            period_seconds=PERIOD_SECONDS, gap_seconds=GAP_SECONDS, settle_seconds=SETTLE_SECONDS,
            event_gap_seconds=EVENT_GAP_SECONDS,
        )
        super().__init__(SIGNAL, reader, board, inbox, clock, times=times, events=_tc_events)
        self.wanted = False
        """A budget is set."""
        self._is_empty = False

    def idles(self) -> bool:
        """True without a budget and without anything of ours left."""
        return self._is_empty and not self.wanted

    async def read_now(self) -> ShapeReading | None:
        """See OwnStateSampler."""
        self._is_empty = False
        reading = await super().read_now()
        if not isinstance(reading, ShapeReading):
            return None
        self._is_empty = reading.state == ShapeState()
        return reading


def _tc_events(on_event: Callable[[], None]) -> Events:
    """Only where pods are known: the package brings a netlink library."""
    listener: Events = importlib.import_module("nodeagent.drivers.tc").TcEvents(on_event)
    return listener
