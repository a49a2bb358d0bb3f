"""Cases of `driver.stuck`: who is at fault when NVML does not answer."""

from typing import Any

from nodeagent.errors import ErrorKind
from nodeagent.memory import Hold, Memory
from nodeagent.model import NodeClass, State
from nodeagent.signals import PciGpus, Unread, WorkerStatus
from tests.decide.build import BOOT, GPU, UPTIME_SECONDS, Case, bad, not_applicable, now, ok, unknown

SIGNAL = "worker.nvml"


def worker(state: str = "idle", *, pending_seconds: float | None = None, **more: Any) -> WorkerStatus:
    """A worker whose call has been in flight for so many seconds."""
    if pending_seconds is not None:
        more |= {
            "pending_call": "nvmlDeviceGetTotalEccErrors GPU 3",
            "pending_since_seconds": UPTIME_SECONDS - pending_seconds,
        }
    return WorkerStatus(state=state, pid=4711, **more)


def failed(kind: ErrorKind, cause: str, state: str = "idle") -> WorkerStatus:
    """A worker whose last read-all failed as a whole."""
    return worker(state, error_kind=kind, error_cause=cause, error_detail="NVML said so")


def bad_for(seconds: float) -> Memory:
    """Memory in which this check has been pending for so long."""
    since = now(UPTIME_SECONDS - seconds).at
    hold = Hold(state=State.PENDING, since=since, node_class=NodeClass.REBOOT, polls="b")
    return Memory(boot_id=BOOT, holds={"driver.stuck|node": hold})


CASES = (
    Case(name="healthy", readings={SIGNAL: worker()}, want=ok(value="answers")),
    Case(name="healthy while it reads", readings={SIGNAL: worker("reading", pending_seconds=0.2)}, want=ok()),
    Case(
        name="at the limit: a call pending for 10 s",
        readings={SIGNAL: worker("reading", pending_seconds=10.0)},
        want=ok(),
    ),
    Case(
        name="over the limit: a call pending for 11 s",
        readings={SIGNAL: worker("reading", pending_seconds=11.0)},
        want=bad(
            value="11 s",
            limit="10 s",
            says="nvmlDeviceGetTotalEccErrors GPU 3",
            cause="hung",
            immediate=False,
        ),
    ),
    Case(
        name="one missed deadline is bad, not yet immediate",
        readings={SIGNAL: worker("reading", misses=1, pending_seconds=3.0)},
        want=bad(immediate=False),
    ),
    Case(
        name="stuck needs no further poll",
        readings={SIGNAL: worker("stuck", misses=3, pending_seconds=31.0)},
        want=bad(node_class=NodeClass.REBOOT, cause="hung", immediate=True, says="3 deadlines missed"),
    ),
    Case(
        name="stuck without a known call",
        readings={SIGNAL: worker("stuck", misses=3)},
        want=bad(says="an NVML call does not return"),
    ),
    Case(
        name="no driver although the bus shows a GPU",
        readings={SIGNAL: failed(ErrorKind.ABSENT, "absent"), "gpu.pci": PciGpus(addresses=(GPU,))},
        want=bad(
            node_class=NodeClass.CHECK, cause="absent", says="the PCI bus shows 1 GPUs", immediate=False
        ),
    ),
    Case(
        name="library and module differ",
        readings={SIGNAL: failed(ErrorKind.INVALID, "mismatch")},
        want=bad(node_class=NodeClass.REBOOT, cause="mismatch", says="NVML said so", immediate=False),
    ),
    Case(
        name="a mismatch not yet held for long enough",
        readings={SIGNAL: failed(ErrorKind.INVALID, "mismatch")},
        memory=bad_for(299.0),
        want=bad(value="mismatch, 299 s", limit="300 s", immediate=False),
    ),
    Case(
        name="a mismatch held for long enough is raised at once",
        readings={SIGNAL: failed(ErrorKind.INVALID, "mismatch")},
        memory=bad_for(300.0),
        want=bad(value="mismatch, 300 s", immediate=True),
    ),
    Case(
        name="a configured time",
        readings={SIGNAL: failed(ErrorKind.BUSY, "not_ready")},
        memory=bad_for(60.0),
        limits={"unusable_seconds": 60.0},
        want=bad(limit="60 s", immediate=True),
    ),
    Case(
        name="not ready",
        readings={SIGNAL: failed(ErrorKind.BUSY, "not_ready")},
        want=bad(node_class=NodeClass.CHECK, cause="not_ready"),
    ),
    Case(
        name="the worker keeps dying",
        readings={SIGNAL: failed(ErrorKind.LOST, "died", "backoff")},
        want=bad(node_class=NodeClass.CHECK, cause="died"),
    ),
    Case(
        name="a cause this table does not know",
        readings={SIGNAL: failed(ErrorKind.INVALID, "new")},
        want=bad(node_class=NodeClass.CHECK, cause="other"),
    ),
    Case(
        name="an error kind without a cause",
        readings={SIGNAL: failed(ErrorKind.INVALID, "")},
        want=bad(cause="other"),
    ),
    Case(
        name="the agent lost its own access",
        readings={SIGNAL: failed(ErrorKind.DENIED, "access_lost")},
        want=unknown(cause="access_lost", says="the agent lost its access"),
    ),
    Case(name="released", readings={SIGNAL: worker("released")}, want=not_applicable(says="released")),
    Case(name="no worker wanted", readings={SIGNAL: worker("absent")}, want=not_applicable()),
    Case(
        name="starting proves nothing", readings={SIGNAL: worker("starting")}, want=unknown(says="starting")
    ),
    Case(name="waiting to start again proves nothing", readings={SIGNAL: worker("backoff")}, want=unknown()),
    Case(
        name="unread: timeout",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(),
    ),
    Case(
        name="unread: lost", readings={SIGNAL: Unread(kind=ErrorKind.LOST, reason="it died")}, want=unknown()
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="no worker here")},
        want=not_applicable(),
    ),
    Case(name="missing on the board", readings={}, want=unknown(says="not read yet")),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
