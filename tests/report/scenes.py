"""Nodes in the states that a person meets, as the inputs of every report."""

from __future__ import annotations

from nodeagent.errors import ErrorKind
from nodeagent.memory import Release, XidRecord
from nodeagent.model import NODE, Incident, Instant, NodeClass, State, Taint, Transition
from nodeagent.report.given import ReportInput
from nodeagent.signals import KernelLogStatus, PciGpus, StateFileStatus, Unread, WorkerStatus
from tests.report.build import (
    GPUS,
    PER_GPU,
    PER_NODE,
    TAINT,
    UPTIME_SECONDS,
    WALL_SECONDS,
    ago,
    given,
    memory,
    readings,
    row,
    rows,
)


def quiet() -> ReportInput:
    """Eight good GPUs."""
    return given()


def broken() -> ReportInput:
    """New ECC errors on one GPU, another not read, a third about to be raised."""
    bad = (
        row(
            "ecc.uncorrected",
            GPUS[3],
            State.CRITICAL,
            value="2 errors",
            node_class=NodeClass.RESET,
            sentence="2 uncorrected ECC errors since the driver was loaded, limit 0",
            since=ago(240),
            number=2.0,
        ),
        row(
            "gpu.recovery_action",
            GPUS[3],
            State.UNKNOWN,
            value="",
            since=ago(240),
            sentence="not read: NVML gave no answer in 10 s",
        ),
        row(
            "row_remap.pending",
            GPUS[5],
            State.PENDING,
            value="yes",
            held="1/3",
            since=ago(15),
            sentence="a row remap waits for the next GPU reset",
        ),
    )
    return given(
        State.CRITICAL,
        240,
        check_rows=rows(*bad),
        node_class=NodeClass.RESET,
        taints=(Taint(key=TAINT.key, value="ecc.uncorrected", effect="NoSchedule"),),
    )


def all_lost() -> ReportInput:
    """Every GPU fell off the bus; each check says it in own words."""
    bad = [
        row(
            check,
            pci,
            State.CRITICAL,
            node_class=NodeClass.REBOOT,
            since=ago(125 - i),
            value="lost",
            sentence=f"{words} ({i})",
        )
        for i, pci in enumerate(GPUS)
        for check, words in (
            ("gpu.lost", "NVML returned 15, GPU is lost"),
            ("xid", "Xid 79, fallen off the bus"),
        )
    ]
    bad.append(
        row(
            "gpu.count",
            NODE,
            State.CRITICAL,
            value="0 GPUs",
            node_class=NodeClass.REBOOT,
            since=ago(120),
            sentence="0 GPUs enumerated, 8 expected",
        )
    )
    unread = [
        row(check, pci, State.MUTED, value="")
        for check in ("ecc.uncorrected", "row_remap.pending")
        for pci in GPUS
    ]
    return given(
        State.CRITICAL,
        125,
        check_rows=rows(*bad, *unread),
        node_class=NodeClass.REBOOT,
        taints=(TAINT,),
        board=readings(gpu__devices=()),
    )


def driver_hangs() -> ReportInput:
    """A call into the driver does not return; nothing was wrong before."""
    muted = [row(check, pci, State.MUTED, value="") for check in PER_GPU for pci in GPUS]
    stuck = row(
        "driver.stuck",
        NODE,
        State.UNKNOWN,
        value="",
        since=ago(40),
        sentence="not read: nvmlDeviceGetTotalEccErrors on GPU 3 has not returned for 40 s",
    )
    worker = WorkerStatus(
        state="reading",
        pid=4211,
        pending_call="nvmlDeviceGetTotalEccErrors GPU 3",
        pending_since_seconds=UPTIME_SECONDS - 40,
        misses=2,
    )
    silent = Unread(kind=ErrorKind.TIMEOUT, reason="no answer in 10 s")
    return given(
        State.UNKNOWN,
        40,
        check_rows=rows(*muted, stuck),
        board=readings(worker__nvml=worker, gpu__devices=silent),
    )


def no_gpu() -> ReportInput:
    """A node without any GPU."""
    none = [
        row(check, NODE, State.NOT_APPLICABLE, value="", limit="", sentence="no NVIDIA GPU on this node")
        for check in (*PER_GPU, "driver.stuck", "gpu.count")
    ]
    board = readings(
        gpu__devices=None,
        gpu__pci=PciGpus(addresses=()),
        gpu__kernel_driver=None,
        worker__nvml=WorkerStatus(state="absent"),
    )
    return given(check_rows=rows(*none, gpus=()), board=board, remembered=memory(gpus={}, baseline=None))


