"""Sets in a real kernel: whole readings, whole entries, nothing of anybody else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2 import AsyncIPSet
from pyroute2.netlink import NLM_F_DUMP_INTR

from nodeagent.drivers.ipset import IpSets, SetEntry, SetReading, SetSpec
from nodeagent.drivers.ipset import entries as dump
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import Counter
from tests.netns.world import World

OUT = {
    family: SetSpec(name=f"nodeagent-out{family}", family=family, counters=True, comment=True, skbinfo=True)
    for family in (4, 6)
}
CLUSTER = {f: SetSpec(name=f"nodeagent-cluster{f}", kind="hash:net", family=f) for f in (4, 6)}
ADDRESS = {4: "10.244.1.{}", 6: "fd00:244:1::{:x}"}
PREFIXES = {4: ("0.0.0.0/1", "10.0.0.0/8", "198.51.100.7/32"), 6: ("::1/128", "fc00::/7", "fe80::/10")}


def pod(family: int, number: int, **fields: Any) -> SetEntry:
    """An entry with everything in it."""
    whole = {"priority": 0x4E0010 + number, "mark": number << 16, "mark_mask": 0x0FFF0000,
             "comment": f'namespace/pod-"{number}" \\ é/uid'}  # fmt: skip
    return SetEntry(value=ADDRESS[family].format(number), **{**whole, **fields})


class Sets:
    """The verbs, run in the node, with neighbours' sets beside."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.neighbours()
        self.before = world.dump()

    def __getattr__(self, verb: str) -> Any:
        return lambda *arguments: self.world.inside("node", _call, verb, arguments)

    def one(self, name: str) -> SetReading:
        """One set of the reading."""
        return self.read()[name]


async def _call(verb: str, arguments: tuple[Any, ...]) -> object:
    return await getattr(IpSets(), verb)(*arguments)


@pytest.fixture
def sets(world: World) -> Iterator[Sets]:
    """At the end the node is as the neighbours left it."""
    held = Sets(world)
    yield held
    for name in held.read():
        held.destroy(name)
    assert world.dump() == held.before


def test_what_is_written_is_read_back_equal(sets: Sets, family: int) -> None:
    """Mark, priority, comment and prefix, in order of their addresses."""
    assert (sets.ensure(OUT[family]), sets.ensure(CLUSTER[family])) == (True, True)
    sets.add(OUT[family], [pod(family, number) for number in (200, 9, 10)])
    sets.add(CLUSTER[family], [SetEntry(value=prefix) for prefix in reversed(PREFIXES[family])])
    out, cluster = sets.one(OUT[family].name), sets.one(CLUSTER[family].name)
    assert (out.spec, cluster.spec) == (OUT[family], CLUSTER[family])
    assert out.entries == tuple(pod(family, number) for number in (9, 10, 200))
    assert tuple(entry.value for entry in cluster.entries) == PREFIXES[family]


def test_a_set_is_made_once(sets: Sets, family: int) -> None:
    """The second time it is there and is left alone; with another header it is refused by name of both."""
    assert (sets.ensure(OUT[family]), sets.ensure(OUT[family])) == (True, False)
    with pytest.raises(DriverError) as refused:
        sets.ensure(SetSpec(name=OUT[family].name, family=family, counters=True))
    assert refused.value.kind is ErrorKind.INVALID
    assert "counters comment skbinfo, wanted is hash:ip" in refused.value.detail


REVISIONS = [("hash:ip", OUT[4], 4), ("hash:net", CLUSTER[4], 2)]


@pytest.mark.parametrize(("kind", "spec", "revision"), REVISIONS)
def test_the_lowest_revision_that_does_is_used(sets: Sets, kind: str, spec: SetSpec, revision: int) -> None:
    """Older tools of other agents can still list every set of the node."""
    sets.ensure(spec)
    shown = sets.world.command("node", "ipset", "list", spec.name)
    assert f"Type: {kind}\n" in shown
    assert f"Revision: {revision}\n" in shown


