"""Ops on classes and filters: their order, what is left alone, and that applied means read back equal."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.decide import network, shaping
from nodeagent.errors import ErrorKind
from nodeagent.model import NODE, Op
from nodeagent.shape import IFB_NAME, ROOT_MINOR, ShapeFilter
from nodeagent.signals import SignalKey, Unread
from nodeagent.traffic import PodPhase
from tests.decide.mark_kernel import Refused
from tests.decide.mark_world import World, links, pod, pod_list, shaping_world
from tests.decide.shape_kernel import SPOILS

LIMIT, GUARANTEE = "nodeagent.io/internet-egress-limit", "nodeagent.io/internet-egress-guarantee"
SHAPE = SignalKey("net.shape", NODE)


def settled(*pods: object, step_seconds: float = 1.0) -> World:
    """A world with pods in the kernel, seen equal, whose cycles are a second apart."""
    world = shaping_world(step_seconds=step_seconds)
    world.pods = pod_list(*(pods or (pod(1), pod(2))))  # type: ignore[arg-type]
    world.settle()
    return world


def kinds(ops: tuple[Op, ...]) -> list[str]:
    """Kinds without repetitions in a row."""
    return [op.kind for place, op in enumerate(ops) if not place or ops[place - 1].kind != op.kind]


def until(world: World, kind: str) -> tuple[Op, ...]:
    """The ops of the first cycle that has one of this kind; fails after twenty."""
    for _ in range(20):
        ops = world.cycle()
        if any(op.kind == kind for op in ops):
            return ops
    raise AssertionError(f"no {kind}")


def must_be_as_wanted(world: World) -> None:
    """Fail unless tc holds what is wanted, read back equal."""
    assert world.tc is not None
    wish = shaping.wish(world.memory.shape, world.memory.marks)
    actual = world.tc.read().state
    assert wish == actual


def test_first_everything_below_then_the_filter_then_marks() -> None:
    """ifb, HTB, classes, filter; sets, entries, chains, jumps follow."""
    world = shaping_world()
    world.pods = pod_list(pod(1))
    ops = world.cycle()

    assert kinds(ops)[:5] == ["shape.ifb", "shape.htb", "class.put", "filter.put", "set.create"]
    parents = [op.arguments["parent"] for op in ops if op.kind == "class.put"]
    assert parents[0] == 0
    assert parents[-1] not in (0, 1)
    assert kinds(ops)[-1] == "jumps.put"


def test_nothing_is_written_before_a_complete_pod_list() -> None:
    """Neither classes nor filters nor an ifb."""
    world = shaping_world()
    world.pods = Unread(kind=ErrorKind.BUSY, reason="not yet")

    assert world.cycle() == ()
    world.pods = pod_list()
    assert "shape.ifb" in kinds(world.cycle())


def test_a_new_pod_is_its_class_then_its_entry() -> None:
    """One class (its namespace's rate moves with it), then the entries of both families."""
    world = settled()
    world.pods = pod_list(pod(1), pod(2), pod(4))
    ops = world.cycle()

    assert [op.kind for op in ops] == ["class.put", "class.put", "entries.put", "entries.put"]
    assert world.cycle() == ()


def test_an_entry_waits_for_its_class() -> None:
    """While tc was not read again since its last plan, a pod whose class nobody saw gets no entry."""
    world = settled()
    world.pods = pod_list(pod(1), pod(2), pod(4))
    world.cycle(cut=0)
    world.old_shape = world.last_readings[SHAPE]
    assert world.cycle() == ()
    world.old_shape = None
    assert kinds(world.cycle()) == ["class.put", "entries.put"]


def test_an_address_of_another_pod_is_given_up_while_its_class_is_awaited() -> None:
    """Waiting never means that a pod inherits what its predecessor had."""
    world = settled()
    world.pods = pod_list(pod(2), pod(4, "10.244.1.1"))
    world.cycle(cut=0)
    world.old_shape = world.last_readings[SHAPE]
    assert kinds(world.cycle()) == ["entries.delete"]


def test_no_entry_waits_for_a_reading_that_does_not_come() -> None:
    """After 150 s without a look at tc the pod is counted, in the default class if need be."""
    world = settled()
    world.pods = pod_list(pod(1), pod(2), pod(4))
    world.cycle(cut=0)
    world.old_shape = world.last_readings[SHAPE]
    world.seconds += 150.0
    assert kinds(world.cycle()) == ["entries.put"]


def test_a_pod_that_goes_loses_its_entry_then_drains_then_loses_its_class() -> None:
    """The class stands two seconds longer than the last entry that was read."""
    world = settled(pod(1), pod(4))
    world.pods = pod_list(pod(1))
    assert kinds(world.cycle()) == ["class.put", "entries.delete"]
    gone_seconds = world.seconds
    ops = until(world, "class.delete")

    assert [op.kind for op in ops] == ["class.delete"]
    assert world.seconds - gone_seconds >= 2.0
    must_be_as_wanted(world)


def test_a_class_stands_as_long_as_an_entry_leads_to_it() -> None:
    """An entry that could not be deleted keeps its class, however long it takes."""
    world = settled(pod(1), pod(4))
    minor = world.memory.marks.claims["10.244.1.4"].minor
    world.pods = pod_list(pod(1))
    for _ in range(12):
        ops = world.decide()
        for op in ops.ops if ops is not None else ():
            if op.kind != "entries.delete":
                world.apply(op)
    assert world.tc is not None
    assert minor in world.tc.classes
    world.settle()
    assert minor not in world.tc.classes


def test_a_class_under_the_wrong_parent_is_made_anew() -> None:
    """The kernel moves no class: it is deleted and put, and nothing is refused."""
    world = settled(pod(1), pod(2))
    assert world.tc is not None
    minor = world.memory.marks.claims["10.244.1.1"].minor
    world.tc.classes[minor] = msgspec.structs.replace(world.tc.classes[minor], parent=ROOT_MINOR)
    ops = world.cycle()

    assert [(op.kind, op.target) for op in ops] == [
        ("class.delete", f"4e:{minor:x}"),
        ("class.put", f"4e:{minor:x}"),
    ]
    must_be_as_wanted(world)


def test_the_last_pod_of_a_namespace_takes_its_class_along() -> None:
    """Leaf first."""
    world = settled(pod(1), pod(2))
    world.pods = pod_list(pod(1))
    ops = until(world, "class.delete")

    assert [op.kind for op in ops] == ["class.delete", "class.delete"]
    must_be_as_wanted(world)


def test_a_re_rate_is_one_op() -> None:
    """Another limit changes the running class, and nothing else."""
    world = settled(pod(1, annotations={LIMIT: "10M"}), pod(2))
    world.pods = pod_list(pod(1, annotations={LIMIT: "20M"}), pod(2))
    ops = world.cycle()

    assert [op.kind for op in ops] == ["class.put"]
    assert ops[0].arguments["ceil_bytes_per_second"] == 2_500_000
    world.pods = pod_list(pod(1, annotations={LIMIT: "20Mbit"}), pod(2))
    assert world.cycle() == ()
    assert [one.value for one in world.memory.shape.bad] == ["'20Mbit'"]


def test_the_filter_goes_before_the_ifb() -> None:
    """The ifb goes only once a reading showed no filter, and its queue had time to drain."""
    world = settled()
    assert world.tc is not None
    world.options = type(world.options)()
    ops = world.cycle()
    assert [op.kind for op in ops] == ["filter.delete"]
    assert world.tc.ifb
    unfiltered_seconds = world.seconds + world.step_seconds
    assert [op.kind for op in until(world, "ifb.delete")] == ["ifb.delete"]
    assert world.seconds - unfiltered_seconds >= 2.0
    world.settle()
    assert not world.tc.ifb


def test_a_lost_ifb_is_cured_by_taking_the_filter_away_first() -> None:
    """Traffic flows from the first op on."""
    world = settled()
    assert world.tc is not None
    world.tc.spoil("delete ifb")
    assert world.tc.loses
    plan = world.decide()
    assert plan is not None
    world.apply(plan.ops[0])

    assert plan.ops[0].kind == "filter.delete"
    assert not world.tc.loses
    for op in plan.ops[1:]:
        world.apply(op)
        assert not world.tc.loses
    must_be_as_wanted(world)


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ("delete ifb", f"shape ifb {IFB_NAME}"),
        ("delete htb", f"shape htb {IFB_NAME}"),
        ("delete clsact", "shape filter eth0"),
        ("delete a class", "shape class 4e:fffe"),
        ("foreign program", "shape filter eth0"),
        ("foreign filter behind", "shape filter eth0"),
        ("re-rate", "shape class 4e:1"),
    ],
)
def test_what_others_change_is_drift_and_is_repaired_at_once(how: str, part: str) -> None:
    """The part has a name; our own work has none."""
    world = settled()
    assert world.tc is not None
    assert world.memory.shape.drift.open == ()
    world.tc.spoil(how)
    world.cycle()
    assert part in world.memory.shape.drift.open
    must_be_as_wanted(world)
    world.cycle()
    assert world.memory.shape.drift.open == ()


