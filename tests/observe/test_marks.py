"""The marks' sampler: rules and sets of both families as one reading, or none."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from nodeagent.drivers.clock import SystemClock
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.marks import MarkReader, MarkSampler
from nodeagent.signals import SignalKey, Unread
from nodeagent.traffic import Counter, MarkReading, MarkState, PodEntry, Rule
from tests.drivers.rig import HandClock, until

JUMP = Rule(chain="FORWARD", arguments="-o eth0 -j NODEAGENT-EGRESS")


class Entry(NamedTuple):
    """One entry of a set."""

    value: str
    priority: int = 0
    mark: int = 0
    comment: str = ""
    counter: Counter = Counter()


class Set(NamedTuple):
    """One set."""

    entries: tuple[Entry, ...]


class Rules(NamedTuple):
    """One family's rules."""

    state: MarkState
    totals: dict[str, Counter]
    stray: tuple[Rule, ...] = ()


class Kernel:
    """Rules and sets as the test has put them."""

    backend = "nft"

    def __init__(self) -> None:
        self.sets: dict[str, Set] = {}
        self.stray: tuple[Rule, ...] = ()
        self.scans = 0
        self.failing = ""

    async def read(self, family: int | None = None) -> Rules | dict[str, Set]:
        """Rules of a family, or all sets."""
        if self.failing == ("sets" if family is None else f"rules{family}"):
            raise DriverError(ErrorKind.BUSY, self.failing, "read", "interrupted")
        if family is None:
            return self.sets
        state = MarkState(family=family, chains=("NODEAGENT-EGRESS",), jumps=(JUMP,))
        return Rules(state, {f"{family} total": Counter(packets=1, bytes=family)}, self.stray)

    async def mark_users(self, mask: int) -> tuple[str, ...]:
        """A foreign rule; the scan is counted."""
        self.scans += 1
        return (f"-j MARK --set-xmark 0x10000/{mask:#x}",)


def reader(kernel: Kernel, clock: HandClock | None = None, mask: int = 0xFF0000) -> MarkReader:
    """A reader of that kernel."""
    return MarkReader(kernel, kernel, clock or HandClock(), mask)  # type: ignore[arg-type]


def read(kernel: Kernel) -> MarkReading:
    """One reading."""
    return asyncio.run(reader(kernel).read())


def test_rules_and_sets_become_one_reading() -> None:
    """Each family has its rules, prefixes and entries; counters come by address and by total."""
    kernel = Kernel()
    kernel.sets = {
        "nodeagent-cluster4": Set((Entry("192.168.0.0/16"), Entry("10.0.0.0/8"))),
        "nodeagent-out4": Set((Entry("10.1.0.1", 0x4E0010, 0x10000, "n/a/u", Counter(packets=1, bytes=7)),)),
        "nodeagent-in4": Set((Entry("10.1.0.1", 0x4E0010, 0x10000, "n/a/u", Counter(packets=2, bytes=9)),)),
    }

    reading = read(kernel)
    four, six = reading.states

    assert (four.family, four.cluster, four.jumps) == (4, ("10.0.0.0/8", "192.168.0.0/16"), (JUMP,))
    assert four.pods == (PodEntry(address="10.1.0.1", minor=0x10, mark=0x10000, comment="n/a/u"),)
    assert (six.family, six.cluster, six.pods) == (6, (), ())
    assert reading.out["10.1.0.1"].bytes == 7 and reading.received["10.1.0.1"].bytes == 9
    assert {key: counter.bytes for key, counter in reading.totals.items()} == {"4 total": 4, "6 total": 6}
    assert reading.mark_users == ("-j MARK --set-xmark 0x10000/0xff0000",)


@pytest.mark.parametrize(
    ("out", "received", "entry"),
    [
        (Entry("a", 0x4E0010, 1, "x"), None, PodEntry(address="a", minor=0, comment="x")),
        (None, Entry("a", 0x4E0010, 1, "x"), PodEntry(address="a", minor=0, comment="x")),
        (Entry("a", 0x4E0010, 1, "x"), Entry("a", 0x4E0010, 1, "y"), PodEntry(address="a", minor=0)),
        (Entry("a", 0x4E0010, 1, ""), Entry("a", 0x4E0010, 1, ""), PodEntry(address="a", minor=0)),
    ],
    ids=["only out", "only in", "two owners", "no owner"],
)
def test_an_entry_that_is_not_whole_equals_no_wanted_one(
    out: Entry | None, received: Entry | None, entry: PodEntry
) -> None:
    """In one set alone, or with two owners or none, it has a minor that no pod has."""
    kernel = Kernel()
    kernel.sets = {
        "nodeagent-out4": Set((out,) if out else ()), "nodeagent-in4": Set((received,) if received else ()),
    }  # fmt: skip

    assert read(kernel).states[0].pods == (entry,)


def test_a_stray_jump_makes_the_jumps_differ() -> None:
    """A misplaced or doubled jump of ours stands behind the right ones."""
    kernel = Kernel()
    kernel.stray = (JUMP,)

    assert read(kernel).states[0].jumps == (JUMP, JUMP)


def test_other_users_of_the_mark_are_looked_for_seldom() -> None:
    """The scan reads every rule of both backends: once in ten minutes, on request, never without a mask."""
    clock, kernel = HandClock(), Kernel()
    under_test = reader(kernel, clock)
    scans = []
    for step in ("", "", "later", "forget"):
        clock.now_seconds += 600 if step == "later" else 1
        if step == "forget":
            under_test.forget_scan()
        asyncio.run(under_test.read())
        scans.append(kernel.scans)

    assert scans == [1, 1, 2, 3]
    assert asyncio.run(reader(Kernel(), mask=0).read()).mark_users == ()


@pytest.mark.parametrize("part", ["sets", "rules4", "rules6"])
def test_a_part_is_never_taken_for_the_whole(part: str) -> None:
    """One table or the sets unread: the whole is unread, and whoever asked gets the error."""
    board, kernel = Board(SystemClock()), Kernel()
    kernel.failing = part
    sampler = MarkSampler(reader(kernel), board, Inbox(), SystemClock())

    with pytest.raises(DriverError, match=part):
        asyncio.run(sampler.read_now())

    value = board.readings()[SignalKey("net.marks", NODE)].value
    assert isinstance(value, Unread) and value.kind is ErrorKind.BUSY


def test_it_reads_when_a_reader_comes_and_survives_failures() -> None:
    """Without a reader nothing is on the board; a failed read is followed by the next one."""
    board, inbox, kernel = Board(SystemClock()), Inbox(), Kernel()
    sampler = MarkSampler(None, board, inbox, SystemClock())

    def value() -> object:
        reading = board.readings().get(SignalKey("net.marks", NODE))
        return None if reading is None else reading.value

    async def whole() -> None:
        assert await sampler.read_now() is None
        task = asyncio.create_task(sampler.run())
        await asyncio.sleep(0.01)
        assert value() is None
        kernel.failing = "sets"
        sampler.reader = reader(kernel)
        sampler.request_now()
        await until(lambda: isinstance(value(), Unread))
        kernel.failing = ""
        sampler.request_now()
        await until(lambda: isinstance(value(), MarkReading))
        assert inbox.urgent.is_set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(whole())
