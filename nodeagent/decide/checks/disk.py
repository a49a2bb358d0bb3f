"""`disk.full`: is there room left on the local file systems?

Both limits must be broken: 5 % of 30 TB is plenty, and a small boot partition is full by percent only.
Read-only file systems are full by design and are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable
from nodeagent.model import Finding, NodeClass, State
from nodeagent.signals import DiskUsage, Reading

GIB_BYTES = 1 << 30


def judge(given: CheckInput) -> Iterator[Finding]:
    """Per mount point; number is percent available to unprivileged processes."""
    paths = tuple(given.limits["paths"])
    mounts = sorted(key.target for key in given.snapshot.readings if key.signal == "disk.usage")
    for target in mounts:
        if paths and target not in paths:
            yield not_applicable(target, "not among the configured paths")
    for target, disk, reading in given.values("disk.usage"):
        if not paths or target in paths:
            yield _judge_one(given, target, disk, reading)
    for target in sorted(set(paths) - set(mounts)):
        yield Finding(target=target, state=State.UNKNOWN, sentence="not a mounted local file system")


def _judge_one(given: CheckInput, target: str, disk: DiskUsage, reading: Reading) -> Finding:
    if disk.read_only or disk.size_bytes <= 0:
        reason = "read-only file system" if disk.read_only else "file system without a size"
        return not_applicable(target, reason)
    percent = 100.0 * disk.available_bytes / disk.size_bytes
    percent_limit, bytes_limit = given.limits["available_percent"], given.limits["available_bytes"]
    shown = {
        "value": f"{percent:.1f} %, {disk.available_bytes / GIB_BYTES:.1f} GiB left",
        "limit": f"{percent_limit:g} % and {bytes_limit / GIB_BYTES:.1f} GiB",
        "number": percent,
    }
    if percent >= percent_limit or disk.available_bytes >= bytes_limit:
        return good(target, reading, **shown)
    return bad(target, reading, f"{target} ({disk.device}) has {percent:.1f} % left", **shown)


CHECKS = (
    Check(
        id="disk.full",
        title="Disk space",
        family="node",
        signals=("disk.usage",),
        source="statvfs of each local file system",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="available_percent", unit="%", default=5.0,
                meaning="Below this is bad, if available_bytes is broken too.",
            ),
            Limit(
                name="available_bytes", unit="bytes", default=50 * GIB_BYTES,
                meaning="Below this is bad, if available_percent is broken too.",
            ),
            Limit(
                name="paths", unit="mount points", default=(),
                meaning="Only these mount points are judged; empty: every local one.",
            ),
        ),
        hold=HoldRule(bad_polls=2, of_polls=3),
        common_cause="disk",
    ),
)
