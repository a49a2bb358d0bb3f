"""ifb, HTB and classes in a real kernel: read back as written, changed under way, nothing foreign touched."""

from __future__ import annotations

import asyncio
import socket

import pytest

from nodeagent import rtnetlink
from nodeagent.drivers.tc import Shaper, TcEvents, as_held, kernel
from nodeagent.drivers.tc.matcher import Matcher
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.shape import IFB_NAME, ROOT_MINOR, ShapeState
from nodeagent.traffic import DEFAULT_MINOR, FIRST_MINOR, LAST_MINOR
from tests.netns.shape_rig import Tc, add_neighbours, root_class, shape_class
from tests.netns.world import World

RATES_BITS = (1_000, 9_999, 64_000, 1_000_000, 12_345_678, 100_000_000, 125_000_000, 999_999_999,
              10**10, 34_359_738_368, 34_359_738_376, 10**11, 4 * 10**11)  # fmt: skip
"""Bits per second from 1 kbit/s to 400 Gbit/s, on both sides of 32 bits of bytes per second."""


@pytest.fixture
def tc(world: World) -> Tc:
    """A node with neighbours in tc."""
    add_neighbours(world)
    return Tc(world)


def test_nothing_is_read_where_nothing_is_ours(tc: Tc) -> None:
    """A foreign ifb, HTB and filters on both sides of clsact are none of ours."""
    reading = tc.held()

    assert reading.state == ShapeState()
    assert (reading.counters, reading.blocked, reading.missing) == ({}, {}, ())
    assert reading.tag == tc.tag


def test_each_op_twice_is_once(tc: Tc) -> None:
    """ifb, HTB, classes, filter and their end: the second time there is nothing to do."""
    assert [tc.ensure_ifb(), tc.ensure_ifb()] == [True, False]
    assert [tc.ensure_htb(DEFAULT_MINOR), tc.ensure_htb(DEFAULT_MINOR)] == [True, False]
    for one in (root_class(), shape_class(DEFAULT_MINOR)):
        assert [tc.put_class(one), tc.put_class(one)] == [True, False]
    assert [tc.put_filter(), tc.put_filter()] == [True, False]
    assert [tc.delete_filter("eth0"), tc.delete_filter("eth0")] == [True, False]
    assert [tc.delete_class(DEFAULT_MINOR), tc.delete_class(DEFAULT_MINOR)] == [True, False]
    assert [tc.delete_ifb(), tc.delete_ifb()] == [True, False]


def test_a_whole_life_leaves_the_neighbours_as_they_were(tc: Tc) -> None:
    """With everything of ours in place and after its end no foreign byte has changed."""
    before, whole = tc.foreign_state(), tc.world.dump()
    tc.ready(shape_class(FIRST_MINOR))
    tc.put_filter()
    during = tc.foreign_state()
    tc.remove_all()

    assert during == before
    assert tc.world.dump() == whole


