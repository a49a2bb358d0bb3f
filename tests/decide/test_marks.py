"""What is wanted of the kernel: cluster prefixes, holders of addresses, class minors, marks, rules."""

from __future__ import annotations

import ipaddress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.decide import cluster_set, mark_claims, marks
from nodeagent.decide.marks import MarkOptions, MarkWish
from nodeagent.errors import ErrorKind
from nodeagent.signals import Unread
from nodeagent.traffic import DEFAULT_MINOR, FIRST_MINOR, LAST_MINOR, MarkState, PodPhase
from nodeagent.traffic_memory import Claim
from tests.decide.build import now
from tests.decide.mark_world import World, links, pod, pod_list

USER = "-A PREROUTING -j MARK --set-xmark 0x10000/0x10000"
GONE = Unread(kind=ErrorKind.TIMEOUT, reason="no answer")


def world_of(*pods, **more) -> World:
    """A world with these pods, settled."""
    world = World(**more)
    world.pods = pod_list(*pods)
    world.settle()
    return world


def wish(world: World) -> MarkWish:
    """What is wanted now."""
    found = marks.wish(world.options, world.memory.marks)
    assert found is not None
    return found


def state(world: World, family: int = 4) -> MarkState:
    """What is wanted of one family."""
    return next(s for s in wish(world).states if s.family == family)


def minors(world: World) -> dict[str, int]:
    """Address -> minor."""
    return {address: claim.minor for address, claim in world.memory.marks.claims.items()}


# ------------------------------------------------------------------ when anything is wanted


@pytest.mark.parametrize("missing", ["pods", "links"])
@pytest.mark.parametrize("value", [None, GONE])
def test_nothing_is_wanted_before_all_was_read(missing: str, value: Unread | None) -> None:
    """Without pods or uplinks not one op is planned."""
    world = World()
    setattr(world, missing, value)

    assert world.cycle() == ()
    assert marks.wish(world.options, world.memory.marks) is None


@pytest.mark.parametrize("changed", ["off", "namespace", "no uplink"])
def test_nothing_is_planned_where_nothing_may_be_written(changed: str) -> None:
    """Switched off, in another network namespace than the host's, or without a default route."""
    world = World(MarkOptions(enabled=changed != "off"))
    world.pods = pod_list(pod(1))
    if changed == "namespace":
        world.links = msgspec.structs.replace(links(), host_namespace=False)
    if changed == "no uplink":
        world.links = links(uplinks=())

    assert world.cycle() == ()


def test_what_can_no_longer_be_read_stands() -> None:
    """Pods and links unread, or no default route for a moment: the last ones stay wanted."""
    world = world_of(pod(1), pod(2))
    before = wish(world)
    world.pods, world.links = GONE, GONE
    world.cycle()
    unread = wish(world)
    world.links = links(uplinks=())
    world.cycle()

    assert (unread, wish(world)) == (before, before)
    assert world.cycle() == ()


def test_a_restart_waits_for_its_own_first_list() -> None:
    """What was remembered from before is no list: a pod may be gone."""
    world = world_of(pod(1))
    world.restart()
    world.pods = GONE
    world.kernel.spoil(4, "flush mangle")
    blind = world.cycle()
    world.pods = pod_list(pod(1))

    assert blind == ()
    assert world.cycle() != ()


def test_a_reboot_begins_anew() -> None:
    """Nothing of an earlier boot is wanted or counted in this one."""
    world = world_of(pod(1))
    world.kernel.send(4, "10.244.1.1", 500)
    world.cycle()
    world.reboot()
    world.cycle()

    assert minors(world) == {"10.244.1.1": FIRST_MINOR, "fd00:244:1::1": FIRST_MINOR}
    assert world.memory.traffic.namespaces == {}


# ------------------------------------------------------------------ the cluster set


@pytest.mark.parametrize("family", [4, 6])
def test_cluster_set_is_complete_and_merged(family: int) -> None:
    """Fixed, attached, own, extra and API prefixes are all covered, and none overlaps another."""
    options = MarkOptions(
        extra_cluster_cidrs=("198.51.100.7/25", "2001:db8:5::/48", "10.0.0.0/16"),
        api_addresses=("203.0.113.9", "2001:db8:6::9"),
    )
    world = world_of(options=options)
    found = [ipaddress.ip_network(text) for text in state(world, family).cluster]
    wanted = [
        ipaddress.ip_network(text, strict=False)
        for text in (*cluster_set.FIXED, "192.0.2.0/24", "2001:db8::2/128", *options.extra_cluster_cidrs,
                     *options.api_addresses)
    ]  # fmt: skip

    assert all(any(w.subnet_of(n) for n in found) for w in wanted if w.version == family)
    assert len(list(ipaddress.collapse_addresses(found))) == len(found)
    assert state(world, family).cluster == tuple(map(str, sorted(found)))


