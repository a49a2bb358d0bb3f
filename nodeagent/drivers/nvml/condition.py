"""Readers of a GPU's wear and condition: each gives one noun or raises DriverError.

A feature that the GPU lacks is an error of kind absent, never a zero. Nothing is judged here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from nodeagent.drivers.nvml.library import Library
from nodeagent.signals import PersistenceMode, RetiredPages, SlowedTime, SramErrors, TemperatureMargin

Reader = Callable[[Library, str, Any], Any]


def sram(library: Library, target: str, handle: Any) -> SramErrors:
    """SRAM ECC status with the board's own threshold flag. Raises DriverError."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = pynvml.nvmlEccSramErrorStatus_v1
    library.call("nvmlDeviceGetSramEccErrorStatus", target, handle, ctypes.byref(status))
    return SramErrors(
        threshold_exceeded=bool(status.bThresholdExceeded),
        aggregate_uncorrected=int(status.aggregateUncParity) + int(status.aggregateUncSecDed),
    )


def retired_pages(library: Library, target: str, handle: Any) -> RetiredPages:
    """Pages retired by cause, in one call. Raises DriverError."""
    single, double = pynvml.NVML_FI_DEV_RETIRED_SBE, pynvml.NVML_FI_DEV_RETIRED_DBE
    pending = pynvml.NVML_FI_DEV_RETIRED_PENDING
    value = library.fields(target, handle, (single, double, pending))
    return RetiredPages(
        single_bit_pages=value(single), double_bit_pages=value(double), pending=bool(value(pending))
    )


def temperature_margin(library: Library, target: str, handle: Any) -> TemperatureMargin:
    """Degrees Celsius left until the thermal limit. Raises DriverError."""
    margin = library.call("nvmlDeviceGetMarginTemperature", target, handle)
    return TemperatureMargin(margin_celsius=int(margin))


def persistence(library: Library, target: str, handle: Any) -> PersistenceMode:
    """Persistence mode. Raises DriverError."""
    return PersistenceMode(enabled=bool(library.call("nvmlDeviceGetPersistenceMode", target, handle)))


def thermal_slowdown(library: Library, target: str, handle: Any) -> SlowedTime:
    """Nanoseconds of hardware thermal slowdown, driver 580 and later. Raises DriverError."""
    field_id = pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN
    return SlowedTime(total_nanoseconds=library.field(target, handle, field_id))


def power_brake(library: Library, target: str, handle: Any) -> SlowedTime:
    """Nanoseconds of hardware power brake, driver 580 and later. Raises DriverError."""
    field_id = pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN
    return SlowedTime(total_nanoseconds=library.field(target, handle, field_id))


READERS: dict[str, Reader] = {
    "gpu.sram": sram,
    "gpu.retired_pages": retired_pages,
    "gpu.temperature_margin": temperature_margin,
    "gpu.persistence": persistence,
    "gpu.thermal_slowdown": thermal_slowdown,
    "gpu.power_brake": power_brake,
}
"""Signal -> its reader, in the order of reading."""
