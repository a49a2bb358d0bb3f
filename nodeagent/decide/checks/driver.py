"""`driver.stuck`: can the agent talk to the NVIDIA driver at all, and if not, whose fault is it?

A hung call was already counted by the worker's own deadlines, so it needs no further hold. The other
causes look the same as a driver upgrade under way and are held for minutes: by the clock, because a
worker that cannot start is asked ever more rarely, so that polls say little. When the agent alone lost
its access, the driver is unknown, never bad.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable, unknown
from nodeagent.memory import Hold
from nodeagent.model import NODE, Finding, NodeClass, State
from nodeagent.signals import PciGpus, Reading, WorkerStatus

CAUSES: dict[str, tuple[NodeClass, str]] = {
    "absent": (NodeClass.CHECK, "no NVIDIA driver answers"),
    "mismatch": (NodeClass.REBOOT, "the driver's library and kernel module differ in version"),
    "not_ready": (NodeClass.CHECK, "the driver is not ready"),
    "died": (NodeClass.CHECK, "the process that reads NVML keeps dying"),
    "other": (NodeClass.CHECK, "NVML cannot be used"),
}
"""Named cause of a failed read-all -> class and sentence; an upgrade in place explains most of them."""


def judge(given: CheckInput) -> Iterator[Finding]:
    """One finding on the node from the state of the NVML worker; number is seconds a call is pending."""
    for target, worker, reading in given.values("worker.nvml"):
        if worker.state in ("released", "absent"):
            yield not_applicable(target, f"NVML is {worker.state}")
        elif worker.error_cause == "access_lost":
            said = f"the agent lost its access to the GPUs: {worker.error_detail or 'no detail'}"
            yield unknown(target, reading, said, cause="access_lost")
        elif worker.state == "stuck":
            yield _hung(given, worker, reading, immediate=True)
        elif worker.error_kind is not None or worker.error_cause:
            yield _failed(given, worker, reading)
        elif worker.misses or _pending_seconds(given, worker) > given.limits["pending_seconds"]:
            yield _hung(given, worker, reading, immediate=False)
        elif worker.state in ("idle", "reading"):
            yield good(target, reading, value="answers", number=0.0)
        else:
            yield unknown(target, reading, f"the NVML worker is in state {worker.state}")


def _pending_seconds(given: CheckInput, worker: WorkerStatus) -> float:
    if worker.pending_since_seconds is None:
        return 0.0
    return max(0.0, given.snapshot.now.at.monotonic_seconds - worker.pending_since_seconds)


def _hung(given: CheckInput, worker: WorkerStatus, reading: Reading, *, immediate: bool) -> Finding:
    seconds = _pending_seconds(given, worker)
    call = worker.pending_call or "an NVML call"
    return bad(
        NODE, reading, f"{call} does not return, {worker.misses} deadlines missed",
        value=f"{seconds:.0f} s", limit=f"{given.limits['pending_seconds']:g} s", number=seconds,
        node_class=NodeClass.REBOOT, cause="hung", immediate=immediate,
    )


def _failed(given: CheckInput, worker: WorkerStatus, reading: Reading) -> Finding:
    cause = worker.error_cause if worker.error_cause in CAUSES else "other"
    node_class, sentence = CAUSES[cause]
    limit_seconds = given.limits["unusable_seconds"]
    hold = given.memory.holds.get(f"{CHECKS[0].id}|{NODE}")
    failing = hold if hold is not None and not hold.good_polls else None
    seconds = given.snapshot.now.age_seconds(failing.since) if failing is not None else 0.0
    is_due = failing is not None and (failing.state is not State.PENDING or seconds >= limit_seconds)
    if is_due and _cause_seconds(given, failing, cause) < limit_seconds:
        node_class = NodeClass.CHECK  # an upgrade goes through several causes; each has its own time
    pci = given.value("gpu.pci", NODE)
    on_bus = f"; the PCI bus shows {len(pci.addresses)} GPUs" if isinstance(pci, PciGpus) else ""
    detail = f": {worker.error_detail}" if worker.error_detail else ""
    return bad(
        NODE, reading, f"{sentence}{detail}{on_bus}", value=f"{cause}, {seconds:.0f} s",
        limit=f"{limit_seconds:g} s", node_class=node_class, cause=cause,
        immediate=is_due and failing is not None and failing.state is State.PENDING,
    )


def _cause_seconds(given: CheckInput, hold: Hold | None, cause: str) -> float:
    if hold is None or hold.cause != cause:
        return 0.0
    return given.snapshot.now.age_seconds(hold.cause_since or hold.since)


CHECKS = (
    Check(
        id="driver.stuck",
        title="NVIDIA driver answers",
        family="driver",
        signals=("worker.nvml",),
        source="the NVML worker: deadlines per read-all and its error as a whole",
        node_class=NodeClass.REBOOT,
        judge=judge,
        limits=(
            Limit(
                name="pending_seconds", unit="s", default=10.0,
                meaning="A call in flight for longer shows as pending; the worker's deadlines make it stuck.",
            ),
            Limit(
                name="unusable_seconds", unit="s", default=300.0,
                meaning="Any other cause is raised after this time; a driver upgrade begins like one.",
            ),
        ),
        # Time raises, not polls: see above. A driver that answers again is its own proof.
        hold=HoldRule(
            bad_polls=100, of_polls=100, proof="reads",
            raised_words="a hung call at the third missed deadline; other causes after unusable_seconds",
        ),
        common_cause="driver",
    ),
)
