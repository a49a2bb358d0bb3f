"""Cases of `gpu.persistence`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import PersistenceMode
from nodeagent.signals import Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.persistence@{GPU}"


CASES = (
    Case(name="healthy", readings={SIGNAL: PersistenceMode(enabled=True)}, want=ok(GPU, value="on")),
    Case(
        name="at the limit: on is all that is asked",
        readings={SIGNAL: PersistenceMode(enabled=True)},
        want=ok(GPU),
    ),
    Case(
        name="over the limit: off",
        readings={SIGNAL: PersistenceMode(enabled=False)},
        want=bad(GPU, value="off"),
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
    Case(name="recovered: good again", readings={SIGNAL: PersistenceMode(enabled=True)}, want=ok(GPU)),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
