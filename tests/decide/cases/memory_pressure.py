"""Cases of `memory.pressure`: tasks wait, and little is available."""

from nodeagent.errors import ErrorKind
from nodeagent.host_signals import MemoryPressure
from nodeagent.signals import Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown

GIB_BYTES = 1 << 30
SIGNAL = "memory.pressure"


def memory(some: float, full: float, available_gib: float = 5.0) -> MemoryPressure:
    """Pressure on a node of 100 GiB."""
    return MemoryPressure(
        some_percent=some, full_percent=full, available_bytes=int(available_gib * GIB_BYTES),
        size_bytes=100 * GIB_BYTES,
    )


CASES = (
    Case(
        name="healthy", readings={SIGNAL: memory(0.0, 0.0, 80.0)},
        want=ok(value="some 0 %, full 0 %, 80.0 % available"),
    ),
    Case(name="at the limit", readings={SIGNAL: memory(40.0, 10.0)}, want=ok()),
    Case(name="over the limit", readings={SIGNAL: memory(40.1, 0.0)}, want=bad(says="5.0 GiB are available")),
    Case(name="all tasks wait", readings={SIGNAL: memory(12.0, 10.1)}, want=bad()),
    Case(
        name="a container fights with its own limit", readings={SIGNAL: memory(90.0, 60.0, 10.0)}, want=ok(),
    ),
    Case(name="little is available, and nobody waits", readings={SIGNAL: memory(0.0, 0.0, 0.5)}, want=ok()),
    Case(
        name="a configured limit", readings={SIGNAL: memory(30.0, 0.0)}, limits={"some_percent": 20.0},
        want=bad(),
    ),
    Case(name="recovered", readings={SIGNAL: memory(3.0, 0.0, 40.0)}, want=ok()),
    Case(
        name="not supported", want=not_applicable(says="psi=1"),
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="no pressure is measured; boot with psi=1")},
    ),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.DENIED, reason="EACCES")}, want=unknown(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
