"""The GPUs of the node in a few numbers: wanted, seen, expected, healthy, faulty, not read.

Counts what decide concluded; a GPU that nobody could judge is neither healthy nor faulty here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nodeagent.model import NodeClass, State
from nodeagent.report.given import ReportInput, gpu_wanted, known_gpus, read, rfc3339
from nodeagent.report.schema import RAISED, CheckStatus, GpuStatus, ReleaseStatus, UnreadValue, in_force
from nodeagent.signals import GpuDriver, KernelDriver, PciGpus, Unread


def gpu_status(given: ReportInput, rows: Sequence[CheckStatus]) -> GpuStatus:
    """All GPUs in a few numbers, from the rows of this report."""
    wanted = gpu_wanted(given)
    expected, expected_from = _expected(given)
    tally = Counter(_gpu_states(given, rows).values())
    return GpuStatus(
        wanted=wanted,
        seen=_seen(given) if wanted else None,
        expected=expected if wanted else None,
        expected_from=expected_from if wanted else "",
        healthy=tally["healthy"],
        faulty=tally["faulty"],
        unread=tally["unread"],
        driver_version=_driver_version(given) if wanted else None,
        released=given.memory.release is not None,
        release=_release(given),
    )


def _gpu_states(given: ReportInput, rows: Sequence[CheckStatus]) -> dict[str, str]:
    """healthy, faulty or unread of every GPU that some check speaks of.

    An application's error is shown, but is no fault of the GPU.
    """
    gpus = known_gpus(given.memory)
    states: dict[str, set[State]] = {}
    for row in rows:
        if row.target in gpus:
            app_only = in_force(row) in RAISED and row.node_class is NodeClass.APP
            states.setdefault(row.target, set()).add(State.OK if app_only else in_force(row))
    return {pci: _gpu_word(found) for pci, found in states.items()}


def _gpu_word(found: set[State]) -> str:
    if found & set(RAISED):
        return "faulty"
    judged = State.OK in found or State.PENDING in found
    return "healthy" if judged and not found & {State.UNKNOWN, State.MUTED} else "unread"


def _expected(given: ReportInput) -> tuple[int | None, str]:
    if given.settings.gpu.expected_count:
        return given.settings.gpu.expected_count, "config"
    bus, baseline = read(given, "gpu.pci"), given.memory.baseline
    on_bus = len(bus.addresses) if isinstance(bus, PciGpus) else 0
    this_boot = baseline is not None and baseline.boot_id == given.snapshot.now.at.boot_id
    first_seen = baseline.count if baseline is not None and this_boot else 0
    if not max(on_bus, first_seen):
        return None, ""
    return (on_bus, "PCI bus") if on_bus >= first_seen else (first_seen, "first seen after boot")


def _seen(given: ReportInput) -> int | UnreadValue:
    devices = read(given, "gpu.devices")
    if devices is None:
        return UnreadValue(unread="not read yet")
    return UnreadValue(unread=devices.reason) if isinstance(devices, Unread) else len(devices)


def _driver_version(given: ReportInput) -> str | UnreadValue:
    kernel, by_nvml = read(given, "gpu.kernel_driver"), read(given, "gpu.driver")
    if isinstance(kernel, KernelDriver):
        return kernel.version
    if isinstance(by_nvml, GpuDriver):
        return by_nvml.driver_version
    return UnreadValue(unread=kernel.reason if isinstance(kernel, Unread) else "not read yet")


def _release(given: ReportInput) -> ReleaseStatus | None:
    release, moment = given.memory.release, given.moment
    if release is None:
        return None
    left = None
    if release.until_seconds is not None:
        left = max(0.0, release.until_seconds - moment.at.monotonic_seconds)
    return ReleaseStatus(
        since=rfc3339(release.since.wall_seconds),
        age_seconds=moment.age_seconds(release.since),
        left_seconds=left,
        reason=release.reason,
        by_operator=release.by_operator,
    )
