"""What a report or a metrics page is made from, and the questions both ask of it.

Pure, like all makers of reports: no clock, no file, no judgement.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from nodeagent.decide import decide
from nodeagent.memory import GpuMemory, Memory
from nodeagent.model import NODE, CheckRow, Decision, Now
from nodeagent.settings import Settings
from nodeagent.signals import SignalKey, Snapshot, WorkerStatus

WORKERS = ("nvml", "host")
_LAST_SECOND_OF_9999 = 253402300799.0


class ReportInput(Struct, frozen=True, kw_only=True):
    """Everything a report or a metrics page is made from."""

    decision: Decision | None
    """None: no cycle has ended yet."""
    memory: Memory
    snapshot: Snapshot
    """The one the decision was made from."""
    settings: Settings
    version: str
    now: Now | None = None
    """The moment of the request, for ages; None: the snapshot's."""
    ready: bool = True
    """False until every signal was tried once."""
    cycle_number: int = 0
    cycles: int = 0
    """Cycles since the daemon started."""
    cycles_seconds_total: float = 0.0
    """Time spent in them."""
    config_files: tuple[str, ...] = ()
    requests_refused: Mapping[str, int] = {}
    """Reason -> requests not taken since the daemon started."""
    config_error: str = ""
    """Why the last reload was refused; "" when the files in place are in force."""

    @property
    def moment(self) -> Now:
        """The moment that ages are counted to."""
        return self.now or self.snapshot.now

    @property
    def check_rows(self) -> tuple[CheckRow, ...]:
        """The decision's rows; none before the first cycle has ended."""
        return self.decision.rows if self.decision is not None else ()


def rfc3339(wall_seconds: float) -> str:
    """A point in time as `2026-11-30T03:12:40Z`; a clock that is out of range is clamped."""
    inside = min(max(wall_seconds, 0.0), _LAST_SECOND_OF_9999)
    return datetime.fromtimestamp(int(inside), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def known_gpus(memory: Memory) -> dict[str, GpuMemory]:
    """What is remembered of each GPU, by PCI address; a repaired NVSwitch is remembered beside them."""
    return {pci: gpu for pci, gpu in memory.gpus.items() if gpu.index is not None or gpu.uuid is not None}


def target_label(target: str, memory: Memory) -> str:
    """`GPU 3 0000:4e:00.0` of a GPU, `NVSwitch ...` of a switch, else the target itself."""
    gpu = known_gpus(memory).get(target)
    if gpu is not None:
        return f"GPU {target}" if gpu.index is None else f"GPU {gpu.index} {target}"
    if any(key.startswith(f"{target}|sxid") for key in memory.xids):
        return f"NVSwitch {target}"
    return f"GPU {target}" if any(key.startswith(f"{target}|") for key in memory.xids) else target


def read(given: ReportInput, signal: str) -> Any:
    """Value of a node-wide signal, `Unread`, or None when it was never put on the board."""
    return given.snapshot.value(signal)


def gpu_wanted(given: ReportInput) -> bool | None:
    """False where GPU checks do not apply: no NVIDIA device, or switched off. None: not known yet."""
    return decide.gpus_shown(given.settings, given.snapshot.readings)


def worker_states(given: ReportInput) -> dict[str, tuple[WorkerStatus, float]]:
    """Kind -> (last known status, its age in seconds) of every worker that was ever seen."""
    found: dict[str, tuple[WorkerStatus, float]] = {}
    for kind in WORKERS:
        reading = given.snapshot.readings.get(SignalKey(f"worker.{kind}", NODE))
        if reading is not None and isinstance(reading.value, WorkerStatus):
            age_seconds = max(0.0, given.moment.at.monotonic_seconds - reading.read_at_seconds)
            found[kind] = (reading.value, age_seconds)
    return found


def pending_seconds(given: ReportInput, status: WorkerStatus) -> float:
    """How long the worker's call was in flight when the cycle looked, 0 when none was."""
    since_seconds = status.pending_since_seconds
    if since_seconds is None:
        return 0.0
    return max(0.0, given.snapshot.now.at.monotonic_seconds - since_seconds)
