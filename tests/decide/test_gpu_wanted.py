"""When GPU checks apply to a node."""

from __future__ import annotations

import pytest

from nodeagent.decide.decide import gpu_wanted
from nodeagent.errors import ErrorKind
from nodeagent.model import NODE
from nodeagent.settings import GpuSettings, Settings
from nodeagent.signals import KernelDriver, PciGpus, Reading, SignalKey, Unread

EMPTY = PciGpus(addresses=())
ONE = PciGpus(addresses=("0000:01:00.0",))
LOADED = KernelDriver(version="580.95.05")
NO_DRIVER = Unread(kind=ErrorKind.ABSENT, reason="no driver")
NOT_READ = Unread(kind=ErrorKind.TIMEOUT, reason="no answer")

CASES = [
    ("by order, whatever the bus shows", GpuSettings(enabled="true"), EMPTY, NO_DRIVER, True),
    ("never by order", GpuSettings(enabled="false", expected_count=8), ONE, LOADED, False),
    ("the bus shows one", GpuSettings(), ONE, NO_DRIVER, True),
    ("the driver is loaded though the bus is empty", GpuSettings(), EMPTY, LOADED, True),
    ("a node without GPUs", GpuSettings(), EMPTY, NO_DRIVER, False),
    ("all expected GPUs have left the bus", GpuSettings(expected_count=8), EMPTY, NO_DRIVER, True),
    ("nothing was read and nothing is known", GpuSettings(), NOT_READ, NOT_READ, False),
]


@pytest.mark.parametrize(("name", "gpu", "bus", "driver", "wanted"), CASES, ids=[c[0] for c in CASES])
def test_gpu_checks_apply_where_gpus_are_or_should_be(
    name: str, gpu: GpuSettings, bus: object, driver: object, wanted: bool
) -> None:
    """GPU checks apply by order, by expectation, or by what bus and driver show."""
    readings = {
        SignalKey(signal, NODE): Reading(value=value, read_at_seconds=1.0, sequence=1)
        for signal, value in (("gpu.pci", bus), ("gpu.kernel_driver", driver))
    }

    assert gpu_wanted(Settings(gpu=gpu), readings) is wanted, name