def test_every_class_is_read_back_as_it_was_asked_for(tc: Tc) -> None:
    """Each decade of rate and limit, with the bursts, quanta and queues of the plan, in one tree."""
    wanted = [root_class()]
    for minor, bits in enumerate(RATES_BITS, FIRST_MINOR):
        rate = bits // 8
        burst = min(max(65_536, rate // 200), rate * 200)
        wanted.append(as_held(shape_class(
            minor, rate_bytes_per_second=rate, ceil_bytes_per_second=rate, burst_bytes=burst,
            cburst_bytes=burst, quantum_bytes=min(max(1_500, rate // 1000), 60_000),
            leaf_limit_bytes=max(16_384, rate // 20),
        )))  # fmt: skip
    wanted.append(shape_class(LAST_MINOR))
    tc.ensure_ifb()
    tc.ensure_htb(DEFAULT_MINOR)
    for one in wanted:
        tc.put_class(one)

    assert tc.held().state.classes == tuple(wanted)


@pytest.mark.parametrize("bits", RATES_BITS)
def test_a_burst_loses_no_more_than_one_tick(bits: int) -> None:
    """Up to 125 Mbit/s bursts are exact, above they are the next whole tick; and they stay that."""
    rate = bits // 8
    wanted = shape_class(
        FIRST_MINOR, rate_bytes_per_second=rate, ceil_bytes_per_second=rate,
        burst_bytes=min(65_537, rate * 200), cburst_bytes=min(65_537, rate * 200),
    )  # fmt: skip
    held = as_held(wanted)

    assert 0 <= held.burst_bytes - wanted.burst_bytes <= rate * 64 // 10**9 + 1
    assert bits > 125_000_000 or held == wanted
    assert as_held(held) == held


def test_a_class_is_changed_in_place(tc: Tc) -> None:
    """A new rate keeps what the class has counted, and its queue; a new queue length changes the queue."""
    tc.ready(shape_class(FIRST_MINOR))
    queue = tc.run("qdisc", "show", "dev", IFB_NAME, "parent", "4e:10").split()[:3]
    changed = shape_class(FIRST_MINOR, ceil_bytes_per_second=2_000_000, leaf_limit_bytes=100_000)

    assert tc.put_class(changed)
    assert changed in tc.held().state.classes
    assert tc.run("qdisc", "show", "dev", IFB_NAME, "parent", "4e:10").split()[:3] == queue


def test_an_inner_class_with_children_is_changed(tc: Tc) -> None:
    """The kernel keeps no quantum of inner classes and the reading says 0: the change is seen whole."""
    tc.ready()

    assert tc.put_class(root_class(250_000_000))
    assert not tc.put_class(root_class(250_000_000))
    assert root_class(250_000_000) in tc.held().state.classes


REFUSED = [
    (("put_class", shape_class(FIRST_MINOR, parent=0x77)), ErrorKind.ABSENT, "4e:10"),
    (("put_class", shape_class(DEFAULT_MINOR, parent=0)), ErrorKind.INVALID, "it stands under 4e:1"),
    (("delete_class", ROOT_MINOR), ErrorKind.BUSY, "4e:1"),
    (("ensure_filter", "eth0", "00" * 8), ErrorKind.INVALID, "the tag of our program"),
    (("ensure_filter", "none0", None), ErrorKind.ABSENT, "no such device"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED)
def test_what_the_kernel_refuses_is_said(
    tc: Tc, call: tuple[object, ...], kind: ErrorKind, words: str
) -> None:
    """An absent parent, another parent, a parent's end, another program, no device: each with its kind."""
    tc.ready()
    verb, *arguments = call
    if arguments[-1] is None:
        arguments[-1] = tc.tag
    with pytest.raises(DriverError) as refused:
        getattr(tc, str(verb))(*arguments)

    assert refused.value.kind is kind
    assert words in str(refused.value)


def test_a_foreign_root_qdisc_on_our_ifb_is_replaced(tc: Tc) -> None:
    """Another qdisc, and an HTB of ours with another default class, are read as none and put right."""
    tc.ensure_ifb()
    for words in (("pfifo",), ("handle", "4e:", "htb", "default", "3")):
        tc.run("qdisc", "replace", "dev", IFB_NAME, "root", *words)
        assert not tc.held().state.htb
        assert tc.ensure_htb(DEFAULT_MINOR)
        assert tc.held().state.htb
        tc.run("qdisc", "del", "dev", IFB_NAME, "root")


SPOILED = [("link", "set", IFB_NAME, "down"), ("link", "set", IFB_NAME, "txqueuelen", "32")]


@pytest.mark.parametrize("words", SPOILED)
def test_an_ifb_that_others_changed_is_put_right(tc: Tc, words: tuple[str, ...]) -> None:
    """Down, or with the short queue that an ifb has by default, it is not ready."""
    tc.ready()
    tc.world.command("node", "ip", *words)
    spoiled = tc.held().state.ifb
    tc.ensure_ifb()

    assert (spoiled, tc.held().state.ifb) == (False, True)


def test_a_device_of_our_name_that_is_no_ifb_is_left_alone(world: World) -> None:
    """Nothing is read of it or done to it; the error names its kind and the cure."""
    world.command("node", "ip", "link", "add", IFB_NAME, "type", "bridge")
    before = world.dump()
    for verb in ("ensure_ifb", "read", "delete_ifb"):
        with pytest.raises(DriverError, match="of kind bridge, ours is an ifb: rename or delete it"):
            getattr(Tc(world), verb)()

    assert world.dump() == before


def test_a_leaf_that_lost_its_queue_is_seen_and_mended(tc: Tc) -> None:
    """Without its own queue a leaf reads as none, and the next put gives it one."""
    wanted = shape_class(FIRST_MINOR)
    tc.ready(wanted)
    tc.run("qdisc", "del", "dev", IFB_NAME, "parent", "4e:10")

    assert wanted not in tc.held().state.classes
    assert tc.put_class(wanted)
    assert wanted in tc.held().state.classes


@pytest.mark.parametrize(("changes", "expected"), [(1, "3 classes at try 2"), (9, "busy")])
def test_a_list_that_changes_under_the_reader_is_read_again(tc: Tc, changes: int, expected: str) -> None:
    """Changed once it is read whole the second time, changed at every try it is busy; never in part."""
    tc.ready()

    assert tc.world.inside("node", _read_while_changing, changes) == expected


async def _read_while_changing(changes: int) -> str:
    """A class is added after the request and before the answer, in each of the first tries."""
    ifb = await kernel.link(IFB_NAME)
    assert ifb is not None
    received, tries = rtnetlink._received, []

    async def receive(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
        if connection not in tries:
            tries.append(connection)
            if len(tries) <= changes:
                await Shaper().put_class(shape_class(0x100 + len(tries)))
        return await received(loop, connection)

    rtnetlink._received = receive
    try:
        return f"{len(await kernel.classes(ifb.ifindex))} classes at try {len(tries)}"
    except DriverError as error:
        return error.kind.value


def test_changes_of_tc_are_heard(tc: Tc) -> None:
    """A class, a filter and a device that others make or take away are each an event."""
    tc.ready()
    assert tc.world.inside("node", _heard) == [True, True, True]


async def _heard() -> list[bool]:
    event = asyncio.Event()
    events = TcEvents(event.set)
    events.start()
    heard = []
    for command in (
        f"tc class change dev {IFB_NAME} classid 4e:f htb rate 2mbit",
        "tc filter del dev eth0 egress pref 10", "ip link del foreign0",
    ):
        event.clear()
        process = await asyncio.create_subprocess_shell(command)
        await process.wait()
        try:
            await asyncio.wait_for(event.wait(), 5)
        except TimeoutError:
            heard.append(False)
        else:
            heard.append(True)
    events.close()
    return heard


def test_the_tag_is_the_same_each_time() -> None:
    """Two loads of the program have one tag, so that a filter is known again after a restart."""
    first, second = Matcher(), Matcher()
    try:
        assert first.load()[1] == second.load()[1]
        assert len(first.load()[1]) == 16
    finally:
        first.close()
        second.close()
