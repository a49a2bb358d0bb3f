"""What was cured ends, what an operator orders is done, and each is told once."""

from __future__ import annotations

import pytest

from nodeagent.model import NodeClass, State
from nodeagent.settings import CheckSettings, Settings
from nodeagent.signals import (
    GpuCommand,
    GpuProcesses,
    RecoveryAction,
    WorkerStatus,
)
from tests.scenarios.steps import (
    ACTION_A,
    LOST,
    SWITCH,
    fatal,
    take_out,
)
from tests.scenarios.world import (
    GPU_A,
    GPU_B,
    POLL_SECONDS,
    World,
    ecc,
    of_gpus,
)


def test_a_gpu_that_was_taken_out_ends_by_somebodys_word() -> None:
    """Dead, taken out, node run with what is left: nothing is read of it again, so a person says so."""
    world = World()
    world.xid(79)
    world.put({f"gpu.presence@{GPU_A}": LOST})
    world.run(60)
    world.reboot()
    take_out(world)
    world.run(900)
    assert world.taints() != []

    world.emit(GpuCommand(verb="repaired", target=GPU_A, reason="taken out, ticket 12", user_id=0))
    world.run(360)
    told = {"target": GPU_A, "reason": "taken out, ticket 12", "user_id": 0}
    assert world.told("gpu_repaired") == [told]
    assert (world.raised(), world.taints(), world.decision.verdict.state) == (set(), [], State.OK)


def test_a_word_about_a_gpu_that_is_still_lost_lifts_nothing() -> None:
    """What reads show stands, whatever was said."""
    world = World()
    world.xid(79)
    world.put({f"gpu.presence@{GPU_A}": LOST})
    world.run(60)
    world.emit(GpuCommand(verb="repaired", target=GPU_A, reason="I think so"))
    world.run(900)

    assert world.raised() == {f"gpu.lost|{GPU_A}", f"xid|{GPU_A}"}


@pytest.mark.parametrize("restarts_always", [False, True])
def test_a_repaired_switch_is_no_gpu_that_waits_for_a_reset(restarts_always: bool) -> None:
    """Somebody's word ends its fault, and a later driver reload still counts as one of every GPU."""
    world = World(restarts_always=restarts_always)
    fatal(world)
    world.run(60)
    assert world.taints() == ["gpu-unhealthy=nvswitch.sxid"]
    assert world.decision.incidents[0].members == ("sxid 24007",)
    world.emit(GpuCommand(verb="repaired", target=SWITCH, reason="reseated"))
    world.run(360)
    assert world.taints() == []

    fatal(world)
    world.put({f"gpu.recovery_action@{gpu}": RecoveryAction(value=1) for gpu in (GPU_A, GPU_B)})
    world.run(60)
    world.put({f"gpu.recovery_action@{gpu}": RecoveryAction(value=0) for gpu in (GPU_A, GPU_B)})
    world.run(360)
    assert world.taints() == []


@pytest.mark.parametrize("ordered", [NodeClass.CHECK, NodeClass.IGNORE])
def test_an_order_takes_hold_of_a_fault_that_is_not_read_any_more(ordered: NodeClass) -> None:
    """The GPU vanished, so no poll will come: the operator's class counts all the same."""
    world = World()
    world.put({f"gpu.presence@{GPU_A}": LOST})
    world.run(60)
    take_out(world)
    order = CheckSettings(node_class=ordered)
    world.settings = Settings(checks={"gpu.lost": order, "gpu.count": order})
    world.run(60)
    assert world.taints() == []
    assert (f"gpu.lost|{GPU_A}" in world.raised()) is (ordered is NodeClass.CHECK)




def test_a_check_that_is_switched_off_says_so() -> None:
    """A fault does not slip out of the history."""
    world = World()
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.run(60)
    world.settings = Settings(checks={"ecc.uncorrected": CheckSettings(enabled=False)})
    world.run(60)

    last = world.memory.history[-1]
    assert (last.check, last.target) == ("ecc.uncorrected", GPU_A)
    assert last.sentence == "the check was switched off"
    assert [told["check"] for told in world.told("finding_cleared")] == ["ecc.uncorrected"]


def test_own_releases_are_told_but_raise_nothing_anew() -> None:
    """A fault that only the vendor cures: hours of releasing and reading add no line to the history."""
    world = World()
    idle = {f"gpu.processes@{gpu}": GpuProcesses(count=0) for gpu in (GPU_A, GPU_B)}
    world.put({f"gpu.ecc@{GPU_A}": ecc(2), **idle})
    world.run(60)
    read, known = dict(world.values), len(world.memory.history)
    for _ in range(int(7200 / POLL_SECONDS)):
        for op in [op for plan in world.plans for op in plan.ops]:
            released = op.kind == "nvml.release"
            world.put(dict.fromkeys(of_gpus(world.values)) if released else read)
            world.put(worker__nvml=WorkerStatus(state="released" if released else "idle"))
        world.cycle()
        assert world.taints() == ["gpu-unhealthy=ecc.uncorrected"]

    assert len(world.told("gpu_released")) > 5
    assert len(world.memory.history) == known
    assert world.told("signal_unread") == []


def test_a_peer_stays_in_its_incident_until_it_is_lifted() -> None:
    """The link error of a dead GPU's peer opens no incident of its own while both are proven gone."""
    world = World()
    world.xid(79)
    world.xid(74, GPU_B, node_class=NodeClass.CHECK)
    world.run(60)
    known = world.decision.incidents[0].id
    world.reboot()
    for _ in range(40):
        world.cycle()
        assert {incident.id for incident in world.decision.incidents} <= {known}
    assert (world.decision.incidents, world.raised()) == ((), set())


def test_a_standing_taint_has_an_incident_until_it_is_lifted() -> None:
    """The Xid is proven gone, its finding not yet: it is still the same incident."""
    world = World()
    world.xid(95)
    world.put({ACTION_A: RecoveryAction(value=1)})
    world.run(60)
    known = world.decision.incidents[0].id
    world.put({ACTION_A: RecoveryAction(value=0)})
    for _ in range(40):
        world.cycle()
        assert [incident.id for incident in world.decision.incidents] == ([known] if world.taints() else [])
    assert world.taints() == []
