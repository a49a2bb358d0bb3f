"""Days on which the agent restarts, the node reboots, or somebody sets the wall clock.

None of these may change a verdict, shorten a hold or move the time since when the node is unwell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nodeagent.model import NodeClass, State
from nodeagent.signals import KubeletHealth, RecoveryAction, WorkerStatus
from tests.scenarios.world import GPU_A, GPU_B, POLL_SECONDS, World, clock, disk, ecc, remap

DAY_SECONDS = 86_400.0
DOWN = KubeletHealth(healthy=False, detail="connection refused")


def eventful_hour(world: World) -> Iterator[None]:
    """Faults of every family come, stand and go; yields after each cycle."""
    script: dict[int, Callable[[], None]] = {
        4: lambda: world.put({f"gpu.ecc@{GPU_A}": ecc(2)}),
        10: lambda: world.put(kubelet__health=DOWN),
        12: lambda: world.xid(95, GPU_B),
        20: lambda: world.put({"disk.usage@/": disk(1.0)}),
        30: lambda: world.put(kubelet__health=None),
        40: lambda: world.put({f"gpu.recovery_action@{GPU_B}": RecoveryAction(value=1)}),
        44: lambda: world.put(worker__nvml=WorkerStatus(state="stuck", misses=3, pending_call="nvmlInit")),
        60: lambda: world.put(worker__nvml=WorkerStatus(state="idle")),
        70: lambda: world.put({f"gpu.ecc@{GPU_A}": ecc(0), f"gpu.row_remap@{GPU_B}": remap(pending=True)}),
        90: lambda: world.put({f"gpu.row_remap@{GPU_B}": remap()}),
        95: lambda: world.put(
            {f"gpu.recovery_action@{GPU_B}": RecoveryAction(value=0), "disk.usage@/": disk()}
        ),
        100: lambda: world.put(kubelet__health=KubeletHealth(healthy=True, detail="ok")),
    }
    for number in range(240):
        script.get(number, lambda: None)()
        world.cycle()
        yield


def traced(world: World, before_cycle: Callable[[World, int], None] = lambda *_: None) -> list[tuple]:
    """What people saw in every cycle of the hour."""
    seen = []
    hour = eventful_hour(world)
    for number in range(240):
        before_cycle(world, number)
        next(hour)
        seen.append(world.trace())
    return seen


PLAIN = World()
PLAIN_HOUR = traced(PLAIN)


def test_the_hour_is_eventful() -> None:
    """The script does what it is for: faults were raised, tainted, and all are gone at its end."""
    states = {state for rows, *_ in PLAIN_HOUR for _, _, state, *_ in rows}

    assert {State.OK, State.PENDING, State.WARNING, State.CRITICAL, State.UNKNOWN, State.MUTED} <= states
    assert {taints for *_, taints in PLAIN_HOUR} > {(), ("gpu-unhealthy=ecc.uncorrected",)}
    assert (PLAIN.raised(), PLAIN.taints()) == (set(), [])


def test_a_restart_after_every_cycle_changes_nothing() -> None:
    """Rows, verdict, its time and taints are those of an agent that never restarts."""
    assert traced(World(restarts_always=True)) == PLAIN_HOUR


@pytest.mark.parametrize("step_seconds", [3600.0, -3600.0])
@pytest.mark.parametrize("when", [0, 5, 11, 21, 46, 71, 96, 105])
def test_a_step_of_the_wall_clock_changes_nothing(step_seconds: float, when: int) -> None:
    """An hour forth or back, in the middle of a hold or a clear, moves no decision."""

    def step(world: World, number: int) -> None:
        if number == when:
            world.step_wall(step_seconds)

    assert traced(World(), step) == PLAIN_HOUR


@pytest.mark.parametrize("restarts_always", [False, True])
def test_restart_between_fault_and_recovery(restarts_always: bool) -> None:
    """The taint stands through the restart and goes when the reset is seen and proven, not before."""
    world = World(restarts_always=restarts_always)
    world.run(60)
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.run(30)
    assert world.state("ecc.uncorrected", GPU_A) is State.CRITICAL
    since = world.decision.verdict.since

    world.restart()
    world.run(3600)
    assert (world.taints(), world.decision.verdict.since) == (["gpu-unhealthy=ecc.uncorrected"], since)

    world.put({f"gpu.ecc@{GPU_A}": ecc(0)})
    world.restart()
    world.run(285)
    assert world.taints() == ["gpu-unhealthy=ecc.uncorrected"]

    world.run(30)
    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)
    assert world.row("ecc.uncorrected", GPU_A).state is State.OK


def test_restart_lifts_nothing_before_the_first_read() -> None:
    """A board that is still empty after a restart leaves every raised fault raised."""
    world = World()
    world.put({f"gpu.ecc@{GPU_A}": ecc(2), "disk.usage@/": disk(1.0), "kubelet.health": DOWN})
    world.run(60)
    raised = world.raised()
    assert len(raised) == 3

    world.restart()
    board, world.values = world.values, {}
    world.run(300)
    assert world.raised() == raised
    assert world.taints() == ["gpu-unhealthy=ecc.uncorrected"]

    world.values = board
    world.run(60)
    assert world.raised() == raised


def test_an_agent_that_was_away_for_days_measures_again() -> None:
    """Three days later the old fault is neither raised anew nor dropped: new good reads decide."""
    world = World()
    world.put({f"gpu.ecc@{GPU_A}": ecc(2), f"gpu.ecc@{GPU_B}": ecc(0, corrected=9)})
    world.run(60)
    told = len(world.told("finding_raised"))

    world.restart()
    world.put({f"gpu.ecc@{GPU_A}": ecc(0)})
    world.cycle(3 * DAY_SECONDS)
    assert world.taints() == ["gpu-unhealthy=ecc.uncorrected"]

    world.run(45)
    assert world.taints() == []
    assert len(world.told("finding_raised")) == told


def test_a_reboot_is_the_cure_of_a_reboot_fault() -> None:
    """A hung recovery action 2 stands until the next boot, and then until it is proven good."""
    world = World()
    world.put({f"gpu.recovery_action@{GPU_A}": RecoveryAction(value=2)})
    world.cycle()
    assert world.decision.verdict.node_class is NodeClass.REBOOT

    world.reboot(down_seconds=180.0)
    world.run(15)
    assert world.taints() == ["gpu-unhealthy=gpu.recovery_action"]

    world.run(45)
    assert world.taints() == ["gpu-unhealthy=gpu.recovery_action"]
    world.run(300)
    assert world.taints() == []


@pytest.mark.parametrize(
    ("wall_seconds", "synchronized"),
    [(2 * 365 * DAY_SECONDS, False), (0.0, False), (-3600.0, True), (-3600.0, False)],
    ids=[
        "years ahead, unsynchronised",
        "right, unsynchronised",
        "an hour back",
        "an hour back, unsynchronised",
    ],
)
def test_no_wall_clock_ends_a_hold_early_over_a_reboot(wall_seconds: float, synchronized: bool) -> None:
    """Nobody may trust the wall clock after boot, so the hold lasts until this boot alone is long enough."""
    world = World()
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.run(60)
    world.reboot(down_seconds=60.0, uptime_seconds=5.0)
    world.put(clock__sync=clock(synchronized=synchronized))
    world.step_wall(wall_seconds - 65.0)

    while world.monotonic_seconds + POLL_SECONDS < 300.0:
        world.cycle()
        assert world.taints() == ["gpu-unhealthy=ecc.uncorrected"], world.monotonic_seconds
    world.run(60)
    assert world.taints() == []


def test_bad_polls_of_an_earlier_boot_do_not_count() -> None:
    """Two bad polls before a reboot and one after its grace are not three of three."""
    world = World()
    world.put(kubelet__health=DOWN)
    world.run(30)
    assert world.state("kubelet.down") is State.PENDING

    world.reboot()
    world.put(kubelet__health=DOWN)
    while world.monotonic_seconds < 120.0 + POLL_SECONDS:
        world.cycle()
    assert world.state("kubelet.down") is State.PENDING
    world.run(30)
    assert world.state("kubelet.down") is State.WARNING


@pytest.mark.parametrize(
    ("days", "wanted"), [(7, NodeClass.VENDOR), (29, NodeClass.VENDOR), (31, NodeClass.REBOOT)]
)
@pytest.mark.parametrize("restarts_always", [False, True])
def test_a_gpu_that_falls_off_twice_in_a_month_is_the_vendors(
    days: int, wanted: NodeClass, restarts_always: bool
) -> None:
    """The window of 30 days outlives reboot, cure and restart."""
    world = World(restarts_always=restarts_always)
    world.xid(79)
    world.run(60)
    assert world.decision.verdict.node_class is NodeClass.REBOOT

    world.reboot()
    world.run(900)
    assert world.taints() == []

    world.cycle(days * DAY_SECONDS)
    world.reboot()
    world.xid(79)
    world.cycle()
    assert world.decision.verdict.node_class is wanted


def test_a_wrong_clock_after_boot_does_not_forget_the_first_time() -> None:
    """A clock that claims next year and is not synchronised ends no window."""
    world = World()
    world.xid(79)
    world.run(60)
    world.reboot()
    world.step_wall(365 * DAY_SECONDS)
    world.put(clock__sync=clock(synchronized=False))
    world.run(60)
    world.xid(79)
    world.cycle()

    assert world.decision.verdict.node_class is NodeClass.VENDOR
