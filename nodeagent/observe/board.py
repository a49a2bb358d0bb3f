"""The board: the latest reading of every signal. Written by samplers, copied by the snapshot."""

from __future__ import annotations

from typing import Any

from nodeagent.drivers.clock import Clock
from nodeagent.signals import Reading, SignalKey


class Board:
    """Latest value per (signal, target); a failed read overwrites, a pending one does not."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings: dict[SignalKey, Reading] = {}
        self._sequence = 0

    def put(self, signal: str, target: str, value: Any, read_at_seconds: float | None = None) -> None:
        """Store a value or an `Unread`; `read_at_seconds` is CLOCK_MONOTONIC, None = now."""
        self._sequence += 1
        at_seconds = self._clock.monotonic_seconds() if read_at_seconds is None else read_at_seconds
        self._readings[SignalKey(signal, target)] = Reading(
            value=value, read_at_seconds=at_seconds, sequence=self._sequence
        )

    def drop(self, signal: str, target: str) -> None:
        """Forget a target that no longer exists: an unmounted file system, a removed GPU."""
        self._readings.pop(SignalKey(signal, target), None)

    def targets(self, signal: str) -> set[str]:
        """Targets that have a reading of `signal`."""
        return {key.target for key in self._readings if key.signal == signal}

    def readings(self) -> dict[SignalKey, Reading]:
        """A copy that later puts do not change."""
        return dict(self._readings)
