"""Scripted days: upgrades, lost access, boot, flapping, releases, and the cases of others' trouble."""

from __future__ import annotations

import pytest

from nodeagent.errors import ErrorKind
from nodeagent.model import NodeClass, State
from nodeagent.signals import (
    GpuCommand,
    GpuDriver,
    GpuPresence,
    GpuProcesses,
    KernelDriver,
    KubeletHealth,
    PciGpus,
    RecoveryAction,
    WorkerStatus,
)
from tests.scenarios.world import GPU_A, GPU_B, World, clock, disk, ecc, healthy, of_gpus, unread

DOWN = KubeletHealth(healthy=False, detail="connection refused")
STUCK = WorkerStatus(state="stuck", misses=3, pending_call="nvmlDeviceGetTotalEccErrors GPU 0")


def failing(cause: str, kind: ErrorKind) -> WorkerStatus:
    """A worker whose read-alls fail as a whole."""
    return WorkerStatus(state="idle", error_kind=kind, error_cause=cause, error_detail="as NVML said")


def driver_away(world: World, cause: str, kind: ErrorKind) -> None:
    """NVML cannot be used; nothing of any GPU is read."""
    world.put(unread(ErrorKind.INVALID, *of_gpus(world.values)), worker__nvml=failing(cause, kind))


def test_a_healthy_day_is_quiet() -> None:
    """Nothing is raised, tainted, told or planned in a day without a fault."""
    world = World()
    for _ in range(5760):
        world.cycle()
        assert (world.decision.verdict.state, world.taints(), world.plans) == (State.OK, [], ())

    assert world.notices == []
    assert world.memory.history == ()


def test_driver_upgrade_raises_nothing_and_counts_as_a_reset() -> None:
    """Mismatch, no driver, new driver: a fault from before stands meanwhile, and the reload cures it."""
    world = World()
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.run(60)
    driver_away(world, "mismatch", ErrorKind.INVALID)
    world.run(180)
    world.put(unread(ErrorKind.ABSENT, "gpu.kernel_driver"), worker__nvml=failing("absent", ErrorKind.ABSENT))
    world.run(60)

    assert world.state("driver.stuck") is State.PENDING
    assert world.taints() == ["gpu-unhealthy=ecc.uncorrected"]

    world.put(healthy())
    world.put(gpu__kernel_driver=KernelDriver(version="590.10"),
              gpu__driver=GpuDriver(driver_version="590.10", nvml_version="13.590"))  # fmt: skip
    world.run(60)
    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)
    assert not [told for told in world.told("finding_raised") if told["check"] == "driver.stuck"]


def test_a_mismatch_that_stays_is_a_fault_and_goes_with_its_cause() -> None:
    """Five minutes are an upgrade, more is a fault; a driver that answers again is its own proof."""
    world = World()
    driver_away(world, "mismatch", ErrorKind.INVALID)
    world.run(285)
    assert world.taints() == []
    world.run(30)
    assert world.taints() == ["gpu-unhealthy=driver.stuck"]
    assert world.row("driver.stuck").cause == "mismatch"

    world.put(healthy())
    world.run(330)
    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)


def test_no_driver_is_shown_but_never_taints() -> None:
    """A node whose driver container is not there yet must not be rebooted for it."""
    world = World()
    driver_away(world, "absent", ErrorKind.ABSENT)
    world.run(3600)

    assert (world.state("driver.stuck"), world.taints()) == (State.WARNING, [])


def test_a_hung_driver_is_raised_at_once_and_mutes_its_children() -> None:
    """What hangs needs no further poll; the checks that need NVML are not judged meanwhile."""
    world = World()
    world.put(unread(ErrorKind.TIMEOUT, *of_gpus(world.values)), worker__nvml=STUCK)
    world.cycle()

    assert world.taints() == ["gpu-unhealthy=driver.stuck"]
    assert "nvmlDeviceGetTotalEccErrors GPU 0" in world.row("driver.stuck").sentence
    assert {world.state("ecc.uncorrected", GPU_A), world.state("gpu.lost", GPU_B)} == {State.MUTED}


def test_a_pending_call_shows_within_two_cycles() -> None:
    """A read-all that does not come back is visible long before it counts as stuck."""
    world = World()
    world.cycle()
    began_seconds = world.monotonic_seconds + 1.0
    world.put(worker__nvml=WorkerStatus(
        state="reading", pending_call="nvmlDeviceGetCount", pending_since_seconds=began_seconds))  # fmt: skip
    world.run(30)

    assert world.state("driver.stuck") is State.PENDING
    assert world.taints() == []


