"""Our filter on an uplink beside those of other agents: last, once, led to the ifb, gone without a trace."""

from __future__ import annotations

import pytest

from nodeagent.drivers.tc import Matcher, kernel, write
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.shape import IFB_NAME, ShapeFilter
from nodeagent.traffic import DEFAULT_MINOR, FIRST_MINOR
from tests.netns.shape_rig import FOREIGN_CLSACT, Tc, add_neighbours, shape_class
from tests.netns.traffic import exchange, serve
from tests.netns.world import INSIDE, INTERNET, POD_A, World

CLSACT = ("qdisc", "add", "dev", "eth0", "clsact")
LAST = ("filter", "add", "dev", "eth0", "egress", "pref", "65535", "protocol", "all", "bpf",
        "bytecode", "1,6 0 0 0", "flowid", "1:1")  # fmt: skip


@pytest.fixture
def tc(world: World) -> Tc:
    """A node with everything of ours but the filter, neighbours beside, no clsact yet."""
    add_neighbours(world, clsact=False)
    tc = Tc(world)
    tc.ready(shape_class(FIRST_MINOR))
    return tc


def neighbour(tc: Tc) -> None:
    """Another agent's clsact with filters on both sides."""
    for words in FOREIGN_CLSACT:
        tc.run(*words)


def ours(tc: Tc) -> tuple[ShapeFilter, ...]:
    """The filters that are read."""
    return tc.held().state.filters


def test_the_filter_is_last_and_read_back_with_tag_and_target(tc: Tc) -> None:
    """Behind two foreign filters, with the tag of our program, led to our ifb."""
    neighbour(tc)
    tc.put_filter()

    assert ours(tc) == (ShapeFilter(device="eth0", tag=tc.tag, target=IFB_NAME),)
    assert tc.held().state.displaced == ()
    preferences = [line.split("pref ")[1].split()[0] for line in
                   tc.run("filter", "show", "dev", "eth0", "egress").splitlines() if "pref " in line]
    assert sorted(set(preferences), key=int) == ["10", "49000", "65535"]


def test_a_clsact_of_ours_goes_with_the_filter(tc: Tc) -> None:
    """Where there was none before there is none after; after a restart, too, it is known as ours."""
    before = tc.world.dump()
    tc.put_filter()
    tc.delete_filter("eth0")

    assert tc.world.dump() == before


@pytest.mark.parametrize("filled", [True, False])
def test_a_clsact_of_another_agent_stays(tc: Tc, filled: bool) -> None:
    """With filters on both sides, and also an empty one: it was there before us."""
    if filled:
        neighbour(tc)
    else:
        tc.run(*CLSACT)
    before = tc.world.dump()
    tc.put_filter()
    tc.delete_filter("eth0")

    assert tc.world.dump() == before


@pytest.mark.parametrize("side", ["egress", "ingress"])
def test_a_clsact_that_another_agent_came_to_use_is_theirs(tc: Tc, side: str) -> None:
    """We made it, they put a filter on either side: it stays, also once they have taken that away."""
    place = ("dev", "eth0", side, "pref", "10")
    tc.put_filter()
    tc.run("filter", "add", *place, "protocol", "ip", "u32", "match", "ip", "dst", "192.0.2.0/24")
    tc.delete_filter("eth0")
    used = tc.run("filter", "show", "dev", "eth0", side)
    tc.run("filter", "del", *place)
    tc.put_filter()
    tc.delete_filter("eth0")

    assert "pref 10" in used
    assert "clsact" in tc.run("qdisc", "show", "dev", "eth0")


def test_an_ingress_qdisc_excludes_us_and_is_left_alone(tc: Tc) -> None:
    """The put is refused with the reason, the reading names the device, nothing is replaced."""
    tc.run("qdisc", "add", "dev", "eth0", "ingress")
    before = tc.world.dump()
    with pytest.raises(DriverError, match="`ingress` qdisc excludes clsact") as refused:
        tc.put_filter()

    assert refused.value.kind is ErrorKind.INVALID
    assert list(tc.held().blocked) == ["eth0"]
    assert not tc.delete_filter("eth0")
    assert tc.world.dump() == before


def test_a_shared_block_excludes_us(tc: Tc) -> None:
    """A filter in it would catch the packets of other devices too."""
    tc.run("qdisc", "add", "dev", "eth0", "egress_block", "22", "clsact")
    before = tc.world.dump()
    with pytest.raises(DriverError, match="shares filter block 22"):
        tc.put_filter()

    assert list(tc.held().blocked) == ["eth0"]
    assert tc.world.dump() == before


def test_no_filter_without_a_ready_ifb(tc: Tc) -> None:
    """Without HTB, down, or gone: a filter would let the packets pass unshaped, or lose them all."""
    spoils = (f"tc qdisc del dev {IFB_NAME} root", f"ip link set {IFB_NAME} down", f"ip link del {IFB_NAME}")
    for spoil in spoils:
        tc.world.command("node", *spoil.split())
        with pytest.raises(DriverError) as refused:
            tc.put_filter()
        assert refused.value.kind is ErrorKind.INVALID
        assert ours(tc) == ()


