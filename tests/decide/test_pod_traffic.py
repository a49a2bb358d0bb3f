"""Bytes per pod, namespace and node: right, apart, and never falling."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.decide import pod_traffic
from nodeagent.decide.namespaces import MAX_NAMESPACES
from nodeagent.traffic import Counter, PodLink
from nodeagent.traffic_memory import PodCount, Tally
from tests.decide.mark_kernel import SPOILS
from tests.decide.mark_world import World, links, pod, pod_list


def veth(number: int, sent: int, received: int, *, address: str = "") -> PodLink:
    """The host side of a pod's veth."""
    return PodLink(
        name=f"veth{number}", address=address or f"10.244.1.{number}", rx_bytes=sent, tx_bytes=received
    )


def watched(*numbers: int, known: bool = False) -> World:
    """A world with these pods in the kernel; `known`: the agent saw them begin."""
    world = World()
    if known:
        world.cycle()
        world.cycle()
    world.pods = pod_list(*(pod(n) for n in numbers))
    world.settle()
    world.cycle()
    return world


def count(world: World, number: int) -> PodCount:
    """The sums of one pod."""
    return world.memory.traffic.pods[f"uid-{number:04}"]


def test_both_addresses_of_a_pod_are_one_sum() -> None:
    """IPv4 and IPv6, out and in, per pod and per namespace."""
    world = watched(1, 4)
    world.kernel.send(4, "10.244.1.1", 1000)
    world.kernel.send(6, "fd00:244:1::1", 200)
    world.kernel.send(4, "10.244.1.4", 30)
    world.cycle()

    assert count(world, 1).tally == Tally(internet_out_bytes=1200, internet_in_bytes=1200)
    assert world.memory.traffic.namespaces == {
        "team-1": Tally(internet_out_bytes=1230, internet_in_bytes=1230)
    }


@pytest.mark.parametrize("event", ["restart", "reset counters", "flush sets", "flush mangle", "wrong header"])
def test_sums_go_on_over_any_new_beginning(event: str) -> None:
    """What was counted stays, what is counted afterwards is added."""
    world = watched(1)
    world.kernel.send(4, "10.244.1.1", 1000)
    world.cycle()
    if event == "restart":
        world.restart()
    else:
        world.kernel.spoil(4, event)
    world.settle()
    world.kernel.send(4, "10.244.1.1", 70)
    world.cycle()

    assert count(world, 1).tally.internet_out_bytes == 1070


def test_a_reused_address_inherits_nothing() -> None:
    """Neither before nor after the entry is replaced do bytes go to the wrong pod."""
    world = watched(1)
    world.kernel.send(4, "10.244.1.1", 1000)
    world.cycle()
    world.pods = pod_list(pod(2, "10.244.1.1"))
    world.cycle(cut=0)
    world.kernel.send(4, "10.244.1.1", 500)
    world.cycle()
    world.kernel.send(4, "10.244.1.1", 7)
    world.cycle()
    traffic = world.memory.traffic

    assert count(world, 2).tally.internet_out_bytes == 7
    assert traffic.retired["uid-0001"].tally.internet_out_bytes == 1000
    assert traffic.namespaces["team-1"].internet_out_bytes == 1000


def test_cluster_bytes_are_the_veth_minus_the_internet() -> None:
    """A pod known since it began: all that its veth carried counts."""
    world = watched(1, known=True)
    world.kernel.send(4, "10.244.1.1", 1000)
    world.links = links(veth(1, 5000, 1100), veth(1, 5000, 1100, address="fd00:244:1::1"))
    world.cycle()

    assert count(world, 1).tally == Tally(
        internet_out_bytes=1000, internet_in_bytes=1000, cluster_out_bytes=4000, cluster_in_bytes=100
    )


