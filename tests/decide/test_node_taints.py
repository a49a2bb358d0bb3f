"""Taint and ledger of the own Node in every order of faults, persons, neighbours and rebirths."""

from __future__ import annotations

import json

import msgspec
import pytest

from nodeagent.decide import node_taints
from nodeagent.errors import ErrorKind
from nodeagent.model import Op
from nodeagent.signals import NodeCommand, Outcome
from tests.decide.api_model import FOREIGN, ApiModel
from tests.decide.node_world import NodeWorld

XID, ECC, DISK = "xid|0000:4e:00.0", "ecc.uncorrected|0000:4e:00.0", "disk.read_only|/"
LEDGER = "nodeagent.io/ledger"
GPU_TAINT = "nodeagent.io/gpu-unhealthy"


def faulty(api: ApiModel | None = None) -> NodeWorld:
    """A node whose Xid fault is written to the API."""
    world = NodeWorld(api)
    world.faults = {XID: "xid"}
    world.settle(3)
    assert world.api.own() == {GPU_TAINT: "xid"}
    return world


def without_ours(world: NodeWorld) -> list[dict[str, object]]:
    """The list as somebody writes it who takes ours away."""
    return [t for t in world.api.taints if t["key"] != GPU_TAINT]


def test_a_healthy_node_is_never_written_to() -> None:
    """No taint, no ledger, no condition, no event, and no read."""
    world = NodeWorld()
    world.settle(50)
    assert world.api.writes == []
    assert world.state() == NodeWorld().state()


@pytest.mark.parametrize("taints", [[], FOREIGN])
def test_a_fault_taints_and_its_end_untaints(taints: list[dict[str, object]]) -> None:
    """Foreign taints stay equal and in order; at the end the list and the annotations are as before."""
    world = faulty(ApiModel(taints))
    assert world.api.taints[:-1] == taints
    assert json.loads(world.api.annotations[LEDGER])["taints"][0]["key"] == GPU_TAINT
    assert world.api.conditions["NodeAgentUnhealthy"]["status"] == "True"
    world.faults = {}
    world.settle(4)
    assert world.api.taints == taints
    assert LEDGER not in world.api.annotations
    assert world.api.conditions["NodeAgentUnhealthy"]["reason"] == "NoFault"
    reasons = sorted(e["reason"] for e in world.api.events.values())
    assert reasons == ["NodeAgentTaintRemoved", "NodeAgentTaintSet"]
    writes = len(world.api.writes)
    world.settle(20)
    assert len(world.api.writes) == writes


@pytest.mark.parametrize("first_end", [XID, ECC, DISK])
def test_faults_overlap_in_any_order(first_end: str) -> None:
    """A taint goes with the last of its faults; its value follows the worst that stands."""
    world = faulty()
    world.faults |= {ECC: "ecc.uncorrected", DISK: "disk.read_only"}
    world.settle(3)
    del world.faults[first_end]
    world.settle(3)
    value = "ecc.uncorrected" if ECC in world.faults else "xid"
    expected = {GPU_TAINT: value, "nodeagent.io/node-unhealthy": "disk.read_only"}
    if first_end == DISK:
        del expected["nodeagent.io/node-unhealthy"]
    assert world.api.own() == expected
    world.faults = {}
    world.settle(4)
    assert world.api.taints == FOREIGN


def test_a_taint_of_our_name_that_somebody_else_set_stays() -> None:
    """It serves as well while the fault stands, and is not removed when the fault is gone."""
    theirs = [{"key": GPU_TAINT, "value": "by-hand", "effect": "NoSchedule"}]
    world = NodeWorld(ApiModel(theirs))
    world.faults = {XID: "xid"}
    world.settle(3)
    world.faults = {}
    world.settle(3)
    assert world.api.taints == theirs
    assert LEDGER not in world.api.annotations