@given(st.lists(st.ip_addresses().map(str) | st.text(max_size=8) | st.sampled_from(["0.0.0.0/0", "::/0"])))
def test_any_text_makes_a_set_that_never_covers_all(texts: list[str]) -> None:
    """Nonsense is left out and said; a prefix of length 0 too."""
    networks, refused = cluster_set.parse(texts)

    assert len(networks) + len(refused) == len(texts)
    assert all(network.prefixlen > 0 for network in networks)


def test_an_address_that_no_prefix_covers_is_said() -> None:
    """A public pod address and a public node address count as internet to each other: the prefix is named."""
    world = world_of(pod(1, "203.0.113.77", "2001:db8:9::7"), pod(2))
    found = {(u.address, u.owner, u.prefix) for u in world.memory.marks.uncovered}

    assert found == {
        ("203.0.113.77", "team-1/pod-1", "203.0.113.0/24"),
        ("2001:db8:9::7", "team-1/pod-1", "2001:db8:9::/64"), ("2001:db8::2", "node", "2001:db8::/64"),
    }  # fmt: skip
    assert "203.0.113.77" in minors(world)


# ------------------------------------------------------------------ who holds an address


@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
def test_a_finished_pod_loses_its_entry_at_once(phase: PodPhase) -> None:
    """Its address may already be another's."""
    world = world_of(pod(1), pod(2))
    world.pods = pod_list(pod(1, phase=phase), pod(2))
    kinds = [op.kind for op in world.cycle()]

    assert kinds == ["entries.delete", "entries.delete"]
    assert set(minors(world)) == {"10.244.1.2", "fd00:244:1::2"}


OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
SHARED = (
    ("the newer", {"created": OLD}, {"created": NEW}),
    ("the running", {"created": NEW, "phase": PodPhase.PENDING}, {"created": OLD}),
    ("the one that stays", {"created": NEW, "terminating": True}, {"created": OLD}),
    ("the greater uid", {}, {}),
)


@pytest.mark.parametrize(("name", "first", "second"), SHARED, ids=[row[0] for row in SHARED])
@pytest.mark.parametrize("turned", [False, True])
def test_of_two_live_pods_one_holds_the_address(name: str, first: dict, second: dict, turned: bool) -> None:
    """Always the same one, whatever the order of the list, and it is said."""
    pair = [pod(1, "10.244.1.9", **first), pod(2, "10.244.1.9", **second)]
    world = world_of(*(reversed(pair) if turned else pair))

    assert world.memory.marks.claims["10.244.1.9"].uid == "uid-0002"
    assert world.memory.marks.shared == (
        "10.244.1.9 is claimed by team-2/pod-2, which holds it, and by team-1/pod-1",
    )


def test_some_addresses_are_nobodys() -> None:
    """hostNetwork pods, the node's own address, loopback, multicast, zones and nonsense have no entry."""
    odd = ("127.0.0.1", "224.0.0.5", "0.0.0.0", "::1", "fe80::1%eth0", "10.1", "", "192.0.2.2")
    world = world_of(pod(1, *odd, "10.244.1.1"), pod(2, "10.244.1.2", host_network=True))

    assert set(minors(world)) == {"10.244.1.1"}


def test_a_list_with_skipped_items_takes_nothing_away() -> None:
    """The pod that is missing may be the one that could not be understood."""
    world = world_of(pod(1), pod(2))
    before = minors(world)
    world.pods = pod_list(pod(2), skipped=1)
    world.cycle()
    kept = minors(world)
    world.pods = pod_list(pod(2), pod(3, "10.244.1.1"), skipped=1)
    world.cycle()

    assert kept == before
    assert world.memory.marks.claims["10.244.1.1"].uid == "uid-0003"


def test_comment_keeps_the_uid_whole() -> None:
    """At most 255 bytes; name and namespace give way, also inside a character."""
    claim = Claim(uid="u" * 36, namespace="n" * 63, name="é" * 200, minor=16)
    text = mark_claims.comment(claim)

    assert len(text.encode()) in (254, 255)
    assert mark_claims.uid_of(text) == claim.uid
    assert [mark_claims.uid_of(odd) for odd in ("", "x", "x/y", "//")] == ["", "", "", ""]


# ------------------------------------------------------------------ minors and marks


def test_minors_stay_and_rest_for_a_minute() -> None:
    """A pod keeps its minor; one that was let go is given to nobody for 60 s."""
    world = world_of(pod(1), pod(2), step_seconds=1.0)
    world.pods = pod_list(pod(2))
    world.cycle()
    world.pods = pod_list(pod(2), pod(3))
    world.cycle()
    soon = minors(world)
    world.seconds += 60.0
    world.pods = pod_list(pod(2), pod(3), pod(4))
    world.cycle()

    assert (soon["10.244.1.2"], soon["10.244.1.3"]) == (0x11, 0x12)
    assert minors(world)["10.244.1.4"] == FIRST_MINOR


