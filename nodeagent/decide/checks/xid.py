"""`xid` and `nvswitch.sxid`: did the driver report an error of a GPU or an NVSwitch that still stands?

One finding per device, the worst standing record speaks for it. The records, their classes and their
clearing are made in `decide/xid*.py`; this module says what they amount to, and whether anybody listened.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit
from nodeagent.memory import XidRecord
from nodeagent.model import NODE, Finding, NodeClass, State
from nodeagent.signals import (
    GpuIdentity,
    KernelLogStatus,
    Reading,
    SignalKey,
    Unread,
    WorkerStatus,
)

_SXID_FLOOR = 10000
_LIMIT = "no standing Xid"
_SXID_LIMIT = "no standing SXid"
_LIMITS = (
    Limit(name="app_seconds", unit="s", default=600.0,
          meaning="a number of class app (or ignore) ends after this time without a repeat"),
    Limit(name="check_seconds", unit="s", default=86400.0,
          meaning="a number of class check ends after this time without a repeat"),
)


class _Sources(Struct, frozen=True, kw_only=True):
    """Which of the two sources is read."""

    kernel_log: bool
    nvml: bool
    remark: str
    """What is missing, as a half sentence."""
    read_at_seconds: float


def judge(given: CheckInput) -> Iterator[Finding]:
    """A GPU with a standing record of class app or above is bad."""
    for target in _targets(given):
        sources = _sources(given, target)
        records = [r for r in _records(given, switch=False) if r.pci_address == target]
        raised = [record for record in records if _is_raised(record)]
        if raised:
            yield _bad(target, raised, sources, _LIMIT)
        elif not sources.kernel_log and not sources.nvml:
            yield Finding(target=target, state=State.UNKNOWN, sentence=f"no source: {sources.remark}")
        else:
            yield _good(target, records, sources, _LIMIT)


def judge_switches(given: CheckInput) -> Iterator[Finding]:
    """A switch with a standing record of class app or above is bad; only the kernel log names switches."""
    sources = _switch_sources(given)
    held = {key.partition("|")[2] for key in given.memory.holds if key.startswith("nvswitch.sxid|")}
    known = _records(given, switch=True)
    for target in sorted({record.pci_address for record in known} | (held - {NODE})) or [NODE]:
        records = [record for record in known if record.pci_address == target]
        raised = [record for record in records if _is_raised(record)]
        if raised:
            yield _bad(target, raised, sources, _SXID_LIMIT)
        elif not sources.kernel_log:
            yield Finding(target=target, state=State.UNKNOWN, sentence=sources.remark)
        else:
            yield _good(target, records, sources, _SXID_LIMIT)


def _records(given: CheckInput, *, switch: bool) -> list[XidRecord]:
    return [record for record in given.memory.xids.values() if (record.number >= _SXID_FLOOR) is switch]


def _good(target: str, records: list[XidRecord], sources: _Sources, limit: str) -> Finding:
    return Finding(
        target=target, state=State.OK, value="none", limit=limit, number=0.0,
        sentence=_quiet(records, sources), read_at_seconds=sources.read_at_seconds,
    )


def _targets(given: CheckInput) -> list[str]:
    """Enumerated GPUs, remembered ones, and every device with a record or a raised hold of this check:
    what was raised for a device must be judged until it is let go."""
    devices = given.value("gpu.devices", NODE)
    listed = devices if isinstance(devices, tuple) else ()
    known = {device.pci_address for device in listed if isinstance(device, GpuIdentity)}
    known |= {key.target for key in given.snapshot.readings if key.signal == "gpu.presence"}
    known |= set(given.memory.gpus)
    known |= {record.pci_address for record in _records(given, switch=False)}
    known |= {key.partition("|")[2] for key in given.memory.holds if key.startswith("xid|")} - {NODE}
    return sorted(known) or [NODE]


def _is_raised(record: XidRecord) -> bool:
    shown = record.node_class.rank >= NodeClass.APP.rank
    return shown and record.cleared is None and not record.injected


def _sources(given: CheckInput, target: str) -> _Sources:
    log = given.snapshot.readings.get(SignalKey("kernel_log", NODE))
    presence = given.snapshot.readings.get(SignalKey("gpu.presence", target))
    devices = given.snapshot.readings.get(SignalKey("gpu.devices", NODE))
    nvml = devices if target == NODE or presence is None else presence
    log_read = log is not None and isinstance(log.value, KernelLogStatus)
    nvml_read = nvml is not None and not isinstance(nvml.value, Unread)
    remarks = [] if log_read else [f"the kernel log is not read ({_reason(log)})"]
    remarks += [] if nvml_read else [_nvml_remark(given, nvml)]
    times = [r.read_at_seconds for r, is_read in ((log, log_read), (nvml, nvml_read)) if r and is_read]
    return _Sources(
        kernel_log=log_read, nvml=nvml_read, remark="; ".join(remarks),
        read_at_seconds=max(times, default=0.0),
    )


def _switch_sources(given: CheckInput) -> _Sources:
    log = given.snapshot.readings.get(SignalKey("kernel_log", NODE))
    is_read = log is not None and isinstance(log.value, KernelLogStatus)
    return _Sources(
        kernel_log=is_read, nvml=False,
        remark="" if is_read else f"the kernel log is not read ({_reason(log)})",
        read_at_seconds=log.read_at_seconds if log is not None and is_read else 0.0,
    )


def _nvml_remark(given: CheckInput, nvml: Reading | None) -> str:
    """Events come by a thread of their own, so a hung read alone does not silence them."""
    worker = given.value("worker.nvml", NODE)
    if isinstance(worker, WorkerStatus) and worker.state == "released":
        return "NVML is released, so its events are not read"
    if isinstance(worker, WorkerStatus) and worker.state in ("reading", "stuck"):
        return "NVML hangs, so its events may be missed"
    return f"NVML events are not read ({_reason(nvml)})"


def _reason(reading: Reading | None) -> str:
    if reading is None:
        return "not yet"
    return reading.value.reason if isinstance(reading.value, Unread) else "no answer"


def _label(record: XidRecord) -> str:
    return f"{'SXid' if record.number >= _SXID_FLOOR else 'Xid'} {record.number}"


def _bad(target: str, raised: list[XidRecord], sources: _Sources, limit: str) -> Finding:
    """The worst class speaks, then the newest; the others are named."""
    ordered = sorted(raised, key=lambda r: (-r.node_class.rank, -r.last.wall_seconds, r.number))
    worst, others = ordered[0], ordered[1:]
    times = f", {worst.count} times" if worst.count > 1 else ""
    parts = [f"{_label(worst)}: {worst.detail}{times}"]
    if worst.held:
        parts.append("held until its window ends")
    if len(worst.episodes) > 1:
        parts.append(f"seen on {len(worst.episodes)} occasions in 30 days")
    if others:
        parts.append("also " + ", ".join(_label(record) for record in others[:8]))
    evidence = f". Evidence: {worst.text}" if worst.text else ""
    evidence += f". {sources.remark}" if sources.remark else ""
    return Finding(
        target=target, state=State.WARNING, value=_label(worst), limit=limit, number=float(worst.number),
        sentence="; ".join(parts) + evidence, node_class=worst.node_class, cause=_label(worst).lower(),
        read_at_seconds=sources.read_at_seconds or worst.last.monotonic_seconds, immediate=True,
    )


def _quiet(records: list[XidRecord], sources: _Sources) -> str:
    """Why nothing is raised, where there is something to say: a gap, an injected test, a cleared fault."""
    said = [sources.remark] if sources.remark else []
    said += [f"{_label(record)} was injected as a test" for record in records if record.injected]
    cleared = [r for r in records if r.cleared is not None and r.node_class is not NodeClass.IGNORE]
    if cleared:
        newest = max(cleared, key=lambda r: r.cleared.wall_seconds if r.cleared else 0.0)
        said.append(f"{_label(newest)} cleared: {newest.cleared_by}")
    return "; ".join(said)


_HOLD = HoldRule(
    raised_words="at once, with the class of its number: nodeagent explain xid 79, sxid 12028",
    cleared_words="app and check: after their time without a repeat. reset and reboot: after a "
    "seen reset or a new boot, and good reads. vendor: when the device was replaced, or by "
    "`nodeagent gpu repaired`",
)

CHECKS = (
    Check(
        id="xid",
        title="Driver errors (Xid)",
        family="gpu",
        signals=("gpu.presence",),
        source="kernel log and NVML events, joined",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=_LIMITS,
        hold=_HOLD,
    ),
    Check(
        id="nvswitch.sxid",
        title="NVSwitch errors (SXid)",
        family="gpu",
        signals=("kernel_log",),
        source="kernel log",
        node_class=NodeClass.CHECK,
        judge=judge_switches,
        limits=_LIMITS,
        hold=_HOLD,
        common_cause="fabric",
    ),
)
