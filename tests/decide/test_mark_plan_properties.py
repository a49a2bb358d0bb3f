"""Properties of the planner over any pods, any spoiled kernel and any interruption."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.decide import marks
from nodeagent.traffic import Pod, PodPhase
from tests.decide.mark_kernel import SPOILS, Refused
from tests.decide.mark_world import World, links, pod_list

ADDRESSES = (
    "10.244.1.1", "10.244.1.2", "10.244.1.3", "fd00:244:1::1", "2001:db8:9::1", "127.0.0.1", "odd",
)  # fmt: skip
pods = st.lists(
    st.builds(
        Pod,
        uid=st.sampled_from([f"uid-{n}" for n in range(8)]),
        namespace=st.sampled_from(["a", "b"]),
        name=st.sampled_from(["x", "y" * 253]),
        addresses=st.lists(st.sampled_from(ADDRESSES), max_size=3, unique=True).map(tuple),
        host_network=st.booleans(),
        phase=st.sampled_from(PodPhase),
        terminating=st.booleans(),
        created=st.sampled_from(["", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    ),
    max_size=8,
    unique_by=lambda pod: pod.uid,
).map(lambda found: pod_list(*found))
spoiling = st.lists(st.tuples(st.sampled_from([4, 6]), st.sampled_from(SPOILS)), max_size=3)
cut = st.one_of(st.none(), st.integers(0, 30))
refusals = st.frozensets(st.integers(0, 30), max_size=4)
uplinks = st.sampled_from([("eth0",), ("eth0", "eth1"), ("bond0",)])


def must_be_as_wanted(world: World) -> None:
    """Fail unless the kernel holds what is wanted, read back equal."""
    wish = marks.wish(world.options, world.memory.marks)
    assert wish is not None
    for wanted, actual in zip(wish.states, world.kernel.read().states, strict=True):
        assert set(wanted.chains) == set(actual.chains)
        assert sorted(wanted.rules, key=repr) == sorted(actual.rules, key=repr)
        assert sorted(wanted.jumps, key=repr) == sorted(actual.jumps, key=repr)
        assert (set(wanted.cluster), wanted.pods) == (set(actual.cluster), actual.pods)
        assert (wanted.sets, actual.displaced) == (actual.sets, ())


@settings(deadline=None)
@given(before=pods, after=pods, spoils=spoiling, devices=uplinks)
def test_applied_means_equal_and_a_second_plan_is_empty(before, after, spoils, devices) -> None:
    """From any state to any other in one plan; what is foreign stays as it was."""
    world = World()
    world.pods = before
    world.settle()
    for family, how in spoils:
        world.kernel.spoil(family, how)
    world.pods, world.links = after, links(uplinks=devices)
    foreign = world.kernel.foreign()
    world.cycle()

    must_be_as_wanted(world)
    assert world.cycle() == ()
    assert world.kernel.foreign() == foreign


@settings(max_examples=30, deadline=None)
@given(before=pods, after=pods, spoils=spoiling, restart=st.booleans())
def test_a_plan_cut_off_at_any_op_ends_equal(before, after, spoils, restart) -> None:
    """Killed between any two ops, the agent goes on from there, and no rule ever lacks its sets."""
    start = World()
    start.pods = before
    start.settle()
    for family, how in spoils:
        start.kernel.spoil(family, how)
    start.pods = after
    length, place = 1, 0
    while place <= length:
        world = World()
        world.kernel, world.memory, world.pods = start.kernel.copy(), start.saved, after
        world.seconds = start.seconds
        length = len(world.cycle(cut=place))
        place += 1
        if restart:
            world.restart()
        world.settle()
        must_be_as_wanted(world)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(pods, spoiling, cut, refusals, st.booleans()), max_size=5))
def test_no_rule_stands_without_its_cluster_set(steps) -> None:
    """Whatever is refused, cut off or flushed: our own ops never make a rule whose cluster set is empty."""
    world = World()
    for wanted, spoils, place, refused, restart in steps:
        world.pods = wanted
        for family, how in spoils:
            if how != "flush sets":
                world.kernel.spoil(family, how)
        if restart:
            world.restart()
        world.cycle(cut=place, refuse=refused)
        assert world.kernel.is_safe()
    world.settle()
    must_be_as_wanted(world)


@settings(deadline=None)
@given(before=pods, after=pods)
def test_every_op_is_idempotent(before, after) -> None:
    """Each op carried out twice leaves what once leaves."""
    world = World()
    world.pods = before
    world.settle()
    world.pods = after
    plan = world.decide()
    for op in plan.ops if plan is not None else ():
        try:
            world.kernel.apply(op)
        except Refused as error:
            raise AssertionError(f"{op.kind} on {op.target} was refused: {error}") from error
        once = world.kernel.read().states
        world.kernel.apply(op)
        assert world.kernel.read().states == once
