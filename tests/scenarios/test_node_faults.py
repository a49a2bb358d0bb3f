"""Faults of the node's disks and kernel over restarts and reboots."""

from __future__ import annotations

import pytest

from nodeagent.host_signals import KernelCount, MountFlags
from nodeagent.model import State
from nodeagent.signals import KernelFault
from tests.scenarios.world import World

LINE = "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ)"


def mount(*, read_only: bool = False) -> MountFlags:
    """The root file system."""
    return MountFlags(
        device="/dev/nvme0n1p2", fstype="ext4", mount_read_only=read_only, super_read_only=read_only
    )


def error(world: World, age_seconds: float = 0.0) -> None:
    """The kernel logs an I/O error."""
    at_seconds = world.monotonic_seconds - age_seconds
    world.emit(KernelFault(kind="disk", target="nvme0n1", at_seconds=at_seconds, text=LINE))


@pytest.mark.parametrize("restarts_always", [False, True])
def test_a_root_that_turns_read_only_taints_until_a_new_boot(restarts_always: bool) -> None:
    """Being made writable again by hand proves nothing; a boot with a writable root does."""
    world = World(restarts_always=restarts_always)
    world.run(60)
    world.put({"disk.mount@/": mount(read_only=True)})
    world.run(60)
    assert world.state("disk.read_only", "/") is State.CRITICAL
    assert world.taints() == ["node-unhealthy=disk.read_only"]
    world.put({"disk.mount@/": mount()})
    world.run(900)
    assert world.taints() == ["node-unhealthy=disk.read_only"]
    world.reboot()
    world.run(900)

    assert world.taints() == []
    assert world.state("disk.read_only", "/") is State.OK


def test_a_root_that_is_read_only_by_design_never_taints() -> None:
    """As on a node that boots from an image: it is so since the agent first saw it."""
    world = World()
    world.put({"disk.mount@/": mount(read_only=True)})
    world.run(3600)
    world.reboot()
    world.put({"disk.mount@/": mount(read_only=True)})
    world.run(3600)

    assert world.state("disk.read_only", "/") is State.NOT_APPLICABLE
    assert world.taints() == []


def test_a_disk_error_is_told_for_an_hour_and_over_a_restart() -> None:
    """By the time in the line: read again after a restart it is no second error."""
    world = World()
    world.run(60)
    error(world)
    world.cycle()
    assert world.state("disk.io_errors", "nvme0n1") is State.WARNING
    assert LINE in world.row("disk.io_errors", "nvme0n1").sentence
    world.run(1800)
    world.restart()
    world.run(1500)
    assert world.state("disk.io_errors", "nvme0n1") is State.WARNING
    world.run(1200)

    assert world.state("disk.io_errors", "nvme0n1") is State.OK
    assert world.taints() == []


def test_an_error_from_long_before_the_start_is_no_news() -> None:
    """Back-filled lines of this boot count at their own time."""
    world = World(uptime_seconds=10 * 86_400.0)
    error(world, age_seconds=5 * 86_400.0)
    world.run(60)

    assert world.state("disk.io_errors", "nvme0n1") is State.OK


def test_a_flood_of_lines_of_many_devices_stays_small() -> None:
    """Ten thousand devices that never were: memory holds no more than its bound."""
    world = World()
    world.run(60)
    for number in range(10_000):
        world.emit(
            KernelFault(kind="disk", target=f"sd{number}", at_seconds=world.monotonic_seconds, text=LINE)
        )
    world.run(60)

    assert len(world.memory.fault_counts) <= 512


@pytest.mark.parametrize(("grown", "state"), [(20, State.OK), (21, State.WARNING)])
def test_kills_count_by_their_growth(grown: int, state: State) -> None:
    """What was killed before the agent came is the baseline, and so is the count of a new boot."""
    world = World()
    world.put(memory__oom_kills=KernelCount(total_count=5000))
    world.run(60)
    world.put(memory__oom_kills=KernelCount(total_count=5000 + grown))
    world.run(60)
    assert world.state("oom.kills") is state
    world.reboot()
    world.put(memory__oom_kills=KernelCount(total_count=40))
    world.run(60)
    world.put(memory__oom_kills=KernelCount(total_count=41))
    world.run(900)

    assert world.state("oom.kills") is State.OK
