"""Samples what the kernel holds of our marks, with their counters: rules and sets put into one reading.

A part is never taken for the whole: when one table or set cannot be read, nothing is. It judges nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from nodeagent.drivers.clock import Clock
from nodeagent.errors import DriverError
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.signals import Unread
from nodeagent.traffic import FAMILIES, SET_PREFIX, Counter, MarkReading, MarkState, PodEntry, Rule

SIGNAL = "net.marks"
PERIOD_SECONDS = 60.0
GAP_SECONDS = 1.0
"""Least time between two reads."""
SCAN_SECONDS = 600.0
"""How long a scan for other users of mark bits is good: it reads every rule of both backends."""


class RulesReading(Protocol):
    """What was read of one family's rules; `drivers.iptables.ChainReading` is one."""

    @property
    def state(self) -> MarkState:
        """Chains, rules and jumps."""
    @property
    def totals(self) -> Mapping[str, Counter]:
        """`<family> <comment>` -> counter."""
    @property
    def stray(self) -> tuple[Rule, ...]:
        """Own jumps in a wrong place."""


class RulesReader(Protocol):
    """What reads rules; `drivers.iptables.RuleWriter` is one."""

    @property
    def backend(self) -> str:
        """legacy | nft"""
    async def read(self, family: int) -> RulesReading:
        """Our rules of one family; raises DriverError."""
    async def mark_users(self, mask: int) -> tuple[str, ...]:
        """Foreign rules that use bits of the mark; raises DriverError."""


class EntryReading(Protocol):
    """One entry; `drivers.ipset.SetEntry` is one."""

    @property
    def value(self) -> str:
        """Address or prefix."""
    @property
    def priority(self) -> int:
        """Class id."""
    @property
    def mark(self) -> int:
        """fwmark."""
    @property
    def comment(self) -> str:
        """Owner."""
    @property
    def counter(self) -> Counter:
        """What passed."""


class SetsReading(Protocol):
    """One set; `drivers.ipset.SetReading` is one."""

    @property
    def entries(self) -> Iterable[EntryReading]:
        """All of them."""


class SetsReader(Protocol):
    """What reads sets; `drivers.ipset.IpSets` is one."""

    async def read(self) -> Mapping[str, SetsReading]:
        """Our sets by name; raises DriverError."""


class MarkReader:
    """Rules and sets as one reading."""

    def __init__(self, rules: RulesReader, sets: SetsReader, clock: Clock, mark_mask: int) -> None:
        self._rules = rules
        self._sets = sets
        self._clock = clock
        self._mark_mask = mark_mask
        self._users: tuple[str, ...] = ()
        self._scanned_seconds = float("-inf")

    def forget_scan(self) -> None:
        """Scan for other users of the mark at the next read."""
        self._scanned_seconds = float("-inf")

    async def read(self) -> MarkReading:
        """All of ours in both families; raises DriverError."""
        now_seconds = self._clock.monotonic_seconds()
        if self._mark_mask and now_seconds - self._scanned_seconds >= SCAN_SECONDS:
            self._users = await self._rules.mark_users(self._mark_mask)
            self._scanned_seconds = now_seconds
        rules = {family: await self._rules.read(family) for family in FAMILIES}
        entries = {name: tuple(found.entries) for name, found in (await self._sets.read()).items()}
        totals: dict[str, Counter] = {}
        for reading in rules.values():
            totals.update(reading.totals)
        return MarkReading(
            backend=self._rules.backend,
            states=tuple(_state(family, rules[family], entries) for family in FAMILIES),
            out=_counters(entries, "out"), received=_counters(entries, "in"),
            totals=totals, mark_users=self._users,
        )


class MarkSampler:
    """One task; `reader` may come later, when the backend is known."""

    def __init__(self, reader: MarkReader | None, board: Board, inbox: Inbox, clock: Clock) -> None:
        self.reader = reader
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._wake = asyncio.Event()
        self._reading = asyncio.Lock()

    async def run(self) -> None:
        """Sample for ever; cancel it to end."""
        while True:
            self._wake.clear()
            if self.reader is not None:
                with contextlib.suppress(DriverError):
                    await self.read_now()
            due_seconds = self._clock.monotonic_seconds() + GAP_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), PERIOD_SECONDS)
            await asyncio.sleep(max(0.0, due_seconds - self._clock.monotonic_seconds()))

    def request_now(self) -> None:
        """Read soon instead of at the next period."""
        self._wake.set()

    async def read_now(self) -> MarkReading | None:
        """Read, put it on the board and return it; None without a reader. Raises DriverError."""
        if self.reader is None:
            return None
        async with self._reading:
            try:
                reading = await self.reader.read()
            except DriverError as error:
                self._board.put(SIGNAL, NODE, Unread(kind=error.kind, reason=str(error)))
                self._inbox.wake()
                raise
            self._board.put(SIGNAL, NODE, reading)
            self._inbox.wake()
            return reading


def _state(family: int, rules: RulesReading, entries: Mapping[str, tuple[EntryReading, ...]]) -> MarkState:
    """A jump in a wrong place, or doubled, stands behind the right ones: so they differ from those wanted."""
    cluster = entries.get(f"{SET_PREFIX}cluster{family}", ())
    return MarkState(
        family=family, chains=rules.state.chains, rules=rules.state.rules,
        jumps=(*rules.state.jumps, *rules.stray),
        cluster=tuple(sorted(entry.value for entry in cluster)),
        pods=_pods(
            entries.get(f"{SET_PREFIX}out{family}", ()), entries.get(f"{SET_PREFIX}in{family}", ())
        ),
    )


def _pods(out: Iterable[EntryReading], received: Iterable[EntryReading]) -> tuple[PodEntry, ...]:
    """One entry for each address in either set.

    In one set only: minor 0, which no pod has, so that it is added again. Owners that differ: no comment
    either, which no pod has, so that it is deleted first and nobody inherits counters.
    """
    outward = {entry.value: entry for entry in out}
    inward = {entry.value: entry for entry in received}
    found = []
    for address in sorted(outward.keys() | inward.keys()):
        comments = {entry.comment for entry in (outward.get(address), inward.get(address)) if entry}
        comment = comments.pop() if len(comments) == 1 else ""
        whole = address in outward and address in inward and bool(comment)
        there = outward.get(address)
        found.append(
            PodEntry(
                address=address, minor=there.priority & 0xFFFF if whole and there else 0,
                mark=there.mark if whole and there else 0, comment=comment,
            )
        )
    return tuple(found)


def _counters(entries: Mapping[str, tuple[EntryReading, ...]], direction: str) -> dict[str, Counter]:
    names = [f"{SET_PREFIX}{direction}{family}" for family in FAMILIES]
    return {entry.value: entry.counter for name in names for entry in entries.get(name, ())}
