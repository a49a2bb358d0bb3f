"""Samples what the kernel holds of our marks, with their counters: rules and sets put into one reading.

A part is never taken for the whole: when one table or set cannot be read, nothing is. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nodeagent.drivers.clock import Clock
from nodeagent.drivers.iptables import LINE_CHAINS, ChainReading, RuleEvents, RuleWriter
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.own_state import OwnStateSampler, Times
from nodeagent.traffic import (
    FAMILIES,
    HTB_MAJOR,
    SET_PREFIX,
    Counter,
    MarkReading,
    MarkSet,
    MarkState,
    PodEntry,
)

if TYPE_CHECKING:
    from nodeagent.drivers.ipset import IpSets, SetEntry, SetReading, SetSpec

SIGNAL = "net.marks"
PERIOD_SECONDS = 60.0
GAP_SECONDS = 0.5
"""Least time between two reads. A pod that comes right after another one waits for it."""
SETTLE_SECONDS = 0.2
"""Changes by others that come within this time are one."""
EVENT_GAP_SECONDS = 5.0
"""Least time from a read to one that a change by others asks for: they may change much and often."""
SCAN_SECONDS = 600.0
"""How long a scan for other users of mark bits is good: it reads every rule of both backends."""


class MarkReader:
    """Rules and sets as one reading."""

    def __init__(self, rules: RuleWriter, sets: IpSets, clock: Clock, mark_mask: int) -> None:
        self._rules = rules
        self._sets = sets
        self._clock = clock
        self._mark_mask = mark_mask
        self._users: tuple[str, ...] = ()
        self._scanned_seconds = float("-inf")

    @property
    def backend(self) -> str:
        """nft | legacy"""
        return self._rules.backend

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
        sets = await self._sets.read()
        return MarkReading(
            backend=self._rules.backend,
            states=tuple(_state(family, rules[family], sets) for family in FAMILIES),
            out=_counters(sets, "out"), received=_counters(sets, "in"),
            totals=_totals(rules), host_pods=_host_pods(rules), mark_users=self._users,
        )


class MarkSampler(OwnStateSampler[MarkReader]):
    """One task; `reader` may come later, when the backend is known."""

    def __init__(self, reader: MarkReader | None, board: Board, inbox: Inbox, clock: Clock) -> None:
        times = Times(
            period_seconds=PERIOD_SECONDS, gap_seconds=GAP_SECONDS, settle_seconds=SETTLE_SECONDS,
            event_gap_seconds=EVENT_GAP_SECONDS,
        )
        super().__init__(SIGNAL, reader, board, inbox, clock, times=times, events=RuleEvents)

    @property
    def takes_cgroups(self) -> bool:
        """True where a rule may match a cgroup: on legacy one whose cgroup ends stops every later write."""
        return self.hears()

    def hears(self) -> bool:
        """True on nft: legacy tables tell nobody of a change."""
        return self.reader is not None and self.reader.backend == "nft"


def _state(family: int, rules: ChainReading, sets: Mapping[str, SetReading]) -> MarkState:
    """A jump of ours that stands behind a foreign rule is there, in a chain that is displaced."""
    def entries(name: str) -> Iterable[SetEntry]:
        found = sets.get(f"{SET_PREFIX}{name}{family}")
        return found.entries if found else ()

    return MarkState(
        family=family, chains=rules.state.chains, rules=rules.state.rules,
        jumps=(*rules.state.jumps, *rules.stray),
        displaced=tuple(sorted({rule.chain for rule in (*rules.stray, *rules.ahead)})),
        sets=tuple(_header(found.spec) for _, found in sorted(sets.items()) if found.spec.family == family),
        cluster=tuple(sorted(entry.value for entry in entries("cluster"))),
        pods=_pods(entries("out"), entries("in")),
    )


def _header(spec: SetSpec) -> MarkSet:
    return MarkSet(
        name=spec.name, kind=spec.kind, counters=spec.counters, comment=spec.comment, skbinfo=spec.skbinfo
    )


def _pods(out: Iterable[SetEntry], received: Iterable[SetEntry]) -> tuple[PodEntry, ...]:
    """One entry for each address in either set."""
    outward = {entry.value: entry for entry in out}
    inward = {entry.value: entry for entry in received}
    return tuple(
        _entry(address, outward.get(address), inward.get(address))
        for address in sorted(outward.keys() | inward.keys())
    )


def _entry(address: str, out: SetEntry | None, received: SetEntry | None) -> PodEntry:
    """What both sets say of an address.

    In one set only, or classed unlike: minor 0, which no pod has, so that it is added again. Owners that
    differ: no comment, which no pod has, so that it is deleted first and nobody inherits counters.
    """
    there = [entry for entry in (out, received) if entry is not None]
    comments = {entry.comment for entry in there}
    classes = {(entry.priority, entry.mark) for entry in there}
    comment = comments.pop() if len(comments) == 1 else ""
    priority, mark = classes.pop() if len(classes) == 1 and len(there) == 2 and comment else (0, 0)
    ours = priority >> 16 == HTB_MAJOR
    return PodEntry(
        address=address, minor=priority & 0xFFFF if ours else 0, mark=mark if ours else 0, comment=comment
    )


def _totals(rules: Mapping[int, ChainReading]) -> dict[str, Counter]:
    """`<family> <comment>` of the rules that say `traffic=`."""
    return {
        f"{family} {comment}": counter
        for family, reading in rules.items() for comment, counter in reading.by_comment.items()
    }  # fmt: skip


def _host_pods(rules: Mapping[int, ChainReading]) -> dict[str, Counter]:
    """Uid of a hostNetwork pod -> what its rules of both families counted."""
    found: dict[str, Counter] = {}
    for reading in rules.values():
        for rule, counter in zip(reading.state.rules, reading.counters, strict=True):
            if rule.chain in LINE_CHAINS:
                uid = rule.arguments.partition('--comment "')[2].partition('"')[0].rpartition("/")[2]
                known = found.get(uid, Counter())
                found[uid] = Counter(
                    packets=known.packets + counter.packets, bytes=known.bytes + counter.bytes
                )
    found.pop("", None)
    return found


def _counters(sets: Mapping[str, SetReading], direction: str) -> dict[str, Counter]:
    found = [sets.get(f"{SET_PREFIX}{direction}{family}") for family in FAMILIES]
    return {entry.value: entry.counter for reading in found if reading for entry in reading.entries}