def test_a_second_write_keeps_counters_and_replaces_all_else(sets: Sets, family: int) -> None:
    """An entry sent again carries its new mark, priority and comment; its bytes go on."""
    sets.ensure(OUT[family])
    sets.add(OUT[family], [pod(family, 9)])
    address = pod(family, 9).value
    comment = ("comment", "x", "skbprio", "1:1", "skbmark", "0x1/0x1")
    counted = ("packets", "7", "bytes", "700")
    sets.world.command("node", "ipset", "add", "-exist", OUT[family].name, address, *counted, *comment)
    sets.add(OUT[family], [pod(family, 9, mark=0, mark_mask=0, comment="again")])
    assert sets.one(OUT[family].name).entries == (
        pod(family, 9, mark=0, mark_mask=0, comment="again", counter=Counter(packets=7, bytes=700)),
    )


def test_a_reused_address_starts_from_nothing(sets: Sets, family: int) -> None:
    """Deleted and added again it has no count of the pod before it (A12)."""
    sets.ensure(OUT[family])
    address = pod(family, 9).value
    sets.world.command("node", "ipset", "add", OUT[family].name, address, "bytes", "700")
    sets.delete(OUT[family], [address])
    sets.add(OUT[family], [pod(family, 9)])
    assert sets.one(OUT[family].name).entries == (pod(family, 9),)


def test_many_entries_come_and_go_in_few_messages(sets: Sets, family: int) -> None:
    """More than one message and one dump packet hold; absent ones among the deleted are no error."""
    sets.ensure(OUT[family])
    entries = [pod(family, number) for number in range(1, 250)]
    sets.add(OUT[family], entries)
    assert sets.one(OUT[family].name).entries == tuple(entries)
    sets.delete(OUT[family], [ADDRESS[family].format(number) for number in range(100, 255)])
    assert sets.one(OUT[family].name).entries == tuple(entries[:99])
    sets.add(OUT[family], [])
    sets.delete(OUT[family], [])


def test_only_our_sets_are_read(sets: Sets) -> None:
    """The neighbours' sets, and one whose name only contains ours, are not in the reading."""
    sets.world.command("node", "ipset", "create", "my-nodeagent-out4", "hash:ip")
    sets.ensure(OUT[4])
    assert set(sets.read()) == {OUT[4].name}
    sets.world.command("node", "ipset", "destroy", "my-nodeagent-out4")


def test_a_set_that_a_rule_names_is_busy(sets: Sets) -> None:
    """It can be destroyed when the rule has gone; a set that is not there is destroyed already."""
    sets.ensure(OUT[4])
    rule = ("-m", "set", "--match-set", OUT[4].name, "src")
    sets.world.command("node", "iptables-nft", "-A", "FORWARD", *rule)
    assert sets.one(OUT[4].name).references == 1
    with pytest.raises(DriverError) as refused:
        sets.destroy(OUT[4].name)
    assert refused.value.kind is ErrorKind.BUSY
    sets.world.command("node", "iptables-nft", "-D", "FORWARD", *rule)
    sets.destroy(OUT[4].name)
    sets.destroy(OUT[4].name)
    assert sets.read() == {}


LONG = "nodeagent-" + "x" * 22
REFUSALS: list[tuple[str, str, tuple[Any, ...], ErrorKind]] = [
    ("a foreign set", "destroy", ("KUBE-CLUSTER-IP",), ErrorKind.INVALID),
    ("a foreign name", "ensure", (SetSpec(name="cali40"),), ErrorKind.INVALID),
    ("a long name", "ensure", (SetSpec(name=LONG),), ErrorKind.INVALID),
    ("a foreign set's entry", "delete", (SetSpec(name="KUBE-CLUSTER-IP"), ["10.0.0.1"]), ErrorKind.INVALID),
    ("no such set", "add", (OUT[6], [pod(6, 9)]), ErrorKind.ABSENT),
    ("the other family", "add", (OUT[4], [pod(6, 9)]), ErrorKind.INVALID),
    ("a prefix for an address", "add", (OUT[4], [SetEntry(value="10.0.0.0/8")]), ErrorKind.INVALID),
    ("no address", "delete", (OUT[4], ["localhost"]), ErrorKind.INVALID),
    ("host bits", "add", (CLUSTER[4], [SetEntry(value="10.0.0.1/8")]), ErrorKind.INVALID),
    ("a long comment", "add", (OUT[4], [pod(4, 9, comment="é" * 128)]), ErrorKind.INVALID),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=[row[0] for row in REFUSALS])