def test_the_ifb_stays_while_a_filter_leads_to_it(tc: Tc) -> None:
    """Deleting it first would lose every packet of the internet."""
    tc.put_filter()
    with pytest.raises(DriverError) as refused:
        tc.delete_ifb()

    assert refused.value.kind is ErrorKind.BUSY
    assert "from eth0" in refused.value.detail
    assert tc.held().state.ifb


def test_a_filter_whose_ifb_was_deleted_leads_nowhere_and_is_mended(tc: Tc) -> None:
    """Another ifb of that name is not the one that it led to: the put replaces it."""
    tc.put_filter()
    tc.world.command("node", "ip", "link", "del", IFB_NAME)
    lost = ours(tc)
    tc.ready()

    assert [one.target for one in lost] == [""]
    assert tc.put_filter()
    assert ours(tc) == (ShapeFilter(device="eth0", tag=tc.tag),)


def test_a_second_filter_of_ours_is_displaced_and_taken_away(tc: Tc) -> None:
    """One of an older version stands at another place: it is seen, and one put leaves one filter."""
    tc.put_filter()
    tc.run("filter", "add", "dev", "eth0", "egress", "pref", "77", "protocol", "all", "bpf",
           "bytecode", "1,6 0 0 0", "flowid", "1:1")  # fmt: skip
    foreign = tc.held().state.displaced
    tc.world.inside("node", _copy_ours, "eth0", 88)
    seen = tc.held().state.displaced

    assert (foreign, seen) == ((), ("eth0",))
    assert tc.put_filter()
    assert len(ours(tc)) == 1
    assert tc.held().state.displaced == ()
    assert "pref 77" in tc.run("filter", "show", "dev", "eth0", "egress")


async def _copy_ours(device: str, preference: int) -> None:
    uplink = await kernel.link(device)
    assert uplink is not None
    write.PREFERENCE = preference
    async with write.opened("put filter", device) as writer:
        await writer.put_filter(uplink.ifindex, 1, Matcher().load()[0], uplink.ifindex)


def test_a_foreign_filter_in_the_last_place_is_said_and_left(tc: Tc) -> None:
    """It would never see what we redirect, so ours is not put before it."""
    tc.run(*CLSACT)
    tc.run(*LAST)
    before = tc.world.dump()
    with pytest.raises(DriverError, match="a foreign filter has the last place") as refused:
        tc.put_filter()

    assert refused.value.kind is ErrorKind.INVALID
    assert tc.world.dump() == before


def test_a_foreign_filter_that_comes_later_stands_before_ours(tc: Tc) -> None:
    """Also one in the last place, for of one preference the newest comes first: there is nothing to do."""
    tc.put_filter()
    tc.run(*LAST)

    assert tc.held().state.displaced == ()
    assert not tc.put_filter()


def test_a_device_that_is_gone_has_no_filter(tc: Tc) -> None:
    """Its end took the filter along; deleting it there is no error."""
    assert not tc.delete_filter("none0")


def test_the_ifb_takes_what_the_uplink_takes(tc: Tc) -> None:
    """Its MTU grows to the largest uplink's and never shrinks."""
    for mtu in ("9000", "1400"):
        tc.world.command("node", "ip", "link", "set", "eth0", "mtu", mtu)
        tc.delete_filter("eth0")
        tc.put_filter()

    assert "mtu 9000" in tc.world.command("node", "ip", "-o", "link", "show", IFB_NAME)


def test_only_packets_with_our_priority_are_shaped(tc: Tc) -> None:
    """Bytes to the internet pass the pod's class and wait there; those to the cluster pass none."""
    rule = f"-A POSTROUTING -o eth0 -s {POD_A[4]} ! -d 10.0.0.0/8 -j CLASSIFY --set-class 4e:10"
    tc.world.restore("nft", 4, f"*mangle\n{rule}\nCOMMIT\n")
    tc.put_filter()
    for place in ("inside", "outside"):
        serve(tc.world, place)
    tc.world.inside("pod-a", exchange, INSIDE[4], 2_000_000, 10)
    cluster = tc.held().counters
    tc.world.inside("pod-a", exchange, INTERNET[4], 1_000_000, 10)
    internet = tc.held().counters

    assert all(one.bytes == 0 for one in cluster.values())
    assert internet[FIRST_MINOR].bytes > 1_000_000
    assert internet[FIRST_MINOR].overlimits > 0
    assert internet[FIRST_MINOR].packets > 1_000_000 // 1_500
    assert internet[DEFAULT_MINOR].bytes == 0
    assert internet[1].bytes >= internet[FIRST_MINOR].bytes
    assert internet[FIRST_MINOR].borrows > 0
