"""Cases of `fabric.state`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import FabricManager, FabricState
from nodeagent.model import NODE, NodeClass
from nodeagent.signals import Unread
from tests.decide.build import BAD, GPU, OK, UNKNOWN, Case, Want, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.fabric@{GPU}"
MANAGER = "fabric.manager"
GOOD_MASK = 0x51AA
"""Every field reports, and every field is well, each in its own sense."""
ALIVE = FabricManager(running=True, detail="process 7")
DEAD = FabricManager(running=False, detail="it is gone")


def fabric(
    state: int = 3, *, status: int = 0, mask: int | None = GOOD_MASK, summary: int | None = 1
) -> dict[str, object]:
    """A registration."""
    return {SIGNAL: FabricState(state=state, status=status, health_mask=mask, health_summary=summary)}


def masked(shift: int, width: int, value: int) -> int:
    """The good mask with one field changed."""
    return GOOD_MASK & ~(width << shift) | value << shift


CHECK = NodeClass.CHECK
CASES = (
    Case(name="healthy", readings=fabric(), want=ok(GPU, value="completed")),
    Case(
        name="healthy: the manager runs", readings={**fabric(), MANAGER: ALIVE},
        want=(Want(state=OK, target=GPU), Want(state=OK, target=NODE, value="manager runs")),
    ),
    Case(name="healthy: an older driver has no mask", readings=fabric(mask=None, summary=None), want=ok(GPU)),
    Case(
        name="at the limit: nothing of the mask is reported", readings=fabric(mask=0, summary=0), want=ok(GPU)
    ),
    Case(
        name="over the limit: in progress", readings=fabric(2, status=3, mask=0, summary=0),
        want=bad(GPU, cause="state", says="in progress"),
    ),
    Case(name="over the limit: not started", readings=fabric(1, mask=0), want=bad(GPU, says="not started")),
    Case(
        name="over the limit: it ended with an error", readings=fabric(status=16),
        want=bad(GPU, cause="status", says="NVML error 16"),
    ),
    Case(
        name="over the limit: the manager died, and the registration is a memory",
        readings={**fabric(), MANAGER: DEAD},
        want=(
            Want(state=UNKNOWN, target=GPU, says="before the manager died"),
            Want(state=BAD, target=NODE, cause="manager", says="does not run: it is gone"),
        ),
    ),
    Case(
        name="a manager that cannot be seen here is not judged",
        readings={**fabric(), MANAGER: Unread(kind=ErrorKind.ABSENT, reason="no service")}, want=ok(GPU),
    ),
    Case(
        name="mask: bandwidth, 1 is the fault", readings=fabric(mask=masked(0, 3, 1)),
        want=bad(GPU, cause="health", node_class=CHECK, value="bandwidth below nominal"),
    ),
    Case(
        name="mask: broken routes", readings=fabric(mask=masked(4, 3, 1)), want=bad(GPU, says="are broken")
    ),
    Case(
        name="mask: routes being rebuilt", readings=fabric(mask=masked(2, 3, 1)),
        want=bad(GPU, value="routes are being rebuilt"),
    ),
    Case(
        name="mask: access timeout", readings=fabric(mask=masked(6, 3, 1)),
        want=bad(GPU, says="access timeout"),
    ),
    Case(
        name="mask: configuration, 1 is good and 5 is not", readings=fabric(mask=masked(8, 15, 5)),
        want=bad(GPU, value="too few NVLinks"),
    ),
    Case(
        name="mask: partition, 1 is good and 2 is not", readings=fabric(mask=masked(12, 3, 2)),
        want=bad(GPU, value="no partition is assigned"),
    ),
    Case(
        name="mask: global manager, 1 is good and 2 is not", readings=fabric(mask=masked(14, 3, 2)),
        want=bad(GPU, says="not connected"),
    ),
    Case(
        name="summary: unhealthy", readings=fabric(summary=2),
        want=bad(GPU, value="unhealthy", node_class=CHECK),
    ),
    Case(name="summary: limited", readings=fabric(summary=3), want=bad(GPU, value="limited capacity")),
    Case(
        name="not supported: no fabric for this GPU, whatever a manager does",
        readings={**fabric(0, mask=0, summary=0), MANAGER: DEAD}, want=not_applicable(GPU),
    ),
    Case(name="recovered: completed again", readings={**fabric(), MANAGER: ALIVE}, want=(
        Want(state=OK, target=GPU), Want(state=OK, target=NODE))),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(GPU),
    ),
    Case(
        name="not supported by the driver",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="Not Supported")},
        want=not_applicable(GPU),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
