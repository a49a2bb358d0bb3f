"""What is observed of a GPU's wear and of its links: the nouns of signals that NVML tells.

A value that could not be read is an `Unread` in place of the noun; a field that is None says why it may be.
"""

from __future__ import annotations

from msgspec import Struct


class SramErrors(Struct, frozen=True, kw_only=True):
    """Signal `gpu.sram` (GPU): nvmlDeviceGetSramEccErrorStatus."""

    threshold_exceeded: bool
    """The board's own limit of uncorrected SRAM errors over its life was passed."""
    aggregate_uncorrected: int


class RetiredPages(Struct, frozen=True, kw_only=True):
    """Signal `gpu.retired_pages` (GPU): memory pages out of use, on GPUs before row remapping."""

    single_bit_pages: int
    double_bit_pages: int
    pending: bool
    """A page waits for a driver reload or reset to be taken out of use."""


class TemperatureMargin(Struct, frozen=True, kw_only=True):
    """Signal `gpu.temperature_margin` (GPU): nvmlDeviceGetMarginTemperature."""

    margin_celsius: int
    """Degrees left until the GPU's own thermal limit; negative above it."""


class PersistenceMode(Struct, frozen=True, kw_only=True):
    """Signal `gpu.persistence` (GPU): does the driver keep the GPU initialised without a client?"""

    enabled: bool


class SlowedTime(Struct, frozen=True, kw_only=True):
    """Signals `gpu.thermal_slowdown` and `gpu.power_brake` (GPU): time that hardware held the clocks down."""

    total_nanoseconds: int
    """Since the driver was loaded; only its growth says anything."""


class MonotonicCount(Struct, frozen=True, kw_only=True):
    """Signal `gpu.pcie_replay` (GPU): times that a PCIe packet had to be sent again."""

    total_count: int
    """Since the driver was loaded; only its growth says anything."""


class PcieLink(Struct, frozen=True, kw_only=True):
    """Signal `gpu.pcie_link` (GPU)."""

    lane_count: int
    max_lane_count: int
    """What device and slot can do together."""
    generation: int
    """An idle GPU lowers it by itself."""
    max_generation: int
    busy_percent: int | None = None
    """Utilisation of the GPU; None where the link is at its best, or the GPU does not tell."""


class OwnerlessMemory(Struct, frozen=True, kw_only=True):
    """Signal `gpu.ownerless_memory` (GPU): memory in use while no process holds the device."""

    used_bytes: int | None
    """Without what the driver reserves; None while a process holds the GPU, or in MIG mode."""
    of_system: bool = False
    """The memory is a NUMA node of the operating system, which uses it for anything."""


class NvLinks(Struct, frozen=True, kw_only=True):
    """Signal `gpu.nvlink` (GPU): state of each of its NVLinks."""

    link_count: int
    inactive: tuple[int, ...] = ()
    """Numbers of the links that are down."""

    @property
    def active_count(self) -> int:
        """Links that are up."""
        return self.link_count - len(self.inactive)


class NvLinkErrors(Struct, frozen=True, kw_only=True):
    """Signal `gpu.nvlink_errors` (GPU), over all links since the driver was loaded; only growth counts."""

    crc_errors: int
    """Packets that arrived damaged; each is sent again."""
    recovery_errors: int
    """Packets sent again, links trained anew, and failures to do so."""


class FabricState(Struct, frozen=True, kw_only=True):
    """Signal `gpu.fabric` (GPU): registration with the NVLink fabric."""

    state: int
    """0 not supported, 1 not started, 2 in progress, 3 completed; it stays so when the manager dies."""
    status: int
    """NVML code of the registration; says something only when the state is completed."""
    health_mask: int | None = None
    """Bit fields of different sense; None from an older driver."""
    health_summary: int | None = None
    """0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity; None from an older driver."""


class FabricManager(Struct, frozen=True, kw_only=True):
    """Signal `fabric.manager` (node): the service that sets up the NVSwitches."""

    running: bool
    detail: str = ""