def test_lost_access_is_the_agents_own_trouble() -> None:
    """A10: every call answers UNKNOWN: state unknown, cause named, no GPU tainted, no fault lifted."""
    world = World()
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.run(60)
    driver_away(world, "access_lost", ErrorKind.DENIED)
    world.run(7200)

    row = world.row("driver.stuck")
    assert (row.state, row.cause) == (State.UNKNOWN, "access_lost")
    assert world.raised() == {f"ecc.uncorrected|{GPU_A}"}

    sound = World()
    driver_away(sound, "access_lost", ErrorKind.DENIED)
    sound.run(7200)
    assert (sound.raised(), sound.taints(), sound.decision.verdict.state) == (set(), [], State.UNKNOWN)


def test_boot_grace_swallows_what_settles_by_itself() -> None:
    """A4's shape: what is down after boot and comes up within its grace was never a fault."""
    world = World()
    world.reboot()
    world.put(kubelet__health=DOWN, clock__sync=clock(synchronized=False))
    while world.monotonic_seconds < 110.0:
        world.cycle()
    world.put(kubelet__health=KubeletHealth(healthy=True, detail="ok"))
    while world.monotonic_seconds < 290.0:
        world.cycle()
    world.put(clock__sync=clock())
    world.run(600)

    assert world.told("finding_raised") == []


def test_what_stays_down_after_boot_is_raised_after_its_grace() -> None:
    """A4's other half: ten minutes down is a fault."""
    world = World()
    world.reboot()
    world.put(kubelet__health=DOWN, clock__sync=clock(synchronized=False))
    world.run(660)

    assert world.raised() == {"kubelet.down|node", "clock.unsynced|node"}
    assert world.taints() == []


def test_two_faults_that_flap_by_turns_keep_one_time() -> None:
    """A14: while any fault stands, the node's time of trouble does not move; later it does."""
    world = World()
    well = {
        "kubelet.health": KubeletHealth(healthy=True, detail="ok"),
        "worker.nvml": WorkerStatus(state="idle"),
    }
    world.put(kubelet__health=DOWN)
    world.run(60)
    since = world.decision.verdict.since
    for turn in range(20):
        world.put(well)
        world.put(worker__nvml=STUCK) if turn % 2 else world.put(kubelet__health=DOWN)
        for _ in range(30):
            world.cycle()
            assert world.decision.verdict.since == since
    states = {line.state for line in world.memory.history}
    assert states == {State.WARNING, State.CRITICAL, State.OK}

    world.put(well)
    world.run(600)
    assert world.decision.verdict.state is State.OK
    assert world.decision.verdict.since.monotonic_seconds > since.monotonic_seconds


def test_a_fault_log_line_does_not_outlive_the_cure() -> None:
    """A8: after a seen reset and good reads an Xid fault clears by itself and says why."""
    world = World()
    world.xid(95)
    world.put({f"gpu.recovery_action@{GPU_A}": RecoveryAction(value=1)})
    world.cycle()
    assert world.taints() == ["gpu-unhealthy=gpu.recovery_action"] or world.taints() == ["gpu-unhealthy=xid"]
    world.run(3600)
    assert world.decision.verdict.node_class is NodeClass.RESET

    world.put({f"gpu.recovery_action@{GPU_A}": RecoveryAction(value=0)})
    world.run(600)

    assert (world.taints(), world.raised(), world.decision.verdict.state) == ([], set(), State.OK)
    assert "recovery action" in world.memory.xids[f"{GPU_A}|95"].cleared_by


def test_an_old_line_read_again_is_no_new_fault() -> None:
    """A15: a line from before the cure, delivered again after a restart, taints nothing."""
    world = World()
    at_seconds = world.monotonic_seconds
    world.xid(95)
    world.put({f"gpu.recovery_action@{GPU_A}": RecoveryAction(value=1)})
    world.run(60)
    world.put({f"gpu.recovery_action@{GPU_A}": RecoveryAction(value=0)})
    world.run(600)
    assert world.taints() == []

    world.restart()
    world.xid(95, at_seconds=at_seconds, kernel_sequence=1)
    for _ in range(40):
        world.cycle()
        assert world.taints() == []


def test_a_line_from_before_the_agent_started_is_a_fault() -> None:
    """A2: Xid 79 at 30 s of uptime, the agent starts at 300 s."""
    world = World(uptime_seconds=300.0)
    world.xid(79, at_seconds=30.0)
    world.cycle()

    assert world.taints() == ["gpu-unhealthy=xid"]


def test_a_lost_gpu_keeps_its_fault_when_it_is_not_enumerated_any_more() -> None:
    """A GPU that falls off the bus and vanishes from every list is not cured."""
    world = World()
    world.put({f"gpu.presence@{GPU_A}": GpuPresence(reachable=False, detail="GPU is lost")})
    world.run(60)
    assert world.taints() == ["gpu-unhealthy=gpu.lost"]

    world.put(dict.fromkeys([name for name in world.values if name.endswith(GPU_A)]))
    world.put(gpu__devices=world.values["gpu.devices"][1:])
    world.run(3600)
    assert world.raised() >= {f"gpu.lost|{GPU_A}", "gpu.count|node"}
    assert GPU_A in world.row("gpu.count").sentence


