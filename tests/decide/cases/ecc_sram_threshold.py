"""Cases of `ecc.sram_threshold`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import SramErrors
from nodeagent.signals import Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.sram@{GPU}"


def sram(errors: int = 0, *, exceeded: bool = False) -> SramErrors:
    """SRAM errors of one board."""
    return SramErrors(threshold_exceeded=exceeded, aggregate_uncorrected=errors)


CASES = (
    Case(name="healthy", readings={SIGNAL: sram()}, want=ok(GPU, value="0 errors, threshold not exceeded")),
    Case(name="at the limit: errors, but the board tolerates them", readings={SIGNAL: sram(9)}, want=ok(GPU)),
    Case(
        name="over the limit: the flag is set",
        readings={SIGNAL: sram(10, exceeded=True)},
        want=bad(GPU, value="threshold exceeded", says="10 uncorrected"),
    ),
    Case(
        name="unread: timeout",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(GPU),
    ),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.LOST, reason="GPU is lost")},
        want=unknown(GPU),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="Not Supported")},
        want=not_applicable(GPU),
    ),
    Case(name="recovered: good again", readings={SIGNAL: sram()}, want=ok(GPU)),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
