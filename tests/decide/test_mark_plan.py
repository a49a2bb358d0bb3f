"""The plan for the kernel: what it contains, in which order, and what it never touches."""

from __future__ import annotations

import msgspec
import pytest

from nodeagent.decide import mark_plan, marks
from nodeagent.errors import ErrorKind
from nodeagent.signals import Unread
from tests.decide.mark_kernel import SPOILS, Kernel, Refused
from tests.decide.mark_world import World, links, pod, pod_list

ORDER = (
    "set.create", "set.cluster", "entries.delete", "entries.put", "chain.put", "host_pods.put", "jumps.put",
    "chain.delete", "set.destroy",
)  # fmt: skip


def settled(*numbers: int) -> World:
    """A world whose kernel holds these pods."""
    world = World()
    world.pods = pod_list(*(pod(n) for n in numbers))
    world.settle()
    return world


def test_first_plan_goes_from_sets_to_jumps() -> None:
    """Sets, prefixes, entries, chains, jumps: a packet never meets a rule whose sets are not filled."""
    world = World()
    world.pods = pod_list(pod(1), pod(2))
    ops = world.cycle()
    kinds = [op.kind for op in ops if op.arguments["family"] == 4]

    assert list(dict.fromkeys(kinds)) == [
        "set.create", "set.cluster", "entries.put", "chain.put", "jumps.put",
    ]  # fmt: skip
    assert kinds == sorted(kinds, key=ORDER.index)
    assert len(ops) == 2 * len(kinds)
    assert world.cycle() == ()


def test_ops_can_be_saved_and_read() -> None:
    """A plan is JSON: it can be shown and recorded."""
    world = World()
    world.pods = pod_list(*(pod(n) for n in range(1, 100)))
    plan = world.decide()

    assert plan is not None
    assert msgspec.json.decode(msgspec.json.encode(plan), type=type(plan)) == plan
    assert max(len(op.arguments.get("entries", [])) for op in plan.ops) == mark_plan.BATCH_ENTRIES


def test_a_restart_with_250_pods_plans_nothing() -> None:
    """The kernel is the database: with or without the state file, nothing is written."""
    world = World()
    world.pods = pod_list(*(pod(n) for n in range(1, 251)))
    world.settle()
    writes = world.kernel.writes
    world.restart()
    with_memory = world.settle()
    world.saved = type(world.saved)()
    world.restart()
    without_memory = world.settle()

    assert (with_memory, without_memory, world.kernel.writes) == (0, 0, writes)


def test_a_reused_address_is_deleted_before_it_is_added() -> None:
    """The new pod starts from zero, with a class of its own."""
    world = settled(1)
    world.kernel.send(4, "10.244.1.1", 5000)
    world.pods = pod_list(pod(2, "10.244.1.1"))
    ops = world.cycle()
    put = next(op for op in ops if op.kind == "entries.put")
    entry = world.kernel.families[4].members["nodeagent-out4"]["10.244.1.1"]

    assert [e["fresh"] for e in put.arguments["entries"]] == [True]
    assert (entry.bytes, entry.comment, entry.minor) == (0, "team-2/pod-2/uid-0002", 0x11)


def test_an_entry_that_changes_keeps_its_counters() -> None:
    """Another mark or class of the same pod is overwritten in place."""
    world = settled(1)
    world.kernel.send(4, "10.244.1.1", 5000)
    world.users = ("-A PREROUTING -j MARK --set-xmark 0x10000/0x10000",)
    world.settle()
    entry = world.kernel.families[4].members["nodeagent-out4"]["10.244.1.1"]

    assert (entry.mark, entry.bytes) == (0, 5000)
    assert not any("--map-mark" in rule for rule in world.kernel.families[4].chains["NODEAGENT-EGRESS"])


@pytest.mark.parametrize("family", [4, 6])
def test_a_family_that_was_not_read_gets_no_op(family: int) -> None:
    """What is not in the reading may be there: nothing is added, and above all nothing deleted."""
    world = World()
    world.pods = pod_list(pod(1))
    plan = world.decide(world.kernel.read(families=(family,)))

    assert plan is not None
    assert {op.arguments["family"] for op in plan.ops} == {family}


