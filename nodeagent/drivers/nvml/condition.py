"""Readers of a GPU's wear and condition: each gives one noun or raises DriverError.

A feature that the GPU lacks is an error of kind absent, never a zero. Nothing is judged here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from nodeagent.drivers.nvml import asking, links
from nodeagent.drivers.nvml.asking import Asking
from nodeagent.drivers.nvml.library import LASTING, NvmlFailure
from nodeagent.errors import DriverError
from nodeagent.gpu_signals import (
    MonotonicCount,
    OwnerlessMemory,
    PcieLink,
    PersistenceMode,
    RetiredPages,
    SlowedTime,
    SramErrors,
    TemperatureMargin,
)

Reader = Callable[[Asking], Any]
ATS = 2
"""Addressing mode in which the memory is a NUMA node of the operating system."""


def sram(gpu: Asking) -> SramErrors:
    """SRAM ECC status with the board's own threshold flag. Raises DriverError."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = pynvml.nvmlEccSramErrorStatus_v1
    gpu.call("nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status))
    return SramErrors(
        threshold_exceeded=bool(status.bThresholdExceeded),
        aggregate_uncorrected=int(status.aggregateUncParity) + int(status.aggregateUncSecDed),
    )


def retired_pages(gpu: Asking) -> RetiredPages:
    """Pages retired by cause. Raises DriverError."""
    single, double, pending = (gpu.field(field_id) for field_id in asking.RETIRED_PAGES)
    return RetiredPages(single_bit_pages=single, double_bit_pages=double, pending=bool(pending))


def temperature_margin(gpu: Asking) -> TemperatureMargin:
    """Degrees Celsius left until the thermal limit. Raises DriverError."""
    return TemperatureMargin(margin_celsius=int(gpu.call("nvmlDeviceGetMarginTemperature")))


def persistence(gpu: Asking) -> PersistenceMode:
    """Persistence mode. Raises DriverError."""
    return PersistenceMode(enabled=bool(gpu.call("nvmlDeviceGetPersistenceMode")))


def thermal_slowdown(gpu: Asking) -> SlowedTime:
    """Nanoseconds of hardware thermal slowdown, driver 580 and later. Raises DriverError."""
    return SlowedTime(total_nanoseconds=gpu.field(asking.THERMAL_SLOWDOWN))


def power_brake(gpu: Asking) -> SlowedTime:
    """Nanoseconds of hardware power brake, driver 580 and later. Raises DriverError."""
    return SlowedTime(total_nanoseconds=gpu.field(asking.POWER_BRAKE))


def pcie_replay(gpu: Asking) -> MonotonicCount:
    """PCIe replays since the driver was loaded. Raises DriverError."""
    return MonotonicCount(total_count=gpu.field(asking.PCIE_REPLAY))


def pcie_link(gpu: Asking) -> PcieLink:
    """Width and generation, now and at most; utilisation only where the link runs slower than it could.

    The most is what device and slot can do together. Raises DriverError.
    """
    width = int(gpu.call("nvmlDeviceGetCurrPcieLinkWidth"))
    generation = int(gpu.call("nvmlDeviceGetCurrPcieLinkGeneration"))
    max_width = int(gpu.once("PCIe width", lambda: gpu.call("nvmlDeviceGetMaxPcieLinkWidth")))
    max_generation = int(gpu.once("PCIe generation", lambda: gpu.call("nvmlDeviceGetMaxPcieLinkGeneration")))
    return PcieLink(
        lane_count=width, max_lane_count=max_width, generation=generation, max_generation=max_generation,
        busy_percent=_busy_percent(gpu) if generation < max_generation else None,
    )


def _busy_percent(gpu: Asking) -> int | None:
    """Utilisation over the driver's last sample; None where the GPU does not tell, as in MIG mode."""
    try:
        return int(gpu.call("nvmlDeviceGetUtilizationRates").gpu)
    except NvmlFailure as failure:
        if failure.code in LASTING:
            return None
        raise


def ownerless_memory(gpu: Asking) -> OwnerlessMemory:
    """Memory in use, asked for only while no process holds the GPU. Raises DriverError."""
    if isinstance(gpu.processes, DriverError):
        raise gpu.processes
    if gpu.processes or gpu.mig_enabled:
        return OwnerlessMemory(used_bytes=None, of_system=_of_system(gpu))
    used_bytes = int(gpu.call("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2).used)
    return OwnerlessMemory(used_bytes=used_bytes, of_system=_of_system(gpu))


def _of_system(gpu: Asking) -> bool:
    """True when the operating system hands out the GPU's memory; an old driver cannot say, so False."""
    try:
        return int(gpu.once("addressing mode", lambda: gpu.call("nvmlDeviceGetAddressingMode"))) == ATS
    except NvmlFailure as failure:
        if failure.code in LASTING:
            return False
        raise


READERS: dict[str, Reader] = {
    "gpu.sram": sram,
    "gpu.retired_pages": retired_pages,
    "gpu.temperature_margin": temperature_margin,
    "gpu.persistence": persistence,
    "gpu.thermal_slowdown": thermal_slowdown,
    "gpu.power_brake": power_brake,
    "gpu.pcie_link": pcie_link,
    "gpu.pcie_replay": pcie_replay,
    "gpu.ownerless_memory": ownerless_memory,
    "gpu.nvlink": links.nvlink,
    "gpu.nvlink_errors": links.nvlink_errors,
    "gpu.fabric": links.fabric,
}
"""Signal -> its reader, in the order of reading."""
