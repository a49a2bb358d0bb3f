"""Cases of `retired_pages`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import RetiredPages
from nodeagent.model import NodeClass
from nodeagent.signals import Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.retired_pages@{GPU}"


def pages(single: int = 0, double: int = 0, *, pending: bool = False) -> RetiredPages:
    """Retired pages of one GPU."""
    return RetiredPages(single_bit_pages=single, double_bit_pages=double, pending=pending)


CASES = (
    Case(name="healthy", readings={SIGNAL: pages()}, want=ok(GPU, value="0 pages")),
    Case(name="at the limit: 62 of both kinds", readings={SIGNAL: pages(50, 12)}, want=ok(GPU)),
    Case(
        name="over the limit: 63",
        readings={SIGNAL: pages(50, 13)},
        want=bad(GPU, value="63 pages", cause="many"),
    ),
    Case(
        name="over the limit: one waits for a reset",
        readings={SIGNAL: pages(1, pending=True)},
        want=bad(GPU, value="1 pages, one pending", node_class=NodeClass.RESET, cause="pending"),
    ),
    Case(
        name="over the limit: many and one waiting is the vendor's",
        readings={SIGNAL: pages(70, pending=True)},
        want=bad(GPU, cause="many"),
    ),
    Case(
        name="over the limit that the operator set",
        readings={SIGNAL: pages(3)}, limits={"pages": 2}, want=bad(GPU, limit="2 pages"),
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
    Case(name="recovered: good again", readings={SIGNAL: pages()}, want=ok(GPU)),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
