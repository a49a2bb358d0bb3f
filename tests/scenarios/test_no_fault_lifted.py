"""No fault is lifted that was not proven gone: resets between two reads, reboots, swapped boards."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nodeagent.model import NodeClass, State
from nodeagent.settings import GpuSettings, Settings
from nodeagent.signals import (
    GpuPresence,
    PciGpus,
    RecoveryAction,
)
from tests.scenarios.steps import (
    ACTION_A,
    DAY_SECONDS,
    LOST,
    absent,
    release,
    resume,
)
from tests.scenarios.world import (
    GPU_A,
    GPU_B,
    World,
    clock,
    ecc,
    healthy,
    identity,
    remap,
)


@pytest.mark.parametrize("number", [95, 119, 79])
def test_a_fault_after_the_reset_is_not_cured_by_it(number: int) -> None:
    """Reset while released, fault before NVML is read again: what fell tells of the reset only."""
    world = World()
    world.put({f"gpu.ecc@{GPU_A}": ecc(5)})
    world.run(60)
    read = release(world)
    world.run(300)
    world.xid(number)
    world.run(60)
    resume(world, {**read, f"gpu.ecc@{GPU_A}": ecc(0)})
    world.run(3600)

    assert world.taints() == ["gpu-unhealthy=xid"]


def test_a_fault_while_the_driver_loads_is_not_cured_by_the_load() -> None:
    """A GPU that fails to start is no cured GPU, although its driver was loaded anew."""
    world = World()
    world.run(60)
    absent(world)
    world.run(60)
    world.xid(143, at_seconds=world.monotonic_seconds + 2.0)
    world.put(healthy())
    world.run(3600)

    assert world.taints() == ["gpu-unhealthy=xid"]


@pytest.mark.parametrize("restarts_always", [False, True])
def test_a_fault_before_the_unload_is_cured_by_the_load(restarts_always: bool) -> None:
    """The whole upgrade: fault, module away, module back, good reads."""
    world = World(restarts_always=restarts_always)
    world.xid(119)
    world.run(60)
    absent(world)
    world.run(600)
    world.put(healthy())
    world.run(400)

    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)


@pytest.mark.parametrize(
    ("asked", "cleared"),
    [(1, True), (2, True), (4, True), (6, True), (7, True), (3, False), (5, False), (9, False)],
)
def test_only_the_end_of_an_asked_reset_is_a_reset(asked: int, cleared: bool) -> None:
    """Drain P2P and Recover IMEX Domain end without one."""
    world = World()
    world.xid(62)
    world.put({ACTION_A: RecoveryAction(value=asked)})
    world.run(60)
    world.put({ACTION_A: RecoveryAction(value=0)})
    world.run(600)

    assert (world.taints() == []) is cleared


def test_a_reset_that_is_followed_by_another_wish_is_seen_at_its_end() -> None:
    """1, then 3, then 0: what asked for the reset is remembered until nothing is asked."""
    world = World()
    for value in (1, 3, 0):
        world.put({ACTION_A: RecoveryAction(value=value)})
        world.run(60)
    world.run(330)

    assert world.taints() == []


@pytest.mark.parametrize("wall_seconds", [100.0, 3e9], ids=["1970", "2065"])
def test_a_reset_in_an_earlier_boot_proves_nothing_in_this_one(wall_seconds: float) -> None:
    """With a dead battery the clock says that last month is yet to come."""
    world = World()
    world.put({ACTION_A: RecoveryAction(value=1)})
    world.run(30)
    world.put({ACTION_A: RecoveryAction(value=0)})
    world.run(600)
    assert world.taints() == []

    world.reboot()
    world.put(clock__sync=clock(synchronized=False))
    world.step_wall(wall_seconds - world.wall_seconds)
    world.put({f"gpu.presence@{GPU_A}": LOST})
    world.run(60)
    world.put({f"gpu.presence@{GPU_A}": GpuPresence(reachable=True)})
    world.run(3600)
    assert world.taints() == ["gpu-unhealthy=gpu.lost"]


def test_good_polls_of_an_earlier_boot_do_not_count() -> None:
    """A device that came back before the reboot must be read good in this boot, too."""
    world = World()
    world.put({f"gpu.presence@{GPU_A}": LOST})
    world.run(60)
    world.put({f"gpu.presence@{GPU_A}": GpuPresence(reachable=True)})
    world.run(900)
    world.reboot()
    for _ in range(2):
        world.cycle()
        assert world.taints() == ["gpu-unhealthy=gpu.lost"]
    world.cycle()
    assert world.taints() == []


def test_a_bad_board_that_changed_places_is_not_replaced() -> None:
    """The vendor's fault stands when its GPU is still in the node, at another address."""
    world = World()
    world.xid(64)
    world.run(60)
    world.reboot()
    world.put(gpu__devices=(
        msgspec.structs.replace(identity(0, GPU_A), uuid="GPU-1"),
        msgspec.structs.replace(identity(1, GPU_B), uuid="GPU-0"),
    ))  # fmt: skip
    world.run(900)

    assert world.taints() == ["gpu-unhealthy=xid"]


def test_a_gpu_that_leaves_the_bus_is_still_expected() -> None:
    """The bus showed two, NVML ever only one, then the bus shows one: that is no cure."""
    world = World()
    world.put(gpu__devices=(identity(0, GPU_A),))
    world.cycle()
    world.put(gpu__pci=PciGpus(addresses=(GPU_A,)))
    world.run(3600)

    assert world.taints() == ["gpu-unhealthy=gpu.count"]


@pytest.mark.parametrize(
    "fault",
    [
        {f"gpu.ecc@{GPU_A}": ecc(2)},
        {f"gpu.presence@{GPU_A}": LOST},
        {f"gpu.row_remap@{GPU_A}": remap(pending=True)},
    ],
    ids=["errors", "lost", "remap"],
)
def test_a_driver_that_answers_again_hides_no_gpu(fault: dict[str, Any]) -> None:
    """While its own fault is still being proven gone, the GPUs are judged."""
    world = World()
    absent(world)
    world.run(400)
    assert world.state("driver.stuck") is State.WARNING
    world.put(healthy())
    world.put(fault)
    world.run(45)

    assert world.state("driver.stuck") is State.WARNING
    assert len(world.taints()) == 1


@pytest.mark.parametrize("ignored_seconds", [300.0, 900.0, 2 * DAY_SECONDS])
def test_an_ignored_fault_is_there_again_when_the_order_is_taken_back(ignored_seconds: float) -> None:
    """`"95" = "ignore"` hides what nobody has cured; it does not cure it."""
    world = World(settings=Settings(gpu=GpuSettings(xid={"95": NodeClass.IGNORE})))
    world.xid(95)
    world.run(60)
    world.cycle(ignored_seconds)
    assert (world.taints(), world.raised()) == ([], set())

    world.settings = Settings()
    world.run(30)
    assert world.taints() == ["gpu-unhealthy=xid"]


def test_an_ignored_fault_that_was_cured_does_not_come_back() -> None:
    """A reboot ends it, seen or unseen."""
    world = World(settings=Settings(gpu=GpuSettings(xid={"95": NodeClass.IGNORE})))
    world.xid(95)
    world.run(60)
    world.reboot()
    world.run(60)
    world.settings = Settings()
    world.run(60)

    assert world.taints() == []
