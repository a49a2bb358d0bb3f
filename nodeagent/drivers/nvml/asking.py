"""What one GPU is asked in one read-all, with as few calls as can be.

All field values come in one call, and what never changes is asked once in the library's life. It must not
keep anything else: a value of an earlier read-all never passes for a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from nodeagent.drivers.nvml.library import LASTING, FieldId, Library, NvmlFailure
from nodeagent.errors import DriverError

RECOVERY_ACTION = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
LINK_COUNT = pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT
LINK_STATE = pynvml.NVML_FI_DEV_NVLINK_GET_STATE
LINK_RECOVERY_FAILED = pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS
LINK_CRC = (
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
)
LINK_REPLAY = pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
LINK_RECOVERY = pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
THERMAL_SLOWDOWN = pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN
POWER_BRAKE = pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN
PCIE_REPLAY = pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER
RETIRED_PAGES = (
    pynvml.NVML_FI_DEV_RETIRED_SBE, pynvml.NVML_FI_DEV_RETIRED_DBE, pynvml.NVML_FI_DEV_RETIRED_PENDING,
)

_OF_EVERY_GPU: tuple[FieldId, ...] = (
    RECOVERY_ACTION, *RETIRED_PAGES, PCIE_REPLAY, THERMAL_SLOWDOWN, POWER_BRAKE,
)
_OF_LINKS: tuple[FieldId, ...] = (*LINK_CRC, LINK_REPLAY, LINK_RECOVERY)
_OF_EACH_LINK = (LINK_STATE, LINK_RECOVERY_FAILED)


class Asking:
    """One GPU in one read-all."""

    def __init__(
        self, library: Library, target: str, handle: Any, *, lasting: dict[str, Any], mig_enabled: bool
    ) -> None:
        """`lasting`: what was learned of this GPU in this mode since the library was loaded."""
        self.library = library
        self.target = target
        self.handle = handle
        self.lasting = lasting
        self.mig_enabled = mig_enabled
        self.processes: int | DriverError | None = None
        """Compute processes of this read-all, or why they are not known."""
        self._value: Callable[[FieldId], int] | DriverError | None = None

    def call(self, name: str, *arguments: Any) -> Any:
        """pynvml's `name` on this GPU. Raises DriverError."""
        return self.library.call(name, self.target, self.handle, *arguments)

    def once(self, name: str, read: Callable[[], Any]) -> Any:
        """What `read` gave when it first worked, or that this GPU lacks it. Raises DriverError."""
        if name not in self.lasting:
            try:
                self.lasting[name] = read()
            except NvmlFailure as failure:
                if failure.code not in LASTING:
                    raise
                self.lasting[name] = failure
        if isinstance(self.lasting[name], NvmlFailure):
            raise self.lasting[name]
        return self.lasting[name]

    def unless_lacking(self, signal: str, reader: Callable[[Asking], Any]) -> Any:
        """What `reader` gives now, unless this GPU lacks the feature. Raises DriverError."""
        known = self.lasting.get(signal)
        if isinstance(known, NvmlFailure):
            raise known
        try:
            return reader(self)
        except NvmlFailure as failure:
            if failure.code in LASTING:
                self.lasting[signal] = failure
            raise

    def links(self) -> int:
        """NVLinks that the GPU has; 0 for one that has none. Raises DriverError."""
        def read() -> int:
            return self.library.field(self.target, self.handle, LINK_COUNT)

        try:
            return int(self.once("link count", read))
        except NvmlFailure as failure:
            if failure.code in LASTING:
                return 0
            raise

    def lacks(self, field_id: int) -> bool:
        """True once the GPU said that this field of its links is not supported."""
        return field_id in self.lasting.get("lacking fields", ())

    def field(self, field_id: FieldId) -> int:
        """Value of one field, from the one call that reads them all. Raises DriverError."""
        if self._value is None:
            try:
                self._value = self.library.fields(self.target, self.handle, self._wanted())
            except DriverError as error:
                self._value = error
        if isinstance(self._value, DriverError):
            raise self._value
        return self._value(field_id)

    def link_fields(self, field_id: int) -> list[int]:
        """Value of a field of each link; a GPU that lacks it is not asked again. Raises DriverError."""
        try:
            return [self.field((field_id, link)) for link in range(self.links())]
        except NvmlFailure as failure:
            if failure.code in LASTING:
                self.lasting.setdefault("lacking fields", set()).add(field_id)
            raise

    def _wanted(self) -> tuple[FieldId, ...]:
        try:
            links = self.links()
        except DriverError:
            links = 0
        each = [field_id for field_id in _OF_EACH_LINK if not self.lacks(field_id)]
        of_each: list[FieldId] = [(field_id, link) for field_id in each for link in range(links)]
        return (*_OF_EVERY_GPU, *(_OF_LINKS if links else ()), *of_each)