def test_a_fight_over_the_last_filter_is_not_chased() -> None:
    """From the third repair on once a minute, and a cycle is due then."""
    world = settled()
    assert world.tc is not None
    repairs = 0
    for _ in range(30):
        world.tc.spoil("foreign filter behind")
        repairs += any(op.kind == "filter.put" for op in world.cycle())
    assert repairs == 3
    assert network.next_due_seconds(world.memory, world.seconds) is not None


def test_leftovers_of_a_dead_agent_are_swept() -> None:
    """A pod deleted, a limit changed, an uplink gone and a program replaced while nobody looked."""
    world = settled(pod(1, annotations={LIMIT: "10M"}), pod(2))
    assert world.tc is not None
    for how in ("orphan", "old uplink", "foreign program"):
        world.tc.spoil(how)
    world.restart()
    world.pods = pod_list(pod(1, annotations={LIMIT: "5M"}))
    for _ in range(8):
        world.cycle()

    must_be_as_wanted(world)
    assert set(world.tc.filters) == {"eth0"}


def test_a_new_uplink_gets_the_filter_and_the_old_one_loses_it() -> None:
    """The default route moves to a bond: first it is shaped there, then no more here."""
    world = settled()
    world.links = links(uplinks=("bond0",))
    ops = world.cycle()
    named = [(op.kind, op.target) for op in ops if op.kind.startswith("filter")]

    assert named == [("filter.put", "bond0"), ("filter.delete", "eth0")]
    must_be_as_wanted(world)


