"""Memories of counted faults for tables of cases."""

from __future__ import annotations

from nodeagent.memory import FaultCount, FaultStep, Memory
from nodeagent.model import Instant
from tests.decide.build import BOOT, UPTIME_SECONDS, WALL_SECONDS


def counted(
    name: str, *, age_seconds: float = 60.0, count: int = 1, text: str = "", of: str = "node"
) -> Memory:
    """So many faults of this name and target, so long ago."""
    return Memory(fault_counts={f"{name}|{of}": steps(age_seconds, count, text)})


def steps(age_seconds: float, count: int, text: str = "") -> FaultCount:
    """One step."""
    at_seconds = UPTIME_SECONDS - age_seconds
    at = Instant(boot_id=BOOT, monotonic_seconds=at_seconds, wall_seconds=WALL_SECONDS + at_seconds)
    return FaultCount(ended_count=count, steps=(FaultStep(at=at, count=count),), text=text)
