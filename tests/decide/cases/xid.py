"""Cases of `xid`."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import GpuMemory, Hold, Memory, XidRecord
from nodeagent.model import NODE, Instant, NodeClass, State
from nodeagent.signals import GpuIdentity, GpuPresence, KernelLogStatus, Unread
from tests.decide.build import BOOT, GPU, OK, Case, Want, bad, not_applicable, ok, unknown

AT = Instant(boot_id=BOOT, monotonic_seconds=3000.0, wall_seconds=1_800_003_000.0)
SWITCH = "0000:87:00.0"
LOG = KernelLogStatus(sequence=9, records=9, lost_records=0, refused_records=0, reopened=0, backfilled=True)
PRESENT = {"kernel_log": LOG, f"gpu.presence@{GPU}": GpuPresence(reachable=True)}
RELEASED = Unread(kind=ErrorKind.ABSENT, reason="NVML is released")
AWAY = Unread(kind=ErrorKind.TIMEOUT, reason="no answer")


def record(number: int = 79, node_class: NodeClass = NodeClass.REBOOT, **more: object) -> XidRecord:
    """A standing record."""
    given: dict[str, object] = {
        "pci_address": GPU,
        "number": number,
        "node_class": node_class,
        "first": AT,
        "last": AT,
        "kernel_count": 1,
        "episodes": (AT,),
        "detail": "meaning",
        "text": "NVRM: the line",
    }
    return XidRecord(**{**given, **more})  # type: ignore[arg-type]


def memory(*records: XidRecord, **more: object) -> Memory:
    """Memory with these records."""
    return Memory(xids={f"{r.pci_address}|{r.number}": r for r in records}, **more)  # type: ignore[arg-type]


CASES = (
    Case(name="healthy", readings=PRESENT, want=ok(GPU, value="none")),
    Case(
        name="over the limit: a standing record speaks with number, meaning and line",
        readings=PRESENT,
        memory=memory(record()),
        want=bad(
            GPU,
            value="Xid 79",
            cause="xid 79",
            node_class=NodeClass.REBOOT,
            immediate=True,
            says="Xid 79: meaning. Evidence: NVRM: the line",
        ),
    ),
    Case(
        name="at the limit: class app is shown",
        readings=PRESENT,
        memory=memory(record(31, NodeClass.APP)),
        want=bad(GPU, value="Xid 31", node_class=NodeClass.APP),
    ),
    Case(
        name="below the limit: class ignore is not",
        readings=PRESENT,
        memory=memory(record(43, NodeClass.IGNORE)),
        want=ok(GPU),
    ),
    Case(
        name="the worst class speaks, the other is named",
        readings=PRESENT,
        memory=memory(record(31, NodeClass.APP), record(64, NodeClass.VENDOR)),
        want=bad(GPU, value="Xid 64", node_class=NodeClass.VENDOR, says="also Xid 31"),
    ),
    Case(
        name="a count is told once it is more than one",
        readings=PRESENT,
        memory=memory(record(kernel_count=7, nvml_count=3)),
        want=bad(GPU, says="7 times"),
    ),
    Case(
        name="a repeat is told",
        readings=PRESENT,
        memory=memory(record(episodes=(AT, AT))),
        want=bad(GPU, says="2 occasions"),
    ),
    Case(
        name="a held record says so",
        readings=PRESENT,
        memory=memory(record(109, NodeClass.APP, held=True)),
        want=bad(GPU, says="held until its window ends"),
    ),
    Case(
        name="a cleared record is good, with its reason",
        readings=PRESENT,
        memory=memory(record(cleared=AT, cleared_by="reset seen")),
        want=ok(GPU, says="Xid 79 cleared: reset seen"),
    ),
    Case(
        name="an injected record is good, and said",
        readings=PRESENT,
        memory=memory(record(149, NodeClass.IGNORE, injected=True)),
        want=ok(GPU, says="injected as a test"),
    ),
    Case(
        name="an SXid is for nvswitch.sxid",
        readings=PRESENT,
        memory=memory(record(12028, NodeClass.RESET, pci_address=SWITCH)),
        want=ok(GPU, value="none"),
    ),
    Case(
        name="a held switch without records is judged until it is let go",
        readings=PRESENT,
        memory=Memory(
            holds={
                f"xid|{SWITCH}": Hold(state=State.CRITICAL, since=AT, node_class=NodeClass.RESET),
            }
        ),
        want=(Want(state=OK, target=GPU), Want(state=OK, target=SWITCH)),
    ),
    Case(
        name="unread kernel log: good by NVML, and the gap is said",
        readings={**PRESENT, "kernel_log": AWAY},
        want=ok(GPU, says="the kernel log is not read (no answer)"),
    ),
    Case(
        name="unread NVML: good by the kernel log, and the gap is said",
        readings={"kernel_log": LOG, f"gpu.presence@{GPU}": AWAY},
        want=ok(GPU, says="NVML events are not read"),
    ),
    Case(
        name="both unread: unknown",
        readings={"kernel_log": AWAY, f"gpu.presence@{GPU}": AWAY},
        want=unknown(GPU, says="no source"),
    ),
    Case(
        name="both unread: a standing record stays bad",
        readings={"kernel_log": AWAY, f"gpu.presence@{GPU}": AWAY},
        memory=memory(record()),
        want=bad(GPU),
    ),
    Case(
        name="enumerated before the kernel log is read: good, and the gap is said",
        readings={"gpu.devices": (GpuIdentity(index=0, pci_address=GPU, uuid=None, name=None),)},
        want=ok(GPU, says="the kernel log is not read (not yet)"),
    ),
    Case(
        name="a remembered GPU that NVML enumerates no more keeps its row",
        readings={"kernel_log": LOG, "gpu.devices": AWAY},
        memory=Memory(gpus={GPU: GpuMemory(uuid="GPU-1")}),
        want=ok(GPU, says="NVML events are not read"),
    ),
    Case(
        name="not supported: NVML is released, the kernel log still speaks",
        readings={"kernel_log": LOG, f"gpu.presence@{GPU}": RELEASED},
        want=ok(GPU, says="NVML is released"),
    ),
    Case(name="no GPU known: one row for the node", readings={"kernel_log": LOG}, want=ok(NODE)),
    Case(name="missing on the board", readings={}, want=unknown(NODE, says="no source")),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
