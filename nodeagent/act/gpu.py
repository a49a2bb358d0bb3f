"""The ops on the agent's own hold of the driver: let NVML go, take it up again."""

from __future__ import annotations

from typing import Protocol

from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import Op


class NvmlHold(Protocol):
    """What can release and resume NVML; raises DriverError."""

    async def release(self) -> None:
        """End the worker that has the library open; returns when its process is gone."""

    def resume(self) -> None:
        """Let a worker open the library again."""


async def perform(hold: NvmlHold, op: Op) -> str:
    """Carry out `nvml.release` or `nvml.resume`; raises DriverError(invalid) for any other op."""
    if op.kind == "nvml.release":
        await hold.release()
        return "no process of the agent has NVML open"
    if op.kind == "nvml.resume":
        hold.resume()
        return "NVML is read again"
    raise DriverError(ErrorKind.INVALID, op.target, op.kind, "the gpu executor knows no such op")
