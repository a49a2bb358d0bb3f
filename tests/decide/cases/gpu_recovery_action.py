"""Cases of `gpu.recovery_action`: every value of the driver's field, and one it does not have yet."""

from nodeagent.errors import ErrorKind
from nodeagent.model import NodeClass
from nodeagent.signals import RecoveryAction, Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.recovery_action@{GPU}"


def _asked(value: int, node_class: NodeClass, words: str) -> Case:
    return Case(
        name=f"the driver asks for {value}",
        readings={SIGNAL: RecoveryAction(value=value)},
        want=bad(GPU, node_class=node_class, value=words, says=words, cause=f"recovery action {value}"),
    )


CASES = (
    Case(name="healthy", readings={SIGNAL: RecoveryAction(value=0)}, want=ok(GPU, value="None")),
    Case(
        name="at the limit: none asked",
        readings={SIGNAL: RecoveryAction(value=0)},
        want=ok(GPU, limit="None"),
    ),
    Case(
        name="over the limit: a reset is asked for",
        readings={SIGNAL: RecoveryAction(value=1)},
        want=bad(GPU, node_class=NodeClass.RESET),
    ),
    _asked(1, NodeClass.RESET, "GPU Reset Required"),
    _asked(2, NodeClass.REBOOT, "Node Reboot Required"),
    _asked(3, NodeClass.CHECK, "Drain P2P"),
    _asked(4, NodeClass.RESET, "Drain and Reset"),
    _asked(5, NodeClass.CHECK, "Recover IMEX Domain"),
    _asked(6, NodeClass.REBOOT, "Bus Reset"),
    _asked(7, NodeClass.REBOOT, "System Reboot"),
    _asked(8, NodeClass.CHECK, "unknown action 8, newer than this agent"),
    _asked(-1, NodeClass.CHECK, "unknown action -1, newer than this agent"),
    Case(
        name="unread: timeout",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(GPU),
    ),
    Case(
        name="unread: lost",
        readings={SIGNAL: Unread(kind=ErrorKind.LOST, reason="GPU is lost")},
        want=unknown(GPU, says="GPU is lost"),
    ),
    Case(
        name="unread: invalid",
        readings={SIGNAL: Unread(kind=ErrorKind.INVALID, reason="no number")},
        want=unknown(GPU),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="not supported")},
        want=not_applicable(GPU, says="not supported"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
