"""`disk.io_errors`: does a block device, or a file system on it, report errors?

What is judged is growth: an old error that the disk remembers is shown, and is no news. A SCSI device
counts harmless refusals too, so it takes some of those; a line of the kernel log, or an error that the
file system noticed, is one too many.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide import fault_counts
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable
from nodeagent.host_signals import DiskErrors
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.signals import KernelLogStatus, Reading, SignalKey, read_as

NO_DEVICE = DiskErrors()


def judge(given: CheckInput) -> Iterator[Finding]:
    """Per device; number is errors within the window."""
    log = given.snapshot.readings.get(SignalKey("kernel_log", NODE))
    readable = log is not None and read_as(log, KernelLogStatus) is not None
    counted = {target: (errors, reading) for target, errors, reading in given.values("disk.errors")}
    for target, (errors, reading) in counted.items():
        uncounted = errors.scsi_errors is None and errors.file_system_errors is None and not errors.state
        if uncounted and not readable:
            yield not_applicable(target, "no counter of errors, and the kernel log is not read")
        else:
            yield _judge_one(given, target, errors, reading)
    if log is None or not readable:
        return
    for target in fault_counts.targets(given.memory, fault_counts.LINES["disk"]):
        if target not in counted:
            yield _judge_one(given, target, NO_DEVICE, log)


def _judge_one(given: CheckInput, target: str, errors: DiskErrors, reading: Reading) -> Finding:
    window_seconds = given.limits["window_seconds"]
    now = given.snapshot.now

    def grown(name: str) -> int:
        return fault_counts.grown(given.memory, name, target, window_seconds, now)

    lines, files = grown(fault_counts.LINES["disk"]), grown(fault_counts.FILE_SYSTEM_ERRORS)
    scsi = grown(fault_counts.SCSI_ERRORS)
    shown = {
        "value": _value(errors, lines + files, scsi),
        "limit": f"{given.limits['errors']} errors in {window_seconds:g} s",
        "number": float(lines + files),
    }
    if errors.state == "dead":
        return bad(target, reading, f"the controller of {target} is dead", cause="controller", **shown)
    if lines + files > given.limits["errors"]:
        line = fault_counts.newest_line(given.memory, "disk", target) if lines else ""
        sentence = f"{target} reports errors" + (f": {line}" if line else f" of its {errors.fstype}")
        return bad(target, reading, sentence, cause="kernel log" if lines else "file system", **shown)
    if scsi > given.limits["scsi_errors"]:
        sentence = f"{scsi} commands to {target} ended with an error"
        return bad(target, reading, sentence, cause="scsi", **shown)
    return good(target, reading, **shown)


def _value(errors: DiskErrors, new: int, scsi: int) -> str:
    parts = [f"{new} errors"]
    if scsi:
        parts.append(f"{scsi} failed commands")
    if errors.file_system_errors:
        parts.append(f"{errors.file_system_errors} ever on its {errors.fstype}")
    if errors.state not in ("", "live"):
        parts.append(f"controller {errors.state}")
    return ", ".join(parts)


CHECKS = (
    Check(
        id="disk.io_errors",
        title="Disk errors",
        family="node",
        signals=("disk.errors",),
        source="sysfs: SCSI, NVMe, ext4, btrfs; and I/O error lines of the kernel log",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="errors", unit="errors", default=0,
                meaning="More errors of file system or kernel log than this within the window are bad.",
            ),
            Limit(
                name="scsi_errors", unit="commands", default=10,
                meaning="More failed SCSI commands than this within the window are bad.",
            ),
            Limit(
                name="window_seconds", unit="s", default=3600.0,
                meaning="How far back errors count; at most a day.",
            ),
        ),
        hold=HoldRule(
            raised_words="at the first poll that shows a new error",
            cleared_words="when the window has passed without a new error, and 3 more polls were good",
        ),
        common_cause="disk",
    ),
)
