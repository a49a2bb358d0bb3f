"""Cases of `kernel.hung_task`: by the kernel's counter, or by lines of its log."""

from nodeagent.errors import ErrorKind
from nodeagent.host_signals import KernelCount
from nodeagent.signals import KernelLogStatus, Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown
from tests.decide.fault_build import counted

LOG = KernelLogStatus(sequence=9, records=9, lost_records=0, refused_records=0, reopened=0, backfilled=True)
LINE = "INFO: task python3:4711 blocked for more than 120 seconds."
COUNT = {"kernel.hung_tasks": KernelCount(total_count=4)}
NO_COUNTER = {
    "kernel.hung_tasks": Unread(
        kind=ErrorKind.ABSENT, reason="no counter of hung tasks, lines in the kernel log only"
    ),
    "kernel_log": LOG,
}

CASES = (
    Case(name="healthy", readings=COUNT, want=ok(value="0 reports", limit="0 reports in 3600 s")),
    Case(
        name="at the limit: tolerated reports", readings=COUNT, limits={"reports": 2},
        memory=counted("hung tasks", count=2), want=ok(value="2 reports"),
    ),
    Case(
        name="over the limit", readings=COUNT, memory=counted("hung tasks"),
        want=bad(value="1 reports", says="the log has none of the lines"),
    ),
    Case(
        name="an older kernel: by the line", readings=NO_COUNTER, memory=counted("hung lines", text=LINE),
        want=bad(says=LINE),
    ),
    Case(name="an older kernel without a line", readings=NO_COUNTER, want=ok()),
    Case(
        name="recovered: the window is over", readings=COUNT, want=ok(),
        memory=counted("hung tasks", age_seconds=3601.0),
    ),
    Case(
        name="not supported: the search is off", want=not_applicable(says="is off"),
        readings={"kernel.hung_tasks": Unread(kind=ErrorKind.ABSENT, reason="the search is off")},
    ),
    Case(
        name="unread: blank after a good read",
        readings={"kernel.hung_tasks": Unread(kind=ErrorKind.DENIED, reason="EACCES")}, want=unknown(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
