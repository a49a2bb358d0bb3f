"""Cases of `oom.kills`: those of containers by number, those of the node one by one."""

from nodeagent.errors import ErrorKind
from nodeagent.host_signals import KernelCount
from nodeagent.signals import Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown
from tests.decide.fault_build import counted

READ = {"memory.oom_kills": KernelCount(total_count=30)}
LINE = "Out of memory: Killed process 4711 (trainer)"

CASES = (
    Case(name="healthy", readings=READ, want=ok(limit="20 kills in 3600 s")),
    Case(
        name="at the limit: containers at theirs", readings=READ, memory=counted("oom kills", count=20),
        want=ok(value="20 kills, 0 for want of memory of the node"),
    ),
    Case(
        name="over the limit", readings=READ, memory=counted("oom kills", count=21),
        want=bad(cause="containers", says="21 processes were killed"),
    ),
    Case(
        name="the node itself ran out", readings=READ, memory=counted("oom lines", text=LINE),
        want=bad(cause="node", says=f"the node ran out of memory: {LINE}"),
    ),
    Case(
        name="a tolerated kill of the node", readings=READ, memory=counted("oom lines", text=LINE),
        limits={"node_kills": 1}, want=ok(),
    ),
    Case(
        name="recovered: the window is over", readings=READ, want=ok(),
        memory=counted("oom kills", count=50, age_seconds=3601.0),
    ),
    Case(
        name="not supported",
        readings={"memory.oom_kills": Unread(kind=ErrorKind.ABSENT, reason="kills are not counted")},
        want=not_applicable(),
    ),
    Case(
        name="unread: blank after a good read",
        readings={"memory.oom_kills": Unread(kind=ErrorKind.DENIED, reason="EACCES")}, want=unknown(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