def test_an_unread_kernel_gets_no_plan() -> None:
    """A failed dump is not an empty kernel."""
    world = settled(1)
    world.pods = pod_list()

    assert world.decide(Unread(kind=ErrorKind.BUSY, reason="dump interrupted")) is None


def test_one_reading_gives_one_plan() -> None:
    """Ops carried out since the reading are not planned again from it."""
    world = World()
    world.pods = pod_list(pod(1))
    reading = world.reading()
    first = world.decide(reading)
    world.seconds -= world.step_seconds

    assert first is not None
    assert world.decide(reading) is None


@pytest.mark.parametrize("how", SPOILS)
def test_what_others_spoil_is_repaired(how: str) -> None:
    """Flushed, displaced, replaced or littered: the next plan makes it right, and only ours is touched."""
    world = settled(1, 2, 3)
    foreign = world.kernel.foreign()
    world.kernel.spoil(4, how)
    after_spoil = world.kernel.foreign() if how == "insert before" else foreign
    world.settle()

    assert world.kernel.foreign() == after_spoil
    assert world.kernel.read().states == settled(1, 2, 3).kernel.read().states


def test_cleanup_leaves_nothing_of_ours_and_all_that_is_foreign() -> None:
    """Jumps, chains, sets: gone, orphans too, in an order that the kernel accepts."""
    world = settled(1, 2)
    world.kernel.spoil(4, "orphans")
    foreign = world.kernel.foreign()
    for op in mark_plan.cleanup(world.kernel.read()):
        world.kernel.apply(op)

    assert world.kernel.is_clean()
    assert world.kernel.foreign() == foreign
    assert mark_plan.cleanup(world.kernel.read()) == ()


def test_host_pod_rules_are_single_lines() -> None:
    """A hostNetwork pod that comes or goes rewrites no chain."""
    world = settled(1)
    world.options = msgspec.structs.replace(
        world.options, host_pod_paths={"uid-0009": "kubepods.slice/kubepods-pod9.slice"}
    )
    world.pods = pod_list(pod(1), pod(9, "192.0.2.2", host_network=True))
    came = world.cycle()
    again = world.cycle()
    world.pods = pod_list(pod(1))
    went = world.cycle()

    assert [(op.kind, op.target) for op in came] == [("host_pods.put", marks.HOST_PODS)] * 2
    assert came[0].arguments["add"] == [
        '-m cgroup --path kubepods.slice/kubepods-pod9.slice -m comment --comment "team-0/pod-9/uid-0009"'
    ]
    assert (again, [len(op.arguments["delete"]) for op in went]) == ((), [1, 1])


def test_an_uplink_that_comes_and_goes_changes_jumps_alone() -> None:
    """A jump an uplink; chains and their counters stay."""
    world = settled(1)
    world.links = links(uplinks=("eth0", "eth1"))
    ops = world.cycle()

    assert {op.kind for op in ops} == {"jumps.put"}
    assert ops[0].arguments["rules"] == [
        "-o eth0 -j NODEAGENT-EGRESS", "-o eth1 -j NODEAGENT-EGRESS", "-i eth0 -j NODEAGENT-INGRESS",
        "-i eth1 -j NODEAGENT-INGRESS",
    ]  # fmt: skip


def test_the_model_refuses_what_the_kernel_refuses() -> None:
    """A rule before its set, a jump before its chain, a chain or set in use: the model can fail."""
    world = World()
    world.pods = pod_list(pod(1))
    plan = world.decide()
    assert plan is not None
    by_kind = {op.kind: op for op in plan.ops}

    for kind in ("chain.put", "jumps.put", "set.cluster", "entries.put"):
        with pytest.raises(Refused):
            Kernel().apply(by_kind[kind])
    for op in plan.ops:
        world.kernel.apply(op)
    for kind, target in (("set.destroy", "nodeagent-cluster4"), ("chain.delete", marks.EGRESS)):
        with pytest.raises(Refused):
            world.kernel.apply(msgspec.structs.replace(
                plan.ops[0], kind=kind, target=target, arguments={"family": 4}
            ))  # fmt: skip