def test_a_person_who_removes_the_taint_is_obeyed() -> None:
    """Not set again for this fault, also after a restart without memory; a new fault sets it anew."""
    world = faulty()
    world.api.write(without_ours(world), "kubectl-taint")
    world.settle(80)
    assert world.api.own() == {}
    assert world.api.conditions["NodeAgentTaintWithheld"]["reason"] == "RemovedByPerson"
    world.memory = msgspec.structs.replace(world.memory, cluster=type(world.memory.cluster)())
    world.settle(80)
    assert world.api.own() == {}
    world.faults |= {ECC: "ecc.uncorrected"}
    world.settle(3)
    assert world.api.own() == {GPU_TAINT: "ecc.uncorrected"}
    assert world.api.conditions["NodeAgentTaintWithheld"]["status"] == "False"


def test_a_lost_update_is_put_back_once_after_a_confirming_read() -> None:
    """Not before 10 s, with a read of the store first; lost again within 15 min it is contested."""
    world = faulty()
    world.api.write(without_ours(world), "some-controller")
    assert world.cycle(seconds=5) == ()
    assert world.cycle(seconds=35) == ()
    ops = world.decide(read_age_seconds=20)
    assert [op.kind for op in ops] == ["node.read"]
    world.settle(3)
    assert world.api.own() == {GPU_TAINT: "xid"}
    world.api.write(without_ours(world), "some-controller")
    world.settle(50)
    assert world.api.own() == {}
    assert world.api.conditions["NodeAgentTaintWithheld"]["reason"] == "Contested"
    assert "NodeAgentTaintContested" in {e["reason"] for e in world.api.events.values()}
    world.faults = {}
    world.settle(4)
    assert (world.api.taints, world.api.annotations.get(LEDGER)) == (FOREIGN, None)


def test_a_lost_update_after_a_long_time_is_put_back_again() -> None:
    """A neighbour that clobbers once an hour is repaired once an hour."""
    world = faulty()
    for _ in range(3):
        world.api.write(without_ours(world), "some-controller")
        world.settle(10)
        assert world.api.own() == {GPU_TAINT: "xid"}
        world.now_seconds += 3600


def test_a_lost_ledger_alone_is_written_again() -> None:
    """A taint that we remember to have written is ours without the annotation, too."""
    world = faulty()
    del world.api.annotations[LEDGER]
    world.settle(2)
    assert LEDGER in world.api.annotations
    del world.api.annotations[LEDGER]
    world.faults = {}
    world.settle(4)
    assert world.api.taints == FOREIGN


def test_another_node_of_the_same_name_starts_anew() -> None:
    """Nothing of the old one counts; the fault that stands is written to the new one."""
    world = faulty()
    world.api.recreate()
    world.settle(3)
    assert world.api.own() == {GPU_TAINT: "xid"}
    assert json.loads(world.api.annotations[LEDGER])["uid"] == "uid-2"


def test_a_ledger_of_another_uid_is_not_believed() -> None:
    """A Node object that was copied over carries a taint that is not provably ours: it stays."""
    world = faulty()
    taints, annotations = world.api.taints, dict(world.api.annotations)
    world.api.recreate()
    world.api.taints, world.api.annotations = taints, annotations
    world.faults = {}
    world.settle(60)
    assert world.api.own() == {GPU_TAINT: "xid"}


def test_without_memory_a_taint_of_the_ledger_goes_late() -> None:
    """A lost state file does not lift a taint before its fault had time to show again."""
    world = faulty()
    world.memory = type(world.memory)()
    world.faults = {}
    world.settle(int(node_taints.ADOPTED_SECONDS / 15))
    assert world.api.own() == {GPU_TAINT: "xid"}
    world.settle(4)
    assert world.api.taints == FOREIGN


def test_a_foreign_value_and_a_foreign_cordon_stay() -> None:
    """Somebody's other value of our taint is left, and nothing is ever said of spec.unschedulable."""
    world = faulty()
    changed = [*FOREIGN, {"key": GPU_TAINT, "value": "ticket-7", "effect": "NoSchedule"}]
    world.api.write(changed, "kubectl-edit")
    world.settle(3)
    assert world.api.own() == {GPU_TAINT: "ticket-7"}
    world.faults = {}
    world.settle(3)
    assert world.api.own() == {}


