"""When the agent lets NVML go by itself: after it has read what only a reset can change, not before."""

from __future__ import annotations

from nodeagent.decide.release import AUTO_SETTLE_SECONDS
from nodeagent.model import State
from nodeagent.signals import GpuProcesses, RecoveryAction
from tests.scenarios.world import GPU_A, GPU_B, World, ecc

IDLE = {f"gpu.processes@{gpu}": GpuProcesses(count=0) for gpu in (GPU_A, GPU_B)}


def _broken() -> World:
    """An idle node on which the kernel has just logged an Xid 48."""
    world = World()
    world.put(IDLE)
    world.run(60)
    world.xid(48)
    world.cycle(0.2, poll=False)
    assert world.state("xid", GPU_A) is State.CRITICAL
    return world


def test_a_fresh_fault_is_read_before_nvml_is_let_go() -> None:
    """Released when the counters have shown nothing more for a minute after the Xid, not by the Xid alone."""
    world = _broken()
    world.cycle(0.2, poll=False)
    assert not world.decision.released

    world.run(AUTO_SETTLE_SECONDS - 15.0)
    assert not world.decision.released
    world.run(30)
    assert world.decision.released


def test_what_a_reset_clears_is_raised_before_nvml_is_let_go() -> None:
    """The driver's recovery action and counters that came with the Xid are faults in force by then."""
    world = _broken()
    world.put({f"gpu.recovery_action@{GPU_A}": RecoveryAction(value=1), f"gpu.ecc@{GPU_A}": ecc(1)})
    while not world.cycle().released:
        assert world.monotonic_seconds < 3600.0 + 300.0

    checks = ("xid", "gpu.recovery_action", "ecc.uncorrected")
    assert world.raised() == {f"{check}|{GPU_A}" for check in checks}


def test_a_process_on_the_other_gpu_keeps_nvml() -> None:
    """One job anywhere on the node, and the agent goes on reading."""
    world = _broken()
    world.put({f"gpu.processes@{GPU_B}": GpuProcesses(count=1)})
    world.run(600)

    assert not world.decision.released
