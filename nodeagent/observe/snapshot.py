"""Freezes board, drained inbox and the moment into one Snapshot. Never waits for anything."""

from __future__ import annotations

import random

from nodeagent.drivers.clock import Clock
from nodeagent.model import NODE, Now
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.signals import ClockSync, SignalKey, Snapshot


def freeze(board: Board, inbox: Inbox, clock: Clock, node_name: str) -> Snapshot:
    """Everything decide may know of this moment; empties the inbox."""
    readings = board.readings()
    sync = readings.get(SignalKey("clock.sync", NODE))
    synchronized = sync is not None and isinstance(sync.value, ClockSync) and sync.value.synchronized
    return Snapshot(
        now=Now(at=clock.instant(), clock_synchronized=synchronized),
        node_name=node_name,
        readings=readings,
        events=inbox.drain(),
        entropy=random.random(),
        inbox_dropped=inbox.dropped,
    )
