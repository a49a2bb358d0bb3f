"""Reports of what decide really concludes, not of scenes written by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nodeagent.decide.decide import decide
from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import (
    FabricState,
    MonotonicCount,
    NvLinkErrors,
    NvLinks,
    OwnerlessMemory,
    PcieLink,
    PersistenceMode,
    SlowedTime,
    SramErrors,
    TemperatureMargin,
)
from nodeagent.memory import Memory
from nodeagent.model import NODE, Now, State
from nodeagent.report.given import ReportInput
from nodeagent.report.metrics import exposition
from nodeagent.report.render import render_check, render_history, render_status
from nodeagent.report.schema import StatusReport, decode_status, encode
from nodeagent.report.status import build_check, build_history, build_status
from nodeagent.settings import Settings
from nodeagent.signals import (
    ClockSync,
    DiskUsage,
    EccCounters,
    Event,
    GpuPresence,
    KubeletHealth,
    Reading,
    RecoveryAction,
    RowRemap,
    SignalKey,
    Snapshot,
    Unread,
    WorkerStatus,
    XidEvent,
)
from nodeagent.xid_data import load_xid_table
from tests.report import build
from tests.scenarios.world import healthy_host, healthy_network, signal_key

TABLE = load_xid_table()
LINE = "NVRM: Xid (PCI:0000:4e:00): 79, pid=77, name=python3, GPU has fallen off the bus."


def board(**changed: Any) -> dict[SignalKey, Any]:
    """Values of a node with eight good GPUs; `changed` replaces node signals."""
    per_gpu = {
        "gpu.presence": GpuPresence(reachable=True),
        "gpu.recovery_action": RecoveryAction(value=0),
        "gpu.ecc": EccCounters(
            volatile_uncorrected=0, volatile_corrected=0, aggregate_uncorrected=0, aggregate_corrected=0
        ),
        "gpu.row_remap": RowRemap(corrected_rows=0, uncorrected_rows=0, pending=False, failed=False),
        "gpu.sram": SramErrors(threshold_exceeded=False, aggregate_uncorrected=0),
        "gpu.retired_pages": Unread(kind=ErrorKind.ABSENT, reason="Not Supported"),
        "gpu.temperature_margin": TemperatureMargin(margin_celsius=51),
        "gpu.persistence": PersistenceMode(enabled=True),
        "gpu.thermal_slowdown": SlowedTime(total_nanoseconds=0),
        "gpu.power_brake": SlowedTime(total_nanoseconds=0),
        "gpu.pcie_link": PcieLink(lane_count=16, max_lane_count=16, generation=5, max_generation=5),
        "gpu.pcie_replay": MonotonicCount(total_count=0),
        "gpu.ownerless_memory": OwnerlessMemory(used_bytes=None),
        "gpu.nvlink": NvLinks(link_count=18),
        "gpu.nvlink_errors": NvLinkErrors(crc_errors=0, recovery_errors=0),
        "gpu.fabric": FabricState(state=3, status=0, health_mask=0x1AA, health_summary=1),
    }
    values = {key: reading.value for key, reading in build.readings(**changed).items()}
    values[SignalKey("clock.sync", NODE)] = ClockSync(
        synchronized=True, estimated_error_seconds=0.001, max_error_seconds=0.01
    )
    values[SignalKey("kubelet.health", NODE)] = KubeletHealth(healthy=True, detail="ok")
    for signal in ("net.kernel", "net.links", "net.marks"):
        values[SignalKey(signal, NODE)] = Unread(kind=ErrorKind.ABSENT, reason="network is off")
    values[SignalKey("disk.usage", "/")] = DiskUsage(
        device="/dev/vda1", fstype="ext4", size_bytes=1 << 40, available_bytes=1 << 39, used_bytes=1 << 39
    )
    of_node = healthy_network() | healthy_host()
    values |= {signal_key(name): value for name, value in of_node.items()}
    return values | {SignalKey(name, pci): value for name, value in per_gpu.items() for pci in build.GPUS}


def after(cycles: list[tuple[dict[SignalKey, Any], tuple[Event, ...]]]) -> ReportInput:
    """What is reported after these cycles, 15 s apart, the last of them now."""
    memory, settings = Memory(), Settings()
    for index, (values, events) in enumerate(cycles):
        at = build.ago(15.0 * (len(cycles) - 1 - index))
        read = {
            key: Reading(value=value, read_at_seconds=at.monotonic_seconds - 1, sequence=index + 1)
            for key, value in values.items()
        }
        snapshot = Snapshot(now=Now(at=at), node_name="gpu-a17", readings=read, events=events)
        decision, memory, _ = decide(settings, snapshot, memory, TABLE)
    return ReportInput(
        decision=decision, memory=memory, snapshot=snapshot, settings=settings, version="0.1.0"
    )


def report_of(given: ReportInput) -> StatusReport:
    """The status as the command line gets it."""
    return decode_status(encode(build_status(given)))


def xid(number: int, text: str = LINE) -> XidEvent:
    """A kernel record of a moment ago on GPU 3."""
    return XidEvent(
        source="kernel",
        pci_address=build.GPUS[3],
        number=number,
        at_seconds=build.UPTIME_SECONDS - 20,
        text=text,
    )


def test_fallen_gpu_is_told_from_the_kernel_line_to_the_command() -> None:
    """State, GPU by index, the kernel's evidence, taint and next command are on the screen."""
    text = render_status(report_of(after([(board(), ()), (board(), (xid(79), xid(45))), (board(), ())])))

    assert "gpu-a17  CRITICAL for" in text.splitlines()[0]
    assert re.search(r"^  CRITICAL  xid +GPU 3 0000:4e:00.0  Xid 79: ", text, re.MULTILINE)
    assert "7 of 8 healthy, 1 faulty" in text
    assert "NVRM: Xid (PCI:0000:4e:00): 79" in text
    assert "would set nodeagent.io/gpu-unhealthy=xid:NoSchedule" in text
    assert "Next      nodeagent explain xid.79\n" in text


