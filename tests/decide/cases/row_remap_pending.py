"""Cases of `row_remap.pending`."""

from nodeagent.errors import ErrorKind
from nodeagent.signals import RowRemap, Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.row_remap@{GPU}"


def rows(*, pending: bool = False, uncorrected: int = 0) -> RowRemap:
    """Remapped rows of one GPU."""
    return RowRemap(corrected_rows=0, uncorrected_rows=uncorrected, pending=pending, failed=False)


CASES = (
    Case(name="healthy", readings={SIGNAL: rows()}, want=ok(GPU, value="none pending")),
    Case(
        name="at the limit: rows were remapped, none waits",
        readings={SIGNAL: rows(uncorrected=12)},
        want=ok(GPU),
    ),
    Case(
        name="over the limit: one waits",
        readings={SIGNAL: rows(pending=True)},
        want=bad(GPU, value="pending"),
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
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="MIG is on")},
        want=not_applicable(GPU),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
