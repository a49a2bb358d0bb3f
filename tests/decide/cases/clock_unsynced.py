"""Cases of `clock.unsynced`."""

from nodeagent.errors import ErrorKind
from nodeagent.signals import ClockSync, Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown


def clock(max_error_seconds: float, *, synchronized: bool = True) -> ClockSync:
    """What the kernel says of the wall clock."""
    return ClockSync(
        synchronized=synchronized, estimated_error_seconds=0.001, max_error_seconds=max_error_seconds
    )


CASES = (
    Case(name="healthy", readings={"clock.sync": clock(0.02)}, want=ok(value="0.020 s", limit="5 s")),
    Case(
        name="a quiet time service lets the error grow to a second",
        readings={"clock.sync": clock(1.1)},
        want=ok(),
    ),
    Case(name="at the limit", readings={"clock.sync": clock(5.0)}, want=ok()),
    Case(name="over the limit: error too large", readings={"clock.sync": clock(5.1)}, want=bad(says="5.1 s")),
    Case(
        name="over the limit: nobody disciplines the clock",
        readings={"clock.sync": clock(16.0, synchronized=False)},
        want=bad(says="no time service"),
    ),
    Case(
        name="a configured error",
        readings={"clock.sync": clock(0.2)},
        limits={"max_error_seconds": 0.1},
        want=bad(limit="0.1 s"),
    ),
    Case(
        name="unread: denied",
        readings={"clock.sync": Unread(kind=ErrorKind.DENIED, reason="EPERM")},
        want=unknown(says="EPERM"),
    ),
    Case(
        name="unread: invalid",
        readings={"clock.sync": Unread(kind=ErrorKind.INVALID, reason="odd answer")},
        want=unknown(),
    ),
    Case(
        name="not supported",
        readings={"clock.sync": Unread(kind=ErrorKind.ABSENT, reason="no adjtimex")},
        want=not_applicable(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
