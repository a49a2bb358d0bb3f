"""Cases of `row_remap.failed`."""

from nodeagent.errors import ErrorKind
from nodeagent.signals import RowRemap, Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.row_remap@{GPU}"


def rows(*, failed: bool = False, uncorrected: int = 0) -> RowRemap:
    """Remapped rows of one GPU."""
    return RowRemap(corrected_rows=0, uncorrected_rows=uncorrected, pending=False, failed=failed)


CASES = (
    Case(name="healthy", readings={SIGNAL: rows()}, want=ok(GPU, value="none failed")),
    Case(
        name="at the limit: many were remapped, none failed",
        readings={SIGNAL: rows(uncorrected=512)},
        want=ok(GPU),
    ),
    Case(
        name="over the limit: one failed",
        readings={SIGNAL: rows(failed=True)},
        want=bad(GPU, value="failed"),
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
    Case(name="recovered: good again", readings={SIGNAL: rows()}, want=ok(GPU)),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
