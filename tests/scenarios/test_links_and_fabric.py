"""NVLinks that train, fabrics that register, counters that run: days of the GPU checks on virtual time."""

from __future__ import annotations

from typing import Any

import msgspec

from nodeagent.gpu_signals import FabricManager, FabricState, NvLinks, PersistenceMode
from nodeagent.model import State
from tests.scenarios.world import GPU_A, GPU_B, POLL_SECONDS, World, ecc, identity

H100 = 0x233010DE
ALL_DOWN = NvLinks(link_count=18, inactive=tuple(range(18)))
ALL_UP = NvLinks(link_count=18)
REGISTERING = FabricState(state=2, status=3, health_mask=0, health_summary=0)
REGISTERED = FabricState(state=3, status=0, health_mask=0x1AA, health_summary=1)
DEAD, ALIVE = FabricManager(running=False, detail="its process 7 is gone"), FabricManager(running=True)


def h100s(world: World) -> None:
    """Say which product the GPUs are."""
    world.put(gpu__devices=tuple(
        msgspec.structs.replace(identity(index, gpu), pci_device_id=H100)
        for index, gpu in enumerate((GPU_A, GPU_B))
    ))


def of_both(signal: str, value: Any) -> dict[str, Any]:
    """That value for both GPUs."""
    return {f"{signal}@{gpu}": value for gpu in (GPU_A, GPU_B)}


def until(world: World, uptime_seconds: float) -> None:
    """Cycles up to that time since boot."""
    while world.monotonic_seconds < uptime_seconds:
        world.cycle()


def booted(**changed: Any) -> World:
    """A node of two H100 that has just booted, with these values on both GPUs."""
    world = World()
    world.reboot()
    h100s(world)
    for signal, value in changed.items():
        world.put(of_both(signal.replace("__", "."), value))
    return world


def test_links_that_train_for_ninety_seconds_after_boot_are_no_fault() -> None:
    """A planned reboot of a fleet raises nothing."""
    world = booted(gpu__nvlink=ALL_DOWN, gpu__fabric=REGISTERING)
    until(world, 90.0)
    world.put(of_both("gpu.nvlink", ALL_UP) | of_both("gpu.fabric", REGISTERED))
    world.run(900)

    assert (world.told("finding_raised"), world.taints()) == ([], [])


def test_links_that_are_down_ten_minutes_after_boot_are_a_fault() -> None:
    """The grace ends, the taint comes, and both GPUs are named."""
    world = booted(gpu__nvlink=ALL_DOWN)
    until(world, 600.0)

    assert world.raised() == {f"nvlink.down|{GPU_A}", f"nvlink.down|{GPU_B}"}
    assert world.taints() == ["gpu-unhealthy=nvlink.down"]


def test_links_that_train_after_a_reset_are_no_fault() -> None:
    """A reset is seen by the fallen counters; a minute later all links are up."""
    world = World()
    h100s(world)
    world.put({f"gpu.ecc@{GPU_A}": ecc(0, 9)})
    world.run(60)
    world.put({f"gpu.ecc@{GPU_A}": ecc(), f"gpu.nvlink@{GPU_A}": ALL_DOWN})
    world.run(75)
    assert world.state("nvlink.down", GPU_A) is State.UNKNOWN
    world.put({f"gpu.nvlink@{GPU_A}": ALL_UP})
    world.run(600)

    assert world.told("finding_raised") == []


def test_links_that_went_down_wait_for_a_reset_to_be_good_again() -> None:
    """Good reads alone do not prove a link that failed under way; a seen reset and good reads do."""
    world = World()
    h100s(world)
    world.put({f"gpu.ecc@{GPU_A}": ecc(0, 9)})
    world.run(60)
    world.put({f"gpu.nvlink@{GPU_A}": NvLinks(link_count=18, inactive=(4,))})
    world.run(90)
    world.put({f"gpu.nvlink@{GPU_A}": ALL_UP})
    world.run(900)
    assert world.raised() == {f"nvlink.down|{GPU_A}"}
    world.put({f"gpu.ecc@{GPU_A}": ecc()})
    world.run(600)

    assert world.raised() == set()


def test_a_dead_fabric_manager_is_the_nodes_fault_until_it_runs_again() -> None:
    """The GPUs' latched registration is unknown meanwhile; no reset is needed afterwards."""
    world = World()
    world.put({"fabric.manager": ALIVE})
    world.run(60)
    world.put({"fabric.manager": DEAD})
    world.run(90)
    assert world.raised() == {"fabric.state|node"}
    assert world.taints() == ["gpu-unhealthy=fabric.state"]
    assert world.state("fabric.state", GPU_A) is State.UNKNOWN
    world.put({"fabric.manager": ALIVE})
    world.run(600)

    assert (world.raised(), world.taints(), world.state("fabric.state", GPU_A)) == (set(), [], State.OK)


def test_seventeen_thousand_corrected_errors_a_second_are_told() -> None:
    """A1's shape: the rate is raised, as a warning; nothing else is."""
    world = World()
    corrected = 0
    for _ in range(20):
        world.put({f"gpu.ecc@{GPU_A}": ecc(0, corrected)})
        world.cycle()
        corrected += int(17_000 * POLL_SECONDS)

    assert world.raised() == {f"ecc.corrected_rate|{GPU_A}"}
    assert world.taints() == []


def test_a_large_count_at_start_is_no_rate() -> None:
    """An agent that starts beside fifty million old corrected errors is quiet."""
    world = World()
    world.put(of_both("gpu.ecc", ecc(0, 50_000_000)))
    world.run(900)

    assert world.told("finding_raised") == []


def test_persistence_mode_off_never_taints() -> None:
    """It is shown for as long as it stands."""
    world = World()
    world.put(of_both("gpu.persistence", PersistenceMode(enabled=False)))
    world.run(7200)

    assert world.raised() == {f"gpu.persistence|{GPU_A}", f"gpu.persistence|{GPU_B}"}
    assert world.taints() == []
