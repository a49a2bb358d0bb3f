"""Steps that several scripted days share: what a driver upgrade, a release or a technician does."""

from __future__ import annotations

from typing import Any

from nodeagent.errors import ErrorKind
from nodeagent.signals import (
    GpuCommand,
    GpuPresence,
    PciGpus,
    SxidEvent,
    WorkerStatus,
)
from tests.scenarios.test_days import driver_away
from tests.scenarios.world import (
    GPU_A,
    World,
    of_gpus,
    unread,
)

SWITCH = "0000:87:00.0"
LOST = GpuPresence(reachable=False, detail="GPU is lost")
ACTION_A = f"gpu.recovery_action@{GPU_A}"
DAY_SECONDS = 86_400.0


def mismatch(world: World) -> None:
    """The library and the module differ."""
    driver_away(world, "mismatch", ErrorKind.INVALID)


def absent(world: World) -> None:
    """The module is unloaded."""
    driver_away(world, "absent", ErrorKind.ABSENT)
    world.put(unread(ErrorKind.ABSENT, "gpu.kernel_driver"))


def release(world: World) -> dict[str, Any]:
    """NVML is let go by order; returns what was read before."""
    read = dict(world.values)
    world.emit(GpuCommand(verb="release", for_seconds=3600.0))
    world.cycle()
    world.put(dict.fromkeys(of_gpus(world.values)), worker__nvml=WorkerStatus(state="released"))
    return read


def resume(world: World, read: dict[str, Any]) -> None:
    """NVML is read again."""
    world.emit(GpuCommand(verb="resume"))
    world.cycle()
    world.put(read)


def fatal(world: World) -> None:
    """The switch reports an error that it does not survive."""
    at_seconds = world.monotonic_seconds
    world.emit(SxidEvent(pci_address=SWITCH, number=24007, at_seconds=at_seconds, fatal=True))


def take_out(world: World, gpu: str = GPU_A) -> None:
    """The GPU is on no bus any more."""
    kept = tuple(device for device in world.values["gpu.devices"] if device.pci_address != gpu)
    world.put(dict.fromkeys([name for name in world.values if name.endswith(gpu)]))
    world.put(gpu__devices=kept, gpu__pci=PciGpus(addresses=tuple(d.pci_address for d in kept)))
