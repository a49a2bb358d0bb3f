"""From the fault over the release to the reset that is seen: by order, by itself, too early, too late."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.errors import ErrorKind
from nodeagent.model import NodeClass, State
from nodeagent.settings import GpuSettings, Settings
from nodeagent.signals import GpuProcesses, RecoveryAction
from tests.scenarios.steps import ACTION_A, LOST, release, resume
from tests.scenarios.world import GPU_A, GPU_B, World, ecc, unread

IDLE = {f"gpu.processes@{gpu}": GpuProcesses(count=0) for gpu in (GPU_A, GPU_B)}


def seconds_until_released(world: World, limit_seconds: float = 600.0) -> float:
    """Cycles of 5 s with polls of 15 s until the agent lets go; more than the limit when it does not."""
    began_seconds = world.monotonic_seconds
    for number in range(int(limit_seconds / 5.0)):
        if world.cycle(5.0, poll=number % 3 == 2).released:
            break
    else:
        return limit_seconds * 2
    return world.monotonic_seconds - began_seconds


def test_an_own_release_waits_until_the_fault_was_read_for_a_minute() -> None:
    """The recovery action may come some polls after the Xid: a reset is seen by it."""
    world = World()
    world.put(IDLE)
    world.run(60)
    world.xid(119)

    assert 60.0 < seconds_until_released(world) < 90.0


def test_another_xid_of_a_faulty_gpu_is_read_as_long_as_the_first() -> None:
    """The finding stands for an hour; what is read before the second Xid tells nothing of it."""
    world = World()
    world.xid(95)
    world.run(3600)
    world.put(IDLE)
    world.xid(119)

    assert 60.0 < seconds_until_released(world) < 90.0


def test_a_fault_from_before_the_reboot_is_read_in_this_boot_first() -> None:
    """What only the vendor cures does not blind the agent in the first second of each boot."""
    world = World()
    world.xid(64)
    world.run(60)
    world.reboot(uptime_seconds=5.0)
    world.put(IDLE)
    world.cycle()
    assert not world.decision.released
    world.run(90)
    assert world.decision.released


def test_a_bad_poll_that_will_never_be_counted_holds_no_release_up() -> None:
    """Its GPU fell off the bus before the second poll."""
    world = World()
    world.run(30)
    world.put({f"gpu.ecc@{GPU_A}": ecc(1)})
    world.cycle()
    world.put({f"gpu.presence@{GPU_A}": LOST, f"gpu.processes@{GPU_B}": GpuProcesses(count=0)})
    lost = [f"gpu.{signal}@{GPU_A}" for signal in ("ecc", "recovery_action", "row_remap", "processes")]
    world.put(unread(ErrorKind.LOST, *lost))
    world.run(180)

    assert world.state("ecc.uncorrected", GPU_A) is State.MUTED
    assert world.decision.released


@pytest.mark.parametrize(
    "busy",
    [
        {f"gpu.processes@{GPU_B}": GpuProcesses(count=1)},
        unread(ErrorKind.TIMEOUT, f"gpu.processes@{GPU_B}"),
        unread(ErrorKind.DENIED, f"gpu.processes@{GPU_A}"),
    ],
    ids=["a process on another GPU", "not read", "not permitted"],
)
def test_no_own_release_while_somebody_may_compute(busy: dict[str, Any]) -> None:
    """Processes that cannot be counted count."""
    world = World()
    world.put({**IDLE, f"gpu.ecc@{GPU_A}": ecc(2)})
    world.put(busy)

    assert seconds_until_released(world) > 600.0


def test_xids_that_reading_itself_brings_forth_do_not_hold_it_up() -> None:
    """GSP timeouts come with each call, until the agent lets go; the reset cures all of them."""
    world = World()
    world.put({**IDLE, ACTION_A: RecoveryAction(value=1)})
    for _ in range(12):
        world.xid(119)
        if world.cycle().released:
            break
    assert world.decision.released

    world.xid(119, at_seconds=world.monotonic_seconds - 1.0)
    read = release(world)
    world.run(60)
    resume(world, {**read, ACTION_A: RecoveryAction(value=0)})
    world.run(400)
    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)


@pytest.mark.parametrize(("after_seconds", "cured"), [(-1.0, True), (5.0, False), (290.0, False)])
def test_a_release_by_order_parts_what_was_before_the_reset_from_what_came_after(
    after_seconds: float, cured: bool
) -> None:
    """Nobody resets a GPU that the agent has open, so an Xid before the release is before the reset."""
    world = World()
    world.put({f"gpu.ecc@{GPU_A}": ecc(0, corrected=7)})
    world.run(60)
    world.xid(119, at_seconds=world.monotonic_seconds + 14.0)
    read = release(world)
    began_seconds = world.monotonic_seconds
    world.run(300)
    world.xid(95, at_seconds=began_seconds + after_seconds)
    resume(world, {**read, f"gpu.ecc@{GPU_A}": ecc(0)})
    world.run(400)

    assert (world.taints() == []) is cured


@pytest.mark.parametrize("restarts_always", [False, True])
def test_a_fault_that_is_cured_while_the_agent_is_away(restarts_always: bool) -> None:
    """Stopped for the reset, started after it: the counters in the state file are compared with."""
    world = World(restarts_always=restarts_always)
    world.xid(95)
    world.put({ACTION_A: RecoveryAction(value=1)})
    world.run(60)
    world.restart()
    world.put({ACTION_A: RecoveryAction(value=0)})
    world.cycle(900.0)
    world.run(400)

    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)


def test_what_the_driver_asks_after_the_reboot_is_what_is_shown() -> None:
    """It wanted a reboot, had one, and now wants a reset."""
    world = World()
    world.put({ACTION_A: RecoveryAction(value=2)})
    world.run(60)
    assert world.row("gpu.recovery_action", GPU_A).node_class is NodeClass.REBOOT
    world.reboot()
    world.put({ACTION_A: RecoveryAction(value=1)})
    world.run(60)

    assert world.row("gpu.recovery_action", GPU_A).node_class is NodeClass.RESET
    assert world.taints() == ["gpu-unhealthy=gpu.recovery_action"]


def test_gpu_checks_that_are_switched_off_let_go_of_their_faults() -> None:
    """`[gpu] enabled = "false"` is an order; the history says what became of the fault."""
    world = World()
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.run(60)
    world.settings = Settings(gpu=GpuSettings(enabled="false"))
    world.run(60)

    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)
    assert world.memory.history[-1].sentence == "the check was switched off"
