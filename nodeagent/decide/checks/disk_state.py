"""`disk.read_only`: did a local file system that was writable turn read-only?

After an error the kernel takes the write permission away from the whole file system, at its super block.
What is read-only since it was first seen in this boot is so by design. A mount that alone turned
read-only is somebody's doing: others of the same file system still write, so it never taints.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable
from nodeagent.host_signals import MountFlags
from nodeagent.memory import MountSeen
from nodeagent.model import Finding, NodeClass, State
from nodeagent.signals import Reading

ROOT = "/"
LIMIT = "writable"
_BY_ERROR = {"emergency_ro": "after an error", "shutdown": "by a shutdown of the file system"}


def judge(given: CheckInput) -> Iterator[Finding]:
    """Per mount point; only the root's super block asks for more than a warning."""
    required = tuple(given.limits["required_paths"])
    for target, flags, reading in given.values("disk.mount"):
        seen = given.memory.mounts.get(target, MountSeen(device=flags.device, fstype=flags.fstype))
        yield _judge_one(target, flags, seen, reading, required=target in required)
    mounts = {key.target for key in given.snapshot.readings if key.signal == "disk.mount"}
    for target in sorted(set(required) - mounts):
        yield Finding(target=target, state=State.UNKNOWN, sentence="not a mounted local file system")


def _judge_one(
    target: str, flags: MountFlags, seen: MountSeen, reading: Reading, *, required: bool
) -> Finding:
    place = f"{target} ({flags.device}, {flags.fstype})"
    if flags.super_read_only and (required or seen.super_writable):
        why = _BY_ERROR.get(flags.reason, "")
        return bad(
            target, reading, f"{place} turned read-only {why}".rstrip(), value=_value(flags), limit=LIMIT,
            cause="super block", node_class=NodeClass.REBOOT if target == ROOT else NodeClass.CHECK,
        )
    if flags.super_read_only:
        return not_applicable(target, "read-only since it was first seen")
    if flags.mount_read_only and (required or seen.mount_writable):
        return bad(
            target, reading, f"the mount {place} turned read-only; its file system is still writable",
            value=_value(flags), limit=LIMIT, cause="mount", node_class=NodeClass.CHECK,
        )
    if flags.mount_read_only:
        return not_applicable(target, "mounted read-only since it was first seen")
    return good(target, reading, value=LIMIT, limit=LIMIT)


def _value(flags: MountFlags) -> str:
    if not flags.super_read_only:
        return "read-only mount"
    return f"read-only, {flags.reason}" if flags.reason else "read-only"


CHECKS = (
    Check(
        id="disk.read_only",
        title="File systems writable",
        family="node",
        signals=("disk.mount",),
        source="flags of mount and super block in mountinfo; reboot is for the root, others are a check",
        node_class=NodeClass.REBOOT,
        judge=judge,
        limits=(
            Limit(
                name="required_paths", unit="mount points", default=(),
                meaning="These must be writable even where they never were in this boot.",
            ),
        ),
        hold=HoldRule(bad_polls=2, of_polls=2, proof="reset"),
        common_cause="disk",
    ),
)
