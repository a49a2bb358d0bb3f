"""Journal-worthy differences between two snapshots that decide has no memory of: the agent's own parts."""

from __future__ import annotations

from nodeagent.model import Notice
from nodeagent.signals import Snapshot, StateFileStatus, WorkerStatus

WORKERS = ("worker.nvml", "worker.host")


def notices(before: Snapshot | None, after: Snapshot) -> list[Notice]:
    """Workers that got stuck or were replaced, a state file that cannot be kept, dropped input."""
    found: list[Notice] = []
    for signal in WORKERS:
        worker = signal.partition(".")[2]
        found.extend(_worker(worker, _status(before, signal), _status(after, signal), after))
    found.extend(_state_file(_state(before), _state(after)))
    dropped = after.inbox_dropped - (before.inbox_dropped if before is not None else 0)
    if dropped > 0:
        found.append(Notice(event="input_dropped", fields={"count": dropped}))
    return found


def _status(snapshot: Snapshot | None, signal: str) -> WorkerStatus | None:
    value = snapshot.value(signal) if snapshot is not None else None
    return value if isinstance(value, WorkerStatus) else None


def _state(snapshot: Snapshot | None) -> StateFileStatus | None:
    value = snapshot.value("state_file") if snapshot is not None else None
    return value if isinstance(value, StateFileStatus) else None


def _worker(
    worker: str, before: WorkerStatus | None, after: WorkerStatus | None, snapshot: Snapshot
) -> list[Notice]:
    if after is None:
        return []
    found: list[Notice] = []
    if after.state == "stuck" and (before is None or before.state != "stuck"):
        since_seconds = after.pending_since_seconds or snapshot.now.at.monotonic_seconds
        found.append(Notice(event="worker_stuck", fields={
            "worker": worker, "pid": after.pid, "call": after.pending_call or "no call",
            "duration_seconds": round(snapshot.now.at.monotonic_seconds - since_seconds, 1),
        }))
    if before is not None and after.restarts > before.restarts:
        reason = after.error_detail or before.error_detail or after.error_cause or "it ended"
        found.append(Notice(event="worker_replaced",
                            fields={"worker": worker, "pid": after.pid, "reason": reason}))
    return found


def _state_file(before: StateFileStatus | None, after: StateFileStatus | None) -> list[Notice]:
    if after is None:
        return []
    found: list[Notice] = []
    if after.set_aside and (before is None or before.set_aside != after.set_aside):
        path, _, reason = after.set_aside.partition(" ")
        found.append(Notice(event="state_set_aside", fields={"path": path, "reason": reason.strip("()")}))
    if not after.writable and (before is None or before.writable):
        found.append(Notice(event="state_unwritable", fields={"path": "", "reason": after.detail}))
    return found