def released() -> ReportInput:
    """An operator took NVML away for a reset; the fault that asked for it still stands."""
    away = [
        row(check, pci, State.NOT_APPLICABLE, value="", sentence="NVML is released")
        for check in PER_GPU
        for pci in GPUS
    ]
    away += [
        row(check, NODE, State.NOT_APPLICABLE, value="", sentence="NVML is released")
        for check in ("driver.stuck", "gpu.count")
    ]
    fault = row(
        "ecc.uncorrected",
        GPUS[3],
        State.NOT_APPLICABLE,
        value="",
        sentence="NVML is released",
        stale_state=State.CRITICAL,
        node_class=NodeClass.RESET,
        since=ago(7300),
    )
    release = Release(
        since=ago(180), until_seconds=UPTIME_SECONDS + 720, reason="nvidia-smi --gpu-reset", by_operator=True
    )
    return given(
        State.CRITICAL,
        7300,
        check_rows=rows(*away, fault),
        node_class=NodeClass.RESET,
        taints=(TAINT,),
        remembered=memory(release=release),
        board=readings(worker__nvml=WorkerStatus(state="released")),
    )


FALLEN = XidRecord(
    pci_address=GPUS[3],
    number=79,
    node_class=NodeClass.REBOOT,
    first=ago(60),
    last=ago(60),
    kernel_count=1,
    nvml_count=1,
    text="NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
)
CLEANUP = XidRecord(
    pci_address=GPUS[3],
    number=45,
    node_class=NodeClass.IGNORE,
    first=ago(59),
    last=ago(58),
    kernel_count=12,
    caused_by=79,
    text="NVRM: Xid ...: 45",
)


def two_xids() -> ReportInput:
    """One GPU fell off the bus; the Xid 45 after it is a consequence."""
    records = {f"{GPUS[3]}|{record.number}": record for record in (FALLEN, CLEANUP)}
    bad = (
        row(
            "xid",
            GPUS[3],
            State.CRITICAL,
            node_class=NodeClass.REBOOT,
            cause="xid 79",
            since=ago(60),
            sentence="Xid 79: GPU has fallen off the bus",
            value="xid 79",
        ),
        row(
            "gpu.lost",
            GPUS[3],
            State.CRITICAL,
            node_class=NodeClass.REBOOT,
            since=ago(45),
            value="lost",
            sentence="NVML returned 15, GPU is lost",
        ),
    )
    incident = Incident(
        id="i1", target=GPUS[3], root="xid 79", opened=ago(60), members=("xid 79", "xid 45", "gpu.lost")
    )
    return given(
        State.CRITICAL,
        60,
        check_rows=rows(*bad),
        node_class=NodeClass.REBOOT,
        taints=(TAINT,),
        incidents=(incident,),
        remembered=memory(xids=records),
    )


def starting() -> ReportInput:
    """The first seconds: nothing was read yet."""
    waiting = tuple(
        row(
            check,
            NODE,
            State.UNKNOWN,
            value="",
            limit="",
            read_at_seconds=None,
            since=ago(1),
            sentence=f"{check} not read yet",
        )
        for check in (*PER_GPU, *PER_NODE)
    )
    return given(
        State.UNKNOWN,
        1,
        check_rows=waiting,
        board={},
        remembered=memory(gpus={}, baseline=None),
        ready=False,
        cycle_number=1,
    )


def worn() -> ReportInput:
    """No hardware fault, but the agent itself has trouble of every kind."""
    log = KernelLogStatus(
        sequence=9, records=9, lost_records=1520, refused_records=1, reopened=1, backfilled=False
    )
    state = StateFileStatus(
        writable=False, detail="No space left on device", set_aside="/var/lib/nodeagent/memory.json.bad"
    )
    worker = WorkerStatus(
        state="backoff",
        restarts=3,
        error_cause="access_lost",
        error_detail="NVML returned 999 for every device",
    )
    row_ = row(
        "agent.state",
        NODE,
        State.WARNING,
        sentence="memory cannot be saved: No space left on device",
        since=ago(7200),
        value="",
    )
    return given(
        State.WARNING,
        7200,
        check_rows=rows(row_),
        inbox_dropped=17,
        config_error="[gpu] polls: no such key",
        board=readings(kernel_log=log, state_file=state, worker__nvml=worker),
        node_class=NodeClass.CHECK,
    )


SCENES = {
    "quiet": quiet,
    "broken": broken,
    "all_lost": all_lost,
    "driver_hangs": driver_hangs,
    "no_gpu": no_gpu,
    "released": released,
    "two_xids": two_xids,
    "starting": starting,
    "worn": worn,
}

HISTORY = (
    Transition(
        at=Instant(boot_id="b0", monotonic_seconds=90.0, wall_seconds=WALL_SECONDS - 700_000),
        check="clock.unsynced",
        target=NODE,
        previous=State.OK,
        state=State.WARNING,
        sentence="the clock is not disciplined",
    ),
    Transition(
        at=ago(3700),
        check="gpu.lost",
        target=GPUS[3],
        previous=State.OK,
        state=State.CRITICAL,
        sentence="NVML returned 15, GPU is lost",
    ),
    Transition(
        at=ago(30),
        check="gpu.lost",
        target=GPUS[3],
        previous=State.CRITICAL,
        state=State.OK,
        sentence="good again, and proven",
    ),
)
