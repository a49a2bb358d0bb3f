"""Cases of `ecc.uncorrected`."""

from nodeagent.errors import ErrorKind
from nodeagent.signals import EccCounters, Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.ecc@{GPU}"


def ecc(uncorrected: int, *, corrected: int = 0, aggregate: int = 0) -> EccCounters:
    """Counters with these errors."""
    return EccCounters(
        volatile_uncorrected=uncorrected,
        volatile_corrected=corrected,
        aggregate_uncorrected=aggregate,
        aggregate_corrected=0,
    )


CASES = (
    Case(name="healthy", readings={SIGNAL: ecc(0)}, want=ok(GPU, value="0 errors", limit="0 errors")),
    Case(name="at the limit", readings={SIGNAL: ecc(2)}, limits={"errors": 2}, want=ok(GPU)),
    Case(name="over the limit", readings={SIGNAL: ecc(2)}, want=bad(GPU, value="2 errors", limit="0 errors")),
    Case(
        name="over a raised limit",
        readings={SIGNAL: ecc(3)},
        limits={"errors": 2},
        want=bad(GPU, limit="2 errors"),
    ),
    Case(name="corrected errors are no fault", readings={SIGNAL: ecc(0, corrected=9000)}, want=ok(GPU)),
    Case(
        name="errors of an earlier driver load are no fault",
        readings={SIGNAL: ecc(0, aggregate=7)},
        want=ok(GPU),
    ),
    Case(
        name="unread: timeout",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(GPU),
    ),
    Case(
        name="unread: lost",
        readings={SIGNAL: Unread(kind=ErrorKind.LOST, reason="GPU is lost")},
        want=unknown(GPU),
    ),
    Case(
        name="unread: denied",
        readings={SIGNAL: Unread(kind=ErrorKind.DENIED, reason="EPERM")},
        want=unknown(GPU),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="ECC is off")},
        want=not_applicable(GPU, says="ECC is off"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
