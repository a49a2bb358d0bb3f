"""Cases of `agent.state`: here an unread signal is the fault."""

from typing import Any

from nodeagent.errors import ErrorKind
from nodeagent.signals import KernelLogStatus, StateFileStatus, Unread, WorkerStatus
from tests.decide.build import Case, bad, ok, unknown

LOG = KernelLogStatus(
    sequence=900, records=900, lost_records=0, refused_records=0, reopened=0, backfilled=True
)
BLIND = Unread(kind=ErrorKind.DENIED, reason="EPERM")


def board(**changed: Any) -> dict[str, Any]:
    """All three signals well, but for the changed ones; None takes one away."""
    signals: dict[str, Any] = {
        "state_file": StateFileStatus(writable=True),
        "kernel_log": LOG,
        "worker.host": WorkerStatus(state="idle"),
    }
    signals |= {name.replace("worker_host", "worker.host"): value for name, value in changed.items()}
    return {name: value for name, value in signals.items() if value is not None}


CASES = (
    Case(name="healthy", readings=board(), want=ok(value="well")),
    Case(
        name="at the limit: a state file was set aside, the new one is kept",
        readings=board(
            state_file=StateFileStatus(writable=True, set_aside="/var/lib/nodeagent/memory.json.bad")
        ),
        want=ok(),
    ),
    Case(
        name="over the limit: disk full",
        readings=board(state_file=StateFileStatus(writable=False, detail="ENOSPC")),
        want=bad(says="ENOSPC", cause="state file"),
    ),
    Case(
        name="read-only file system",
        readings=board(state_file=StateFileStatus(writable=False, detail="EROFS")),
        want=bad(says="EROFS"),
    ),
    Case(name="unread: the state file", readings=board(state_file=BLIND), want=bad(cause="state file")),
    Case(
        name="unread: the kernel log",
        readings=board(kernel_log=BLIND),
        want=bad(cause="kernel log", says="Xids may be missed: EPERM"),
    ),
    Case(
        name="a node without GPUs needs no kernel log",
        readings=board(kernel_log=BLIND),
        gpu_wanted=False,
        want=ok(),
    ),
    Case(
        name="a host read that hangs",
        readings=board(worker_host=WorkerStatus(state="stuck", pending_call="statvfs /mnt/nfs")),
        want=bad(cause="host reads", says="statvfs /mnt/nfs does not return"),
    ),
    Case(
        name="every trouble is named",
        readings=board(state_file=StateFileStatus(writable=False, detail="ENOSPC"), kernel_log=BLIND),
        want=bad(cause="state file", says="ENOSPC; the kernel log"),
    ),
    Case(
        name="not supported: no kernel log device on a node with GPUs",
        readings=board(kernel_log=Unread(kind=ErrorKind.ABSENT, reason="no /dev/kmsg")),
        want=bad(cause="kernel log"),
    ),
    Case(
        name="a signal still missing proves nothing",
        readings=board(state_file=None),
        want=unknown(says="state_file not read yet"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
