"""Nothing asks for a taint that is no fault of the node: upgrades, moved limits, old lines, new boards."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nodeagent.errors import ErrorKind
from nodeagent.model import NodeClass, State
from nodeagent.settings import CheckSettings, GpuSettings, Settings
from nodeagent.signals import (
    RecoveryAction,
)
from tests.scenarios.steps import (
    ACTION_A,
    DAY_SECONDS,
    LOST,
    absent,
    mismatch,
)
from tests.scenarios.world import (
    GPU_A,
    GPU_B,
    World,
    ecc,
    healthy,
    identity,
    unread,
)


@pytest.mark.parametrize("pause_seconds", [330.0, 900.0, 1400.0])
def test_two_short_failures_are_not_one_long_one(pause_seconds: float) -> None:
    """NVML that fails for one poll, answers for minutes and fails once more has not failed for minutes."""
    world = World()
    mismatch(world)
    world.cycle()
    world.put(healthy())
    world.run(pause_seconds)
    mismatch(world)
    world.run(270)

    assert (world.state("driver.stuck"), world.taints()) == (State.PENDING, [])


@pytest.mark.parametrize("absent_seconds", [120.0, 285.0, 330.0, 1200.0])
def test_a_slow_upgrade_with_a_moment_of_mismatch_never_taints(absent_seconds: float) -> None:
    """The new module is loaded before the new library is read: each cause has its own time."""
    world = World()
    absent(world)
    world.run(absent_seconds)
    mismatch(world)
    world.put(gpu__kernel_driver=healthy()["gpu.kernel_driver"])
    world.run(45)
    assert world.taints() == []
    world.put(healthy())
    world.run(400)
    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)


def test_a_mismatch_that_stays_after_a_slow_upgrade_is_a_fault() -> None:
    """Its own five minutes are over: the upgrade went wrong."""
    world = World()
    absent(world)
    world.run(400)
    mismatch(world)
    world.run(285)
    assert world.taints() == []
    world.run(45)
    assert world.taints() == ["gpu-unhealthy=driver.stuck"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (Settings(gpu=GpuSettings(expected_count=16)), Settings(gpu=GpuSettings(expected_count=2))),
        (Settings(gpu=GpuSettings(expected_count=16)), Settings()),
        (Settings(), Settings(checks={"ecc.uncorrected": CheckSettings(limits={"errors": 10})})),
    ],
    ids=["count corrected", "count taken back", "errors tolerated"],
)
def test_a_fault_by_a_wrong_limit_goes_with_the_limit(wrong: Settings, right: Settings) -> None:
    """Who corrects the configuration need not reboot the node for it."""
    world = World(settings=wrong)
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)} if right.checks else {})
    world.run(60)
    assert len(world.taints()) == 1
    world.settings = right
    world.run(360)
    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)


@pytest.mark.parametrize("number", [48, 79, 95, 120, 154])
def test_an_old_line_of_a_cured_fault_taints_no_node_on_the_first_day(number: int) -> None:
    """The agent is installed weeks after the GPU was reset: the driver, asked, wants nothing done."""
    world = World(uptime_seconds=30 * DAY_SECONDS)
    told = {"recovery_text": "GPU Reset Required", "node_class": NodeClass.RESET} if number == 154 else {}
    world.xid(number, at_seconds=DAY_SECONDS, **told)
    for _ in range(60):
        world.cycle()
        assert world.taints() == []


@pytest.mark.parametrize(
    "found",
    [
        {ACTION_A: RecoveryAction(value=1)},
        {f"gpu.presence@{GPU_A}": LOST},
        unread(ErrorKind.ABSENT, ACTION_A),
        unread(ErrorKind.TIMEOUT, f"gpu.presence@{GPU_A}"),
    ],
    ids=["the driver asks for a reset", "lost", "no such field", "not read"],
)
def test_an_old_line_is_a_fault_unless_the_driver_says_otherwise(found: dict[str, Any]) -> None:
    """No answer is not a good answer."""
    world = World(uptime_seconds=30 * DAY_SECONDS)
    world.put(found)
    world.xid(95, at_seconds=DAY_SECONDS)
    world.run(90)

    assert world.row("xid", GPU_A).node_class is NodeClass.RESET
    assert len(world.taints()) == 1


def test_an_old_fault_that_comes_again_is_a_fault_at_once() -> None:
    """What the driver thought of the old line says nothing of the new one."""
    world = World(uptime_seconds=30 * DAY_SECONDS)
    world.xid(95, at_seconds=DAY_SECONDS)
    world.run(75)
    world.xid(95)
    world.cycle()

    assert world.taints() == ["gpu-unhealthy=xid"]


def test_the_first_fault_of_a_new_device_is_not_its_second() -> None:
    """The board at this place was replaced: the month of the old one is over."""
    world = World()
    world.xid(79)
    world.run(60)
    world.reboot()
    new = msgspec.structs.replace(identity(0, GPU_A), uuid="GPU-new")
    world.put(gpu__devices=(new, identity(1, GPU_B)))
    world.run(900)
    world.xid(79)
    world.cycle()

    assert world.decision.verdict.node_class is NodeClass.REBOOT
