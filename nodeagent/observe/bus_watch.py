"""Notices that the PCI bus shows a GPU that NVML does not enumerate, since it looks once, when it is loaded.

A GPU that was there before NVML was loaded, and was not found, is not found by loading it again: that is a
fault and no reason to replace a worker.
"""

from __future__ import annotations

from collections.abc import Iterable

TRIES = 3
"""A driver takes some time to set a new device up; what is not found after so many tries is not there."""
FIRST_PAUSE_SECONDS = 30.0


class BusWatch:
    """The bus as it was when NVML was loaded, and what was tried for what came since."""

    def __init__(self) -> None:
        self._at_load: frozenset[str] | None = None
        self._tries: dict[str, int] = {}
        self._not_before_seconds = 0.0

    def added(self, on_bus: Iterable[str], enumerated: Iterable[str], now_seconds: float) -> str:
        """Address of a GPU for whose sake NVML should be loaded anew now, "" when there is none.

        `now_seconds`: CLOCK_MONOTONIC.
        """
        shown, known = frozenset(on_bus), frozenset(enumerated)
        if self._at_load is None:
            self._at_load = shown
        self._at_load &= shown  # one that left the bus and came back is new
        self._tries = {address: tries for address, tries in self._tries.items() if address in shown - known}
        wanted = sorted(
            address for address in shown - known - self._at_load if self._tries.get(address, 0) < TRIES
        )
        if not wanted or now_seconds < self._not_before_seconds:
            return ""
        tries = self._tries.get(wanted[0], 0)
        self._tries.update({address: self._tries.get(address, 0) + 1 for address in wanted})
        self._not_before_seconds = now_seconds + FIRST_PAUSE_SECONDS * 2.0**tries
        return wanted[0]
