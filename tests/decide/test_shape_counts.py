"""Sums of classes that only grow, rates between two readings, and since when a class is full."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.decide import shape_counts
from nodeagent.shape import ROOT_MINOR, ClassCounter
from nodeagent.shape_memory import ClassCount, ClassSum
from nodeagent.traffic import DEFAULT_MINOR
from tests.decide.mark_world import World, pod, pod_list, shaping_world
from tests.decide.shape_kernel import TrafficControl

LIMIT = "nodeagent.io/internet-egress-limit"
MBIT_BYTES = 125_000


def limited(step_seconds: float = 10.0) -> tuple[World, TrafficControl, int]:
    """A pod with 10 Mbit/s in the kernel, read twice; and its minor."""
    world = shaping_world(step_seconds=step_seconds)
    world.pods = pod_list(pod(1, annotations={LIMIT: "10M"}), pod(2))
    world.settle()
    world.cycle()
    assert world.tc is not None
    minors = {claim.uid: claim.minor for claim in world.memory.marks.claims.values()}
    return world, world.tc, minors[pod(1).uid]


def count(world: World, number: int = 1) -> ClassCount:
    """What is remembered of pod `number`'s class."""
    return world.memory.shape.pods[pod(number).uid]


def test_what_passes_is_the_pods_its_namespaces_and_the_budgets() -> None:
    """Bytes, drops, waits and borrowed packets, each in its column."""
    world, tc, minor = limited()
    tc.send(minor, 1000, drops=2, overlimits=3, lends=1, borrows=3)
    tc.send(DEFAULT_MINOR, 50)
    world.cycle()

    want = ClassSum(
        sent_bytes=1000, dropped_packets_count=2, throttled_count=3, lent_packets_count=1,
        borrowed_packets_count=3,
    )  # fmt: skip
    shape = world.memory.shape
    assert count(world).total == want
    assert shape.namespaces["team-1"] == want
    assert shape.budget_count is not None
    assert shape.default_count is not None
    assert (shape.budget_count.minor, shape.budget_count.total.sent_bytes) == (ROOT_MINOR, 1050)
    assert shape.default_count.total.sent_bytes == 50
    assert shape_counts.borrowed_ratio(want) == 0.75
    assert shape_counts.borrowed_ratio(ClassSum()) is None


def test_a_rate_is_what_passed_between_two_readings() -> None:
    """10 seconds of 9.5 Mbit/s; then nothing."""
    world, tc, minor = limited()
    tc.send(minor, 95 * MBIT_BYTES)
    world.cycle()
    assert count(world).rate_bits_per_second == 9_500_000
    world.cycle()
    assert count(world).rate_bits_per_second == 0


def test_readings_close_together_make_no_rate() -> None:
    """Readings 0.3 s apart are summed up until a second has passed."""
    world, tc, minor = limited(step_seconds=0.3)
    world.seconds += 100.0
    world.cycle()
    for _ in range(4):
        tc.send(minor, 37_500)
        world.cycle()
    assert count(world).rate_bits_per_second == 1_000_000


def test_a_class_made_anew_lowers_no_sum() -> None:
    """HTB deleted and rebuilt: bytes of the time before stay, new ones are added."""
    world, tc, minor = limited()
    tc.send(minor, 1000)
    world.cycle()
    tc.spoil("delete htb")
    world.settle()
    tc.send(minor, 10)
    world.cycle()

    assert count(world).total.sent_bytes == 1010
    assert world.memory.shape.namespaces["team-1"].sent_bytes == 1010


def test_a_counter_that_began_anew_unseen_lowers_no_sum() -> None:
    """A class deleted and made again between two readings: its whole value is gain."""
    world, tc, minor = limited()
    tc.send(minor, 1000, drops=5)
    world.cycle()
    tc.counters[minor] = ClassCounter(bytes=10, drops=1)
    world.cycle()

    total = count(world).total
    assert (total.sent_bytes, total.dropped_packets_count) == (1010, 6)


def test_another_pods_class_gives_nothing_to_its_successor() -> None:
    """A new pod begins at zero, its namespace goes on."""
    world, tc, minor = limited()
    tc.send(minor, 1000)
    world.cycle()
    world.pods = pod_list(pod(2), pod(4, "10.244.1.1"))
    world.settle()
    world.cycle()

    assert pod(1).uid not in world.memory.shape.pods
    assert count(world, 4).total.sent_bytes == 0
    assert world.memory.shape.namespaces["team-1"].sent_bytes == 1000


def test_a_full_class_is_full_since_the_first_reading_near_its_limit() -> None:
    """90 % of the limit at every reading; one look below ends it."""
    world, tc, minor = limited()
    began_seconds = world.seconds
    for _ in range(3):
        tc.send(minor, 90 * MBIT_BYTES)
        world.cycle()
    assert count(world).busy_since_seconds == began_seconds
    assert count(world, 2).busy_since_seconds is None
    tc.send(minor, 89 * MBIT_BYTES)
    world.cycle()
    assert count(world).busy_since_seconds is None


def test_a_restart_keeps_every_sum() -> None:
    """What was saved goes on where it was, and nothing is counted twice."""
    world, tc, minor = limited()
    tc.send(minor, 1000)
    world.cycle()
    world.restart()
    tc.send(minor, 5)
    world.cycle()
    assert count(world).total.sent_bytes == 1005


steps = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 10**6), st.booleans(),
        st.sampled_from(["", "", "delete ifb", "delete htb", "delete a class"]),
    ),
    max_size=8,
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(steps)
def test_no_sum_ever_falls(moves: list[tuple[int, int, bool, str]]) -> None:
    """Whatever is deleted, rebuilt or restarted."""
    world, tc, minor = limited()
    last = 0
    for pods, sent_bytes, restart, how in moves:
        tc.send(minor, sent_bytes)
        tc.spoil(how)
        world.pods = pod_list(*(pod(n) for n in range(1, 1 + pods)))
        if restart:
            world.restart()
        world.cycle()
        total = sum(one.sent_bytes for one in world.memory.shape.namespaces.values())
        assert total >= last
        last = total
