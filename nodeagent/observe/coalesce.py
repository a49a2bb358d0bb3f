"""Makes one event with a count of the many equal ones that a flood brings.

It must never join what was apart: the repeat rule counts occurrences a minute from each other, so those
stay events of their own, up to as many as the rule remembers.
"""

from __future__ import annotations

import msgspec

from nodeagent.decide.xid_class import EPISODE_SECONDS, MAX_EPISODES
from nodeagent.signals import KernelFault, SxidEvent, XidEvent

LogEvent = XidEvent | SxidEvent | KernelFault
"""What the kernel log can tell."""

FULL_EVENTS = 1000
"""More distinct events than this are handed over at once."""


class _Group:
    """One event and what its repeats add to it."""

    __slots__ = ("at_seconds", "count", "event", "sequence")

    def __init__(self, event: LogEvent, at_seconds: float, sequence: int) -> None:
        self.event = event
        self.at_seconds = at_seconds
        self.sequence = sequence
        self.count = event.count

    def finished(self) -> LogEvent:
        """The event with the newest time and number of its repeats, and the first one's text."""
        return msgspec.structs.replace(
            self.event, at_seconds=self.at_seconds, count=self.count, kernel_sequence=self.sequence
        )


class Coalescer:
    """Events that wait to be handed over."""

    def __init__(self) -> None:
        self._groups: dict[tuple[object, ...], list[_Group]] = {}
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    @property
    def is_full(self) -> bool:
        """True when what waits should not grow further."""
        return self._size >= FULL_EVENTS

    def add(self, event: LogEvent, at_seconds: float, sequence: int) -> None:
        """Join the event with an equal one of the same occurrence, or keep it apart."""
        groups = self._groups.setdefault(_sort_of(event), [])
        last = groups[-1] if groups else None
        apart = last is None or at_seconds - last.at_seconds > EPISODE_SECONDS
        if last is None or (apart and len(groups) < MAX_EPISODES):
            groups.append(_Group(event, at_seconds, sequence))
            self._size += 1
            return
        last.count += event.count
        last.at_seconds = max(last.at_seconds, at_seconds)
        last.sequence = max(last.sequence, sequence)

    def drain(self) -> list[LogEvent]:
        """Everything, in order of time; nothing is left."""
        groups = [group for same in self._groups.values() for group in same]
        self._groups, self._size = {}, 0
        return [group.finished() for group in sorted(groups, key=lambda group: group.at_seconds)]


def _sort_of(event: LogEvent) -> tuple[object, ...]:
    """What equal events have in common: all that a class depends on, not the text."""
    if isinstance(event, KernelFault):
        return (event.kind, event.target)
    if isinstance(event, SxidEvent):
        return (event.pci_address, event.number, event.fatal, event.link)
    return (
        event.pci_address, event.number, event.node_class, event.injected,
        event.recovery_text, event.caused_by, event.detail,
    )