def test_a_pod_that_was_there_before_the_agent_counts_from_the_first_look() -> None:
    """Its veth's past is not taken for cluster traffic."""
    world = watched(1)
    world.links = links(veth(1, 10**9, 10**9))
    world.cycle()
    first = count(world, 1).tally
    world.kernel.send(4, "10.244.1.1", 1000)
    world.links = links(veth(1, 10**9 + 1500, 10**9 + 1000))
    world.cycle()

    assert (first.cluster_out_bytes, first.cluster_in_bytes) == (0, 0)
    assert (count(world, 1).tally.cluster_out_bytes, count(world, 1).tally.cluster_in_bytes) == (500, 0)


def test_cluster_bytes_are_null_without_a_veth_and_never_negative() -> None:
    """Unknown is not zero; a veth read before the sets gives 0, not less, and nothing falls."""
    world = watched(1, known=True)
    unknown = count(world, 1).tally.cluster_out_bytes
    world.links = links(veth(1, 300, 300))
    world.cycle()
    world.kernel.send(4, "10.244.1.1", 1000)
    world.cycle()
    world.links = links(veth(1, 1000, 1000))
    world.cycle()

    assert unknown is None
    assert count(world, 1).tally.cluster_out_bytes == 300


def test_links_read_after_the_sets_wait_for_the_next_look() -> None:
    """Bytes that only the veth has seen yet would be taken for cluster bytes."""
    world = watched(1, known=True)
    marks, now_seconds = world.reading(), world.seconds
    memory, claims = world.memory.traffic, world.memory.marks
    late = _fold(world, memory, claims, marks, now_seconds + 1, now_seconds + 30)
    soon = _fold(world, memory, claims, marks, now_seconds + 1, now_seconds + 1.5)

    assert late.pods["uid-0001"].link is None
    assert soon.pods["uid-0001"].link is not None


def _fold(world, memory, claims, marks, marks_seconds: float, links_seconds: float):
    from nodeagent.signals import Reading
    from tests.decide.build import now

    return pod_traffic.fold(
        memory, claims, now(links_seconds, boot_id=world.boot_id),
        marks=Reading(value=marks, read_at_seconds=marks_seconds, sequence=1),
        links=Reading(value=links(veth(1, 900, 900)), read_at_seconds=links_seconds, sequence=1),
    )


def test_host_traffic_is_the_node_minus_its_pods() -> None:
    """Never negative; node totals are kept by family and added up."""
    world = watched(1)
    world.kernel.send(4, "10.244.1.1", 1000)
    world.kernel.send(6, "2001:db8::2", 400)
    world.cycle()
    found = pod_traffic.node_traffic(world.memory.traffic)

    assert (found.total.internet_out_bytes, found.host_internet_out_bytes) == (1400, 400)
    assert (found.total.cluster_out_bytes, found.host_internet_in_bytes) == (0, 400)


def test_a_host_network_pod_has_no_incoming_number() -> None:
    """Sent bytes by its cgroup rule; what it received cannot be told from the host's."""
    world = World()
    world.pods = pod_list(pod(1, host_network=True))
    world.settle()
    reading = msgspec.structs.replace(world.reading(), host_pods={"uid-0001": Counter(bytes=77)})
    world.decide(reading)

    assert count(world, 1).tally == Tally(internet_out_bytes=77, internet_in_bytes=None)


def test_a_host_network_pod_without_a_rule_has_no_number() -> None:
    """No cgroup was found for it: its bytes are the host's, and none is not zero."""
    world = World()
    world.pods = pod_list(pod(1, host_network=True))
    world.settle()
    world.decide(msgspec.structs.replace(world.reading(), host_pods={}))

    assert "uid-0001" in world.memory.marks.host_pods
    assert "uid-0001" not in world.memory.traffic.pods


def test_retired_pods_and_namespaces_are_bounded() -> None:
    """The latest 256 gone pods; namespaces beyond a thousand share one line, and no byte is lost."""
    world = World()
    for start in range(0, 1200, 240):
        world.pods = pod_list(*(
            pod(n, f"10.244.{n % 240}.1", namespace=f"ns-{n}") for n in range(start, start + 240)
        ))  # fmt: skip
        world.settle()
        for n in range(240):
            world.kernel.send(4, f"10.244.{n}.1", 10)
        world.cycle()
    namespaces = world.memory.traffic.namespaces

    assert len(world.memory.traffic.retired) == pod_traffic.MAX_RETIRED
    assert len(namespaces) == MAX_NAMESPACES + 1
    assert sum(tally.internet_out_bytes for tally in namespaces.values()) == 12_000
    assert len(world.memory.traffic.seen_bytes) < 600