def test_what_cannot_be_is_refused(sets: Sets, refusal: tuple[str, str, tuple[Any, ...], ErrorKind]) -> None:
    """With a kind, a target and a sentence, and without a trace in the kernel."""
    _, verb, arguments, kind = refusal
    sets.ensure(OUT[4])
    with pytest.raises(DriverError) as refused:
        getattr(sets, verb)(*arguments)
    assert refused.value.kind is kind
    assert refused.value.detail
    assert sets.one(OUT[4].name).entries == ()


def test_a_full_set_says_so(sets: Sets) -> None:
    """Beyond its limit no entry is lost in silence."""
    small = SetSpec(name="nodeagent-small", max_elements=2)
    sets.ensure(small)
    with pytest.raises(DriverError):
        sets.add(small, [SetEntry(value=f"10.0.0.{n}") for n in range(200)])


def test_without_permission_it_is_denied(world: World) -> None:
    """A process without CAP_NET_ADMIN gets no empty reading."""
    with pytest.raises(DriverError) as refused:
        world.inside("node", _as_nobody)
    assert refused.value.kind is ErrorKind.DENIED


async def _as_nobody() -> object:
    import os

    os.setuid(65534)
    return await IpSets().read()


async def _read_with_spoilt_dumps(spoil: str, times: int) -> tuple[int, int]:
    """Read a set of 200 entries while the first dumps are cut or flagged; entries, and dumps asked for."""
    whole_list, asked = AsyncIPSet.list, 0

    async def spoilt(self: AsyncIPSet, *argv: Any, **kwargs: Any) -> Any:
        nonlocal asked
        messages = [message async for message in await whole_list(self, *argv, **kwargs)]
        if argv:
            asked += 1
            if asked <= times:
                _spoil(messages[-1], spoil)
        return _replayed(messages)

    await IpSets().ensure(OUT[4])
    await IpSets().add(OUT[4], [pod(4, number) for number in range(1, 201)])
    AsyncIPSet.list = spoilt
    return len((await IpSets().read())[OUT[4].name].entries), asked


def _spoil(message: Any, how: str) -> None:
    """Flag a message as interrupted, or end its entries after the first one or inside the last one."""
    if how == "flagged":
        message["header"]["flags"] |= NLM_F_DUMP_INTR
        return
    attributes = [(slot[0], slot[1]) for slot in message["attrs"]]
    held = dict(attributes)["IPSET_ATTR_ADT"]
    kept = held[: int.from_bytes(held[:2], sys.byteorder)] if how == "cut" else held[:-5]
    message["attrs"] = [(name, kept if name == "IPSET_ATTR_ADT" else value) for name, value in attributes]


async def _replayed(messages: list[Any]) -> Any:
    for message in messages:
        yield message
        await asyncio.sleep(0)


@pytest.mark.parametrize("spoil", ["cut", "torn", "flagged"])
def test_an_interrupted_dump_is_asked_for_again(sets: Sets, spoil: str) -> None:
    """A set that reads shorter than the kernel says it is, or whose dump was flagged, is read anew."""
    assert sets.world.inside("node", _read_with_spoilt_dumps, spoil, 2) == (200, 3)


@pytest.mark.parametrize("spoil", ["cut", "torn", "flagged"])
def test_half_a_set_is_never_a_set(sets: Sets, spoil: str) -> None:
    """After three such dumps the reading fails as busy: nothing seems to be missing."""
    with pytest.raises(DriverError) as refused:
        sets.world.inside("node", _read_with_spoilt_dumps, spoil, 3)
    assert refused.value.kind is ErrorKind.BUSY


# One entry as the kernel sends it: address 10.0.0.1, bytes 0, packets 0, comment "abc".
ENTRY = bytes.fromhex(
    "300007800c000180080001000a0000010c00184000000000000000000c001940000000000000000008001a0061626300"
)


CHANGES = st.dictionaries(st.integers(0, len(ENTRY) * 2 - 1), st.integers(0, 255))


@given(st.integers(0, len(ENTRY) * 2), CHANGES)
def test_no_dump_is_too_odd(end: int, changed: dict[int, int]) -> None:
    """Cut anywhere and with any bytes changed, it is read or refused as partial; nothing else happens."""
    odd = bytearray(ENTRY * 2)
    for at, value in changed.items():
        odd[at] = value
    try:
        entries = list(dump.decoded(bytes(odd[:end])))
    except dump.Partial:
        return
    assert len(entries) <= 2 or changed
    assert changed or end % len(ENTRY) or entries == [SetEntry(value="10.0.0.1", comment="abc")] * (end // 48)