def test_gpus_that_come_back_after_a_driver_reload_clear_the_count() -> None:
    """The reload is a seen reset of every GPU, so the node's count is proven with them."""
    world = World()
    world.cycle()
    world.put(gpu__devices=world.values["gpu.devices"][:1])
    world.run(60)
    assert world.taints() == ["gpu-unhealthy=gpu.count"]

    driver_away(world, "absent", ErrorKind.ABSENT)
    world.put(unread(ErrorKind.ABSENT, "gpu.kernel_driver"))
    world.run(60)
    world.put(healthy())
    world.run(400)
    assert (world.taints(), world.decision.verdict.state) == ([], State.OK)


@pytest.mark.parametrize("restarts_always", [False, True])
def test_a_release_by_order_judges_and_lifts_nothing(restarts_always: bool) -> None:
    """15 minutes without NVML: checks do not apply, the fault and its taint stand, then reading resumes."""
    world = World(restarts_always=restarts_always)
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.run(60)
    world.emit(GpuCommand(verb="release", for_seconds=900.0, user_id=0))
    world.cycle()
    assert [op.kind for plan in world.plans for op in plan.ops] == ["nvml.release"]

    world.put(unread(ErrorKind.ABSENT, *of_gpus(world.values)), worker__nvml=WorkerStatus(state="released"))
    world.run(870)
    row = world.row("ecc.uncorrected", GPU_A)
    assert (row.state, row.stale_state) != (State.OK, None)
    assert (world.plans, world.taints()) == ((), ["gpu-unhealthy=ecc.uncorrected"])

    world.cycle()
    world.cycle()
    assert [op.kind for plan in world.plans for op in plan.ops] == ["nvml.resume"]


def test_the_agent_steps_aside_for_the_cure() -> None:
    """With a GPU to reset and no process left it lets NVML go, reads again, and sees the reset."""
    world = World()
    idle = {f"gpu.processes@{gpu}": GpuProcesses(count=0) for gpu in (GPU_A, GPU_B)}
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.run(120)
    assert not world.decision.released
    world.put(idle)
    world.cycle()
    assert world.decision.released

    read = dict(world.values)
    world.put(unread(ErrorKind.ABSENT, *of_gpus(world.values)), worker__nvml=WorkerStatus(state="released"))
    world.run(630)
    assert [op.kind for plan in world.plans for op in plan.ops] == ["nvml.resume"]

    world.put(read)
    world.put({f"gpu.ecc@{GPU_A}": ecc(0)})
    world.run(330)
    assert (world.taints(), world.decision.verdict.state, world.decision.released) == ([], State.OK, False)


def test_a_full_disk_that_is_unmounted_is_no_fault_any_more() -> None:
    """A mount point that is gone while others are read is gone with its fault."""
    world = World()
    world.put({"disk.usage@/data": disk(1.0)})
    world.run(60)
    assert world.raised() == {"disk.full|/data"}

    world.put({"disk.usage@/data": None})
    world.run(30)
    assert world.raised() == set()


def test_a_bus_that_cannot_be_read_hides_no_gpu() -> None:
    """With the host's reads gone nobody knows of a GPU by the bus, but its faults are judged as before."""
    world = World()
    world.run(60)
    world.put(unread(ErrorKind.TIMEOUT, "gpu.pci", "gpu.kernel_driver"))
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.xid(79, GPU_B)
    world.run(60)

    assert world.raised() == {f"ecc.uncorrected|{GPU_A}", f"xid|{GPU_B}"}
    assert world.state("gpu.count") is State.UNKNOWN


def test_a_restart_beside_an_unread_bus_still_knows_its_gpus() -> None:
    """What the state file remembers of GPUs is enough to go on judging what the kernel log says."""
    world = World()
    world.run(60)
    world.restart()
    world.values = {"kernel_log": world.values["kernel_log"]}
    world.xid(79, GPU_B)
    world.cycle()

    assert world.taints() == ["gpu-unhealthy=xid"]


def test_a_bus_without_gpus_needs_no_nvml() -> None:
    """A node that shows no NVIDIA device has no GPU checks, and that is no unknown."""
    world = World()
    world.put(dict.fromkeys(of_gpus(world.values)), gpu__pci=PciGpus(addresses=()))
    world.put(unread(ErrorKind.ABSENT, "gpu.kernel_driver"), worker__nvml=WorkerStatus(state="absent"))
    world.run(60)

    assert (world.state("ecc.uncorrected"), world.decision.verdict.state) == (State.NOT_APPLICABLE, State.OK)