def test_healthy_node_has_quiet_lines_only() -> None:
    """Nothing that is well takes room."""
    lines = render_status(report_of(after([(board(), ())] * 3))).splitlines()

    assert "gpu-a17  OK for 30 s" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["GPUs", "Checks", "Taint", "Kernel"]


def test_hung_call_is_named_before_and_after_the_deadline() -> None:
    """The call that hangs is on the screen, and GPUs are then neither healthy nor faulty."""
    stuck = WorkerStatus(
        state="stuck",
        pid=9,
        pending_call="nvmlDeviceGetTotalEccErrors GPU 3",
        pending_since_seconds=build.UPTIME_SECONDS - 42,
        misses=3,
    )
    silent = Unread(kind=ErrorKind.TIMEOUT, reason="the NVML worker is stuck")
    values = {
        key: silent if key.signal.startswith("gpu.") and key.target != "node" else value
        for key, value in board(worker__nvml=stuck, gpu__devices=silent).items()
    }
    report = report_of(after([(board(), ()), (values, ())]))

    assert "Waiting   NVML: nvmlDeviceGetTotalEccErrors GPU 3, 42 s, stuck\n" in render_status(report)
    assert (report.exit_code, report.gpus.healthy, report.gpus.unread) == (2, 0, 8)
    assert report.next[0] == "nodeagent explain driver.stuck"


STORIES: dict[str, list[tuple[dict[SignalKey, Any], tuple[Event, ...]]]] = {
    "nothing read": [({}, ())],
    "good": [(board(), ())],
    "xid 79": [(board(), ()), (board(), (xid(79),))],
    "odd text": [(board(), (xid(79, "\x1b[2J\ud800" * 50),))],
    "devices gone": [(board(), ()), (board(gpu__devices=()), ()), (board(gpu__devices=()), ())],
}


@pytest.mark.parametrize("story", STORIES)
def test_every_surface_takes_what_decide_concludes(story: str) -> None:
    """JSON, screens and the metrics page are made without an error, and no series is there twice."""
    given = after(STORIES[story])
    report = report_of(given)
    screens = [
        render_status(report),
        render_status(report, verbose=True),
        render_check(build_check(given)),
        render_history(build_history(given)),
    ]
    series = [
        line.rpartition(" ")[0] for line in exposition(given)[0].decode().splitlines() if line[0] != "#"
    ]

    assert [c for text in screens for c in text.replace("\n", "") if not c.isprintable()] == []
    assert len(screens[0].splitlines()) <= 23
    assert len(series) == len(set(series)) > 20


def test_an_applications_error_leaves_its_gpu_healthy() -> None:
    """Xid 31 is shown with its row, but no GPU is counted as faulty for it."""
    report = report_of(after([(board(), ()), (board(), (xid(31),)), (board(), ())]))

    assert [row.value for row in report.rows if row.state is State.WARNING] == ["Xid 31"]
    assert (report.gpus.healthy, report.gpus.faulty, report.taint.wanted) == (8, 0, [])
