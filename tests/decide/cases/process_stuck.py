"""Cases of `process.stuck`: threads of processes with a GPU that do not wake up."""

from nodeagent.errors import ErrorKind
from nodeagent.host_signals import BlockedTask, GpuHolders
from nodeagent.signals import Unread
from tests.decide.build import UPTIME_SECONDS, Case, bad, not_applicable, ok, unknown

SIGNAL = "process.gpu_holders"


def holders(*blocked: BlockedTask, count: int = 3, refused: int = 0) -> GpuHolders:
    """What a scan found."""
    return GpuHolders(
        scanned_at_seconds=UPTIME_SECONDS - 1.0, holder_count=count, refused_count=refused, blocked=blocked
    )


def asleep(seconds: float, pid: int = 4711, thread: int = 4711) -> BlockedTask:
    """One thread that has slept for so long."""
    return BlockedTask(pid=pid, thread=thread, name="trainer", blocked_seconds=seconds)


CASES = (
    Case(name="healthy", readings={SIGNAL: holders()}, want=ok(value="0 of 3 processes with a GPU")),
    Case(name="healthy: nobody has a GPU", readings={SIGNAL: holders(count=0)}, want=ok()),
    Case(name="at the limit", readings={SIGNAL: holders(asleep(300.0))}, want=ok(limit="300 s")),
    Case(
        name="over the limit", readings={SIGNAL: holders(asleep(300.1))},
        want=bad(
            value="1 of 3 processes with a GPU",
            says="trainer (pid 4711) has a GPU open and sleeps uninterruptibly for 300 s",
        ),
    ),
    Case(
        name="two threads of one process are one process",
        readings={SIGNAL: holders(asleep(900.0), asleep(800.0, thread=4712))},
        want=bad(value="1 of 3 processes with a GPU"),
    ),
    Case(
        name="a configured limit", readings={SIGNAL: holders(asleep(90.0))}, limits={"seconds": 60.0},
        want=bad(),
    ),
    Case(name="recovered: it woke up", readings={SIGNAL: holders(asleep(2.0))}, want=ok()),
    Case(
        name="nobody's open files may be seen", readings={SIGNAL: holders(count=0, refused=40)},
        want=unknown(says="CAP_SYS_PTRACE"),
    ),
    Case(
        name="not supported", want=not_applicable(says="no NVIDIA device node"),
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="no NVIDIA device node in /dev")},
    ),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.DENIED, reason="EACCES")}, want=unknown(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
