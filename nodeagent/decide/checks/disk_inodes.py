"""`disk.inodes`: can new files still be made on the local file systems?

Running out of inodes says "no space left" while gigabytes are free. File systems that make inodes as
they need them, and read-only ones, are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable
from nodeagent.model import Finding, NodeClass, State
from nodeagent.signals import DiskUsage, Reading


def judge(given: CheckInput) -> Iterator[Finding]:
    """Per mount point; number is percent of inodes left to unprivileged processes."""
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
    if disk.read_only:
        return not_applicable(target, "read-only file system")
    if disk.inode_count <= 0:
        return not_applicable(target, f"{disk.fstype or 'the file system'} makes inodes as it needs them")
    percent = 100.0 * disk.available_inode_count / disk.inode_count
    percent_limit = given.limits["available_percent"]
    shown = {
        "value": f"{percent:.1f} %, {disk.available_inode_count} inodes left",
        "limit": f"{percent_limit:g} %",
        "number": percent,
    }
    if percent >= percent_limit:
        return good(target, reading, **shown)
    return bad(target, reading, f"{target} ({disk.device}) has {percent:.1f} % of its inodes left", **shown)


CHECKS = (
    Check(
        id="disk.inodes",
        title="Inodes",
        family="node",
        signals=("disk.usage",),
        source="statvfs of each local file system",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="available_percent", unit="%", default=5.0,
                meaning="Below this is bad; the kubelet evicts pods below 5 % by default.",
            ),
            Limit(
                name="paths", unit="mount points", default=(),
                meaning="Only these mount points are judged; empty: every local one.",
            ),
        ),
        hold=HoldRule(bad_polls=2, of_polls=3),
        depends_on=("disk.full",),
        common_cause="disk",
    ),
)
