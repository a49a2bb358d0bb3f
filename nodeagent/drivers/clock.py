"""The clocks of the host: monotonic, wall, and the boot that the monotonic one belongs to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import Instant


class Clock(Protocol):
    """What tells the time; tests drive one by hand."""

    def monotonic_seconds(self) -> float:
        """CLOCK_MONOTONIC of this boot."""

    def instant(self) -> Instant:
        """Both clocks and the boot id, read together."""


class SystemClock:
    """The kernel's clocks."""

    def __init__(self, proc_root: str = "/proc") -> None:
        path = Path(proc_root, "sys/kernel/random/boot_id")
        try:
            self._boot_id = path.read_text(encoding="ascii").strip()
        except OSError as error:
            raise DriverError(ErrorKind.ABSENT, str(path), "read boot id", error.strerror or "") from error

    def monotonic_seconds(self) -> float:
        """CLOCK_MONOTONIC of this boot."""
        return time.monotonic()

    def instant(self) -> Instant:
        """Both clocks and the boot id, read together."""
        return Instant(
            boot_id=self._boot_id, monotonic_seconds=time.monotonic(), wall_seconds=time.time()
        )