def test_marking_goes_on_while_tc_is_not_read() -> None:
    """An unread tc delays no entry; nothing is written there."""
    world = settled()
    world.tc = None
    world.pods = pod_list(pod(1), pod(2), pod(3))
    assert kinds(world.cycle()) == ["entries.put"]


def test_one_reading_gives_one_plan() -> None:
    """The same reading of tc plans nothing a second time."""
    world = settled()
    world.pods = pod_list(pod(1), pod(2), pod(4))
    assert world.decide() is not None
    world.seconds -= world.step_seconds
    assert world.decide() is None


pods = st.lists(
    st.builds(
        lambda number, limit, guarantee, phase, host: pod(
            number,
            phase=phase,
            host_network=host,
            annotations={k: v for k, v in ((LIMIT, limit), (GUARANTEE, guarantee)) if v is not None},
        ),
        st.integers(1, 7),
        st.sampled_from([None, "1M", "1G", "bad"]),
        st.sampled_from([None, "1M", "700M"]),
        st.sampled_from([PodPhase.RUNNING, PodPhase.SUCCEEDED]),
        st.sampled_from([False, False, True]),
    ),
    max_size=6,
    unique_by=lambda one: one.uid,
).map(lambda found: pod_list(*found))
spoiling = st.lists(st.sampled_from(SPOILS), max_size=3)
uplinks = st.sampled_from([("eth0",), ("eth0", "eth1"), ("bond0",)])


@settings(max_examples=60, deadline=None)
@given(before=pods, after=pods, spoils=spoiling, devices=uplinks)
def test_any_state_becomes_any_other(before, after, spoils, devices) -> None:
    """Whatever others did: equal in a few plans, and then none."""
    world = shaping_world()
    world.pods = before
    world.settle()
    for how in spoils:
        world.tc.spoil(how)
    world.pods, world.links = after, links(uplinks=devices)
    world.settle()

    must_be_as_wanted(world)
    assert world.cycle() == ()


@settings(max_examples=20, deadline=None)
@given(before=pods, after=pods, spoils=spoiling, restart=st.booleans())
def test_a_plan_cut_off_at_any_op_ends_equal(before, after, spoils, restart) -> None:
    """Killed between any two ops, the agent goes on from there to the same end as without."""
    start = shaping_world()
    start.pods = before
    start.settle()
    for how in spoils:
        start.tc.spoil(how)
    start.pods = after
    length, place = 1, 0
    while place <= length:
        world = shaping_world()
        world.kernel, world.tc = start.kernel.copy(), start.tc.copy()
        world.memory, world.pods, world.seconds = start.saved, after, start.seconds
        length = len(world.cycle(cut=place))
        place += 1
        if restart:
            world.restart()
        world.settle()
        must_be_as_wanted(world)


@settings(max_examples=40, deadline=None)
@given(before=pods, after=pods, spoils=spoiling)
def test_no_op_is_refused_repeats_badly_or_puts_a_filter_before_its_ifb(before, after, spoils) -> None:
    """Each op twice is as once; an entry's class is there; a filter leads somewhere, always."""
    world = shaping_world()
    world.pods = before
    world.settle()
    for how in spoils:
        world.tc.spoil(how)
    lost = world.tc.loses
    world.pods = after
    plan = world.decide()
    for op in plan.ops if plan is not None else ():
        for _ in range(2):
            try:
                world.apply(op)
            except Refused as error:
                raise AssertionError(f"{op.kind} on {op.target} was refused: {error}") from error
        lost = lost and world.tc.loses
        assert world.tc.loses == lost
        if op.kind == "entries.put":
            assert {entry["minor"] for entry in op.arguments["entries"]} <= set(world.tc.classes)


def test_a_filter_of_ours_is_read_back_by_its_tag() -> None:
    """Another program under our name is another filter."""
    world = settled()
    assert world.tc is not None
    world.tc.filters["eth0"] = ShapeFilter(device="eth0", tag="f" * 16)
    assert [op.kind for op in world.cycle()] == ["filter.put"]
