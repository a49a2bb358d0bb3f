"""The inbox: what happened since the last cycle, bounded, with a count of what did not fit."""

from __future__ import annotations

import asyncio
from collections import deque

from nodeagent.signals import Event


class Inbox:
    """Events for the next cycle. A full inbox drops the newest and counts it: what is already
    queued explains a storm better than its thousandth repeat."""

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._events: deque[Event] = deque()
        self.dropped = 0
        """Events dropped since start."""
        self.urgent = asyncio.Event()
        """Set while an urgent event waits: the cycle should not wait for its pace."""

    def put(self, event: Event, *, urgent: bool = False) -> bool:
        """Queue one event; False when the inbox is full and the event was dropped."""
        if urgent:
            self.urgent.set()
        if len(self._events) >= self._capacity:
            self.dropped += 1
            return False
        self._events.append(event)
        return True

    def wake(self) -> None:
        """Ask for a cycle soon without an event: new readings are worth judging."""
        self.urgent.set()

    def drain(self) -> tuple[Event, ...]:
        """Take everything and clear the urgency."""
        self.urgent.clear()
        events = tuple(self._events)
        self._events.clear()
        return events