def test_minors_are_taken_from_the_kernel_when_memory_is_lost() -> None:
    """Pods keep theirs; the minor of an entry that nobody owns any more rests too."""
    world = world_of(pod(1), pod(2), pod(3))
    before = minors(world)
    world.saved = type(world.saved)()
    world.restart()
    world.pods = pod_list(pod(2), pod(3), pod(4))
    world.cycle()
    after = minors(world)

    assert after["10.244.1.2"] == before["10.244.1.2"]
    assert after["10.244.1.3"] == before["10.244.1.3"]
    assert after["10.244.1.4"] == 0x13


def test_a_dual_stack_pod_has_one_class() -> None:
    """Both addresses of a pod share its minor; two pods never do."""
    found = minors(world_of(*(pod(n) for n in range(1, 20))))

    assert all(found[f"10.244.1.{n}"] == found[f"fd00:244:1::{n:x}"] for n in range(1, 20))
    assert sorted(set(found.values())) == list(range(FIRST_MINOR, FIRST_MINOR + 19))


def test_pods_without_a_free_minor_get_the_default_class() -> None:
    """65,519 pods have a class; one more shares the default one."""
    many = LAST_MINOR - FIRST_MINOR + 2
    listed = pod_list(*(
        pod(n, str(ipaddress.ip_address("10.128.0.1") + n), uid=f"uid-{n:06}") for n in range(many)
    ))  # fmt: skip
    memory = mark_claims.update(World().memory.marks, listed, None, now())

    assert [c.minor for c in memory.claims.values()].count(DEFAULT_MINOR) == 1
    assert max(c.minor for c in memory.claims.values()) == LAST_MINOR


MARKS = (
    (0x10, 0x0FFF0000, 0x00100000), (0xFFF, 0x0FFF0000, 0x0FFF0000), (0x1000, 0x0FFF0000, 0),
    (0x10, 0, 0), (0x10, 0x1, 0), (0x10, 0xFFFF, 0x10), (0x11, 0x5, 0),
)  # fmt: skip


@pytest.mark.parametrize(("minor", "mask", "value"), MARKS)
def test_mark_is_the_minor_under_the_mask(minor: int, mask: int, value: int) -> None:
    """Where it does not fit there is no mark, never a bit outside the mask."""
    assert marks.mark(minor, mask) == value


def test_a_foreign_user_of_the_mark_ends_marks_for_this_boot() -> None:
    """Class-only mode stays although the user goes, until the mask is changed."""
    world = world_of(pod(1))
    marked = state(world).pods[0].mark
    world.users = (USER,)
    world.settle()
    world.users = ()
    world.settle()
    after = (state(world).pods[0].mark, wish(world).mark_mask, world.memory.marks.mark_users)
    world.options = MarkOptions(mark_mask=0x00FF0000)
    world.settle()

    assert (marked, after) == (0x100000, (0, 0, (USER,)))
    assert state(world).pods[0].mark == 0x100000


# ------------------------------------------------------------------ rules


@pytest.mark.parametrize(("family", "rules"), [(4, 16), (6, 13)], ids=["attached", "none attached"])
@pytest.mark.parametrize("count", [0, 1, 250])
def test_number_of_rules_does_not_grow_with_pods(family: int, rules: int, count: int) -> None:
    """16 rules and jumps a family at most on one uplink, four more for each further one."""
    world = world_of(*(pod(n) for n in range(1, count + 1)))
    one = state(world, family)
    world.links = links(uplinks=("eth0", "eth1"))
    world.settle()
    two = state(world, family)

    assert (len(one.rules) + len(one.jumps), len(two.jumps) - len(one.jumps)) == (rules, 4)
    assert len(one.pods) == count


def test_class_only_mode_differs_in_one_rule() -> None:
    """All but the mark is alike."""
    marked, plain = world_of(pod(1)), world_of(pod(1), options=MarkOptions(mark_mask=0))
    differing = set(state(marked).rules) ^ set(state(plain).rules)

    assert {rule.arguments for rule in differing} == {
        "-j SET --map-set nodeagent-out4 src --map-mark --map-prio",
        "-j SET --map-set nodeagent-out4 src --map-prio",
    }


def test_a_device_name_that_is_a_pattern_gets_no_jump() -> None:
    """iptables takes a trailing + as a wildcard: such a device would match others."""
    world = World()
    world.links = links(uplinks=("eth0", "eth+", "bond0.100"))
    world.settle()

    assert {jump.arguments.split()[1] for jump in state(world).jumps} == {"eth0", "bond0.100"}


def test_a_strange_cgroup_path_is_quoted() -> None:
    """A path with a space or a quote stays one word."""
    world = World(MarkOptions(host_pod_paths={"uid-0001": 'kube pods/"x"'}))
    world.pods = pod_list(pod(1, host_network=True), pod(2, host_network=True))
    world.settle()
    found = [rule.arguments for rule in state(world).rules if rule.chain == marks.HOST_PODS]

    assert found == [
        '-m cgroup --path "kube pods/\\"x\\"" -m comment --comment "team-1/pod-1/uid-0001"'
    ]
