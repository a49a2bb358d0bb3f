"""Samples links, addresses and routes: after netlink events, and once a minute for the byte counters.

A storm of events never costs more than a hundredth of a core for long: what reads take is paid from an
allowance, and once that is used up the next one waits. It judges nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from nodeagent.drivers.clock import Clock
from nodeagent.drivers.links import LinkEvents
from nodeagent.errors import DriverError
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.pace import Allowance, woken
from nodeagent.signals import SignalKey, Unread, read_as
from nodeagent.traffic import LinkState, PodList

SIGNAL = "net.links"
PERIOD_SECONDS = 60.0
SETTLE_SECONDS = 0.2
"""Events that come within this time are one."""
GAP_SECONDS = 1.0
"""Least time between two reads."""
COST_RATIO = 100.0
"""A read is paid with this many times what it took."""
SAVED_SECONDS = 60.0
"""How much of that quiet times save up: a device that comes or goes is seen at once, a slow read or not."""
RETRY_SECONDS = 15.0
"""Pause before netlink is listened to again after that failed."""


class StateReader(Protocol):
    """What reads the links; `drivers.links.LinkReader` is one."""

    devices: frozenset[int]
    """Interface indexes seen by the last read."""

    async def read(self, owners: Mapping[str, str], uplinks: tuple[str, ...]) -> LinkState:
        """The state now; raises DriverError."""


class LinkSampler:
    """One task."""

    def __init__(
        self, reader: StateReader, board: Board, inbox: Inbox, clock: Clock, *,
        uplinks: tuple[str, ...] = ("auto",), on_devices: Callable[[], None] = lambda: None,
    ) -> None:
        """`uplinks`: as configured; `on_devices`: called after a device came or went."""
        self._reader = reader
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._uplinks = uplinks
        self._on_devices = on_devices
        self._wake = asyncio.Event()
        self._events = LinkEvents(self._on_event)
        self._listening = False
        self._allowance = Allowance(COST_RATIO, SAVED_SECONDS)

    async def run(self) -> None:
        """Sample for ever; cancel it to end."""
        try:
            while True:
                self._listen()
                self._wake.clear()
                began_seconds = self._clock.monotonic_seconds()
                await self.read_now()
                await self._wait(began_seconds)
        finally:
            self._events.close()
            self._listening = False

    def request_now(self) -> None:
        """Read soon instead of at the next period."""
        self._wake.set()

    def apply(self, uplinks: tuple[str, ...]) -> None:
        """Take reloaded settings."""
        if uplinks != self._uplinks:
            self._uplinks = uplinks
            self._wake.set()

    # ------------------------------------------------------------------ reading

    def _listen(self) -> None:
        if not self._listening:
            # Without events the period still finds every change.
            with contextlib.suppress(DriverError):
                self._events.start()
                self._listening = True

    def _on_event(self) -> None:
        self._wake.set()

    def _owners(self) -> dict[str, str]:
        """Pod address -> uid; an address that two pods claim belongs to the one that has not finished."""
        listed = read_as(self._board.readings().get(SignalKey("pods", NODE)), PodList)
        if listed is None:
            return {}
        pods = [pod for pod in listed.pods if not pod.host_network and not pod.finished]
        return {address: pod.uid for pod in pods for address in pod.addresses}

    async def read_now(self) -> None:
        """Read and put the links, or why they could not be read, on the board."""
        before = self._board.readings().get(SignalKey(SIGNAL, NODE))
        devices = self._reader.devices
        value: LinkState | Unread
        try:
            value = await self._reader.read(self._owners(), self._uplinks)
        except DriverError as error:
            value = Unread(kind=error.kind, reason=str(error))
        self._board.put(SIGNAL, NODE, value)
        if before is None or _shape(before.value) != _shape(value):
            self._inbox.wake()
        if before is not None and devices != self._reader.devices:
            self._on_devices()

    async def _wait(self, began_seconds: float) -> None:
        """Until the next read is asked for, or its period is over, and it may begin."""
        now_seconds = self._clock.monotonic_seconds()
        paid_seconds = self._allowance.spend(began_seconds, now_seconds - began_seconds)
        period_seconds = PERIOD_SECONDS if self._listening else RETRY_SECONDS
        due_seconds = min(max(now_seconds + GAP_SECONDS, paid_seconds), now_seconds + period_seconds)
        await woken(self._wake, period_seconds)
        left_seconds = due_seconds - self._clock.monotonic_seconds()
        await asyncio.sleep(max(SETTLE_SECONDS, left_seconds))


def _shape(value: LinkState | Unread) -> object:
    """What of the links asks for a cycle when it changes: all but the byte counters."""
    if isinstance(value, Unread):
        return value
    return (
        [(link.name, link.index, link.mtu, link.operational) for link in value.uplinks],
        value.on_link_prefixes, value.own_addresses, value.host_namespace,
        [(link.name, link.address) for link in value.pod_links],
    )
