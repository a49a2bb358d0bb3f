"""The marks' sampler: rules and sets of both families as one reading, or none."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.ipset import SetEntry, SetReading, SetSpec
from nodeagent.drivers.iptables import ChainReading
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.marks import MarkReader, MarkSampler
from nodeagent.signals import SignalKey, Unread
from nodeagent.traffic import Counter, MarkReading, MarkState, PodEntry, Rule
from tests.drivers.rig import HandClock, until

COUNTING = Rule(chain="NODEAGENT-EGRESS", arguments='-m comment --comment "x traffic=y"')
JUMP = Rule(chain="FORWARD", arguments="-o eth0 -j NODEAGENT-EGRESS")


def sets(**entries: tuple[SetEntry, ...]) -> dict[str, SetReading]:
    """Own sets by the last part of their names: `out4=(entry, ...)`."""
    found = {}
    for short, members in entries.items():
        kind = "hash:net" if short.startswith("cluster") else "hash:ip"
        spec = SetSpec(name=f"nodeagent-{short}", kind=kind, family=int(short[-1]), counters=True)
        found[spec.name] = SetReading(spec=spec, entries=members)
    return found


def entry(value: str = "a", comment: str = "n/a/u", priority: int = 0x4E0010, size: int = 0) -> SetEntry:
    """An entry of class 4e:10 with a mark."""
    counter = Counter(packets=1, bytes=size)
    return SetEntry(value=value, priority=priority, mark=0x10000, comment=comment, counter=counter)


class Kernel:
    """Rules and sets as the test has put them."""

    backend = "nft"

    def __init__(self) -> None:
        self.sets: dict[str, SetReading] = {}
        self.stray: tuple[Rule, ...] = ()
        self.host_pods: tuple[Rule, ...] = ()
        self.scans = 0
        self.failing = ""

    async def read(self, family: int | None = None) -> ChainReading | dict[str, SetReading]:
        """Rules of a family, or all sets."""
        if self.failing == ("sets" if family is None else f"rules{family}"):
            raise DriverError(ErrorKind.BUSY, self.failing, "read", "interrupted")
        if family is None:
            return self.sets
        state = MarkState(
            family=family, chains=("NODEAGENT-EGRESS",), jumps=(JUMP,), rules=(COUNTING, *self.host_pods)
        )
        counters = (Counter(packets=1, bytes=family),) * len(state.rules)
        return ChainReading(
            state=state, counters=counters, by_comment={"x traffic=y": counters[0]}, stray=self.stray
        )

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
    kernel.sets = sets(
        cluster4=(entry("192.168.0.0/16"), entry("10.0.0.0/8")),
        out4=(entry("10.1.0.1", size=7),), in4=(entry("10.1.0.1", size=9),),
    )

    reading = read(kernel)
    four, six = reading.states

    assert (four.family, four.cluster, four.jumps) == (4, ("10.0.0.0/8", "192.168.0.0/16"), (JUMP,))
    assert four.pods == (PodEntry(address="10.1.0.1", minor=0x10, mark=0x10000, comment="n/a/u"),)
    assert [(one.name, one.kind) for one in four.sets] == [
        ("nodeagent-cluster4", "hash:net"), ("nodeagent-in4", "hash:ip"), ("nodeagent-out4", "hash:ip"),
    ]  # fmt: skip
    assert (six.family, six.cluster, six.pods) == (6, (), ())
    assert reading.out["10.1.0.1"].bytes == 7 and reading.received["10.1.0.1"].bytes == 9
    assert {key: counter.bytes for key, counter in reading.totals.items()} == {
        "4 x traffic=y": 4, "6 x traffic=y": 6,
    }  # fmt: skip
    assert reading.mark_users == ("-j MARK --set-xmark 0x10000/0xff0000",)


@pytest.mark.parametrize(
    ("out", "received", "comment"),
    [
        ((entry(),), (), "n/a/u"),
        ((), (entry(),), "n/a/u"),
        ((entry(),), (entry(priority=0x4E0011),), "n/a/u"),
        ((entry(priority=0x10010),), (entry(priority=0x10010),), "n/a/u"),
        ((entry(),), (entry(comment="n/b/v"),), ""),
        ((entry(comment=""),), (entry(comment=""),), ""),
    ],
    ids=["only out", "only in", "two classes", "another major", "two owners", "no owner"],
)
def test_an_entry_that_is_not_whole_equals_no_wanted_one(
    out: tuple[SetEntry, ...], received: tuple[SetEntry, ...], comment: str
) -> None:
    """Its minor is one that no pod has; it keeps its owner only where both sets name the same."""
    kernel = Kernel()
    kernel.sets = sets(out4=out, in4=received)

    assert read(kernel).states[0].pods == (PodEntry(address="a", minor=0, comment=comment),)


def test_a_jump_behind_a_foreign_rule_displaces_its_chain() -> None:
    """The jump is there, and its chain is named."""
    kernel = Kernel()
    kernel.stray = (JUMP,)
    state = read(kernel).states[0]

    assert (state.jumps, state.displaced) == ((JUMP, JUMP), ("FORWARD",))


def test_pods_on_the_hosts_network_are_counted_by_their_rules() -> None:
    """The uid ends the rule's comment; both families add up; other rules and unnamed ones do not count."""
    kernel = Kernel()
    path = "-m cgroup --path kubepods/pod1"
    kernel.host_pods = (
        Rule(chain="NODEAGENT-HOST-PODS", arguments=f'{path} -m comment --comment "n/a/uid1"'),
        Rule(chain="NODEAGENT-HOST-PODS", arguments=path),
    )

    assert read(kernel).host_pods == {"uid1": Counter(packets=2, bytes=10)}


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