@pytest.mark.parametrize("held", ["dry run", "pause"])
def test_while_held_nothing_is_planned_and_all_is_shown(held: str) -> None:
    """Neither a plan nor an intent; what would be written is told, and is written afterwards."""
    world = NodeWorld()
    world.faults = {XID: "xid"}
    if held == "pause":
        world.events = [NodeCommand(verb="pause", for_seconds=60, reason="upgrade", user_id=0)]
    else:
        world.options = msgspec.structs.replace(world.options, held="dry run")
    assert world.cycle() == ()
    assert world.memory.cluster.claims == {}
    assert world.written is not None
    assert held in world.written.writes.held
    assert len(world.written.writes.pending) == 2
    world.options = msgspec.structs.replace(world.options, held="")
    world.now_seconds += 60
    world.settle(3)
    assert world.api.own() == {GPU_TAINT: "xid"}


def test_a_released_node_is_left_bare() -> None:
    """Taint, ledger and conditions of ours are gone, though the fault stands, until resume."""
    world = faulty()
    world.events.append(NodeCommand(verb="release", user_id=0))
    world.settle(4)
    assert (world.api.taints, set(world.api.conditions)) == (FOREIGN, {"Ready"})
    assert LEDGER not in world.api.annotations
    world.events.append(NodeCommand(verb="resume"))
    world.settle(3)
    assert world.api.own() == {GPU_TAINT: "xid"}


@pytest.mark.parametrize(("manager", "person"), [
    ("kubectl-taint", True), ("kubectl", True), ("Mozilla", True), ("oc", True), ("k9s", True),
    ("kubelet", False), ("kube-controller-manager", False), ("ocm-agent", False), ("nodeagent", False),
    ("Lens", True), ("", False),
])  # fmt: skip
def test_people_are_told_from_programs(manager: str, person: bool) -> None:
    """By the name of the field manager, whole or up to a dash."""
    assert node_taints.is_person(manager) is person


def outcome(op: Op, kind: ErrorKind, **more: object) -> Outcome:
    """A failed op."""
    return Outcome(op=op.kind, target=op.target, ok=False, error_kind=kind, **more)  # type: ignore[arg-type]


def test_a_stale_base_is_read_anew_before_the_next_write() -> None:
    """409 and 422 of a failed test: one read of the store, then the patch from what it says."""
    world = NodeWorld()
    world.faults = {XID: "xid"}
    (patch, *_) = world.decide()
    world.events = [outcome(patch, ErrorKind.BUSY, is_stale=True)]
    world.now_seconds += 1
    assert [op.kind for op in world.cycle(seconds=1)] == ["node.read"]
    assert "node.taints" in [op.kind for op in world.cycle(seconds=1)]
    assert world.api.own() == {GPU_TAINT: "xid"}


def test_what_the_server_calls_invalid_is_not_sent_again() -> None:
    """Until something else is to be written."""
    world = NodeWorld()
    world.faults = {XID: "xid"}
    (patch, *_) = world.decide()
    world.events = [outcome(patch, ErrorKind.INVALID, detail="metadata.taints[0].value")]
    for _ in range(100):
        world.now_seconds += 60
        assert "node.taints" not in [op.kind for op in world.decide()]
    assert world.written is not None
    assert "not sent again" in world.written.writes.waiting
    world.faults |= {DISK: "disk.read_only"}
    assert "node.taints" in [op.kind for op in world.decide()]


def test_failures_back_off_and_never_faster_than_asked() -> None:
    """An hour of an absent server costs few tries, and Retry-After is a floor."""
    world = NodeWorld()
    world.faults = {XID: "xid"}
    tries = 0
    for _ in range(240):
        patch = [op for op in world.decide() if op.kind == "node.taints"]
        tries += len(patch)
        world.events = [outcome(op, ErrorKind.ABSENT) for op in patch]
        world.now_seconds += 15
    assert 10 <= tries <= 45
    (patch_again,) = [op for op in (*world.decide(), *_later(world)) if op.kind == "node.taints"][:1]
    world.events = [outcome(patch_again, ErrorKind.BUSY, retry_after_seconds=500.0)]
    world.decide()
    world.now_seconds += 499
    assert "node.taints" not in [op.kind for op in world.decide()]


def _later(world: NodeWorld) -> tuple[Op, ...]:
    world.now_seconds += 400
    return world.decide()