def test_a_pod_that_comes_back_goes_on() -> None:
    """A list that lost a pod for a moment does not start its sums anew or count its veth twice."""
    world = watched(1, known=True)
    world.kernel.send(4, "10.244.1.1", 100)
    world.links = links(veth(1, 600, 100))
    world.cycle()
    listed, world.pods = world.pods, pod_list()
    world.cycle()
    world.cycle()
    world.pods = listed
    world.settle()
    world.kernel.send(4, "10.244.1.1", 5)
    world.links = links(veth(1, 605, 105))
    world.cycle()
    world.links = links(veth(1, 625, 105))
    world.cycle()

    assert count(world, 1).tally.internet_out_bytes == 105
    assert count(world, 1).tally.cluster_out_bytes == 520


def test_a_window_compares_uplink_and_rules_over_the_same_time() -> None:
    """What the uplink carried before the first look is not compared; the window ends after 30 s."""
    world = watched(1)
    world.kernel.send(4, "10.244.1.1", 5)
    world.links = links(sent_bytes=7_000)
    world.cycle()
    opened = world.memory.traffic.window
    world.links = links(sent_bytes=17_000)
    world.kernel.send(4, "10.244.1.1", 9_000)
    world.cycle()
    window = world.memory.traffic.window

    assert opened is None
    assert window is not None
    assert (window.uplink_out_bytes, window.counted_out_bytes) == (10_000, 9_000)
    assert window.ended_seconds - window.began_seconds == world.step_seconds


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4), st.integers(0, 10**6)),
        st.tuples(st.just("pods"), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8)), max_size=4)),
        st.tuples(st.just("spoil"), st.sampled_from([4, 6]), st.sampled_from(SPOILS)),
        st.tuples(st.just("cycle"), st.one_of(st.none(), st.integers(0, 12))),
        st.tuples(st.just("kill"), st.integers(0, 12)),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps)
def test_no_namespace_sum_ever_falls(steps) -> None:
    """Restart, rewrite, flush, reuse, deletion, death at any op: what was shown once is never taken back."""
    world = watched(1, 2)
    shown: dict[str, Tally] = {}
    for kind, *values in steps:
        if kind == "send":
            world.kernel.send(4, f"10.244.1.{values[0]}", values[1])
        elif kind == "pods":
            world.pods = pod_list(*{
                uid: pod(uid, f"10.244.1.{address}") for address, uid in values[0]
            }.values())  # fmt: skip
        elif kind == "spoil":
            world.kernel.spoil(*values)
        elif kind == "restart":
            world.restart()
        else:
            world.cycle(cut=values[0])
            if kind == "kill":
                world.restart()
        now_shown = world.memory.traffic.namespaces
        for name, tally in shown.items():
            assert now_shown[name].internet_out_bytes >= tally.internet_out_bytes
            assert (now_shown[name].internet_in_bytes or 0) >= (tally.internet_in_bytes or 0)
        shown = dict(now_shown)
    counted = sum(tally.internet_out_bytes for tally in shown.values())
    assert counted <= sum(values[1] for kind, *values in steps if kind == "send")


@settings(max_examples=100, deadline=None)
@given(veths=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=12))
def test_no_cluster_sum_is_negative_or_falls(veths) -> None:
    """Whatever the veth's counters do."""
    world = watched(1, known=True)
    before = 0
    for sent, internet in veths:
        world.kernel.send(4, "10.244.1.1", internet)
        world.links = links(veth(1, sent, 0))
        world.cycle()
        after = count(world, 1).tally.cluster_out_bytes or 0
        assert after >= before
        assert world.memory.traffic.namespaces["team-1"].cluster_out_bytes == after
        before = after
