"""Cases of `runtime.down`: it answers, or not."""

from nodeagent.errors import ErrorKind
from nodeagent.host_signals import RuntimeHealth
from nodeagent.signals import Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown

SIGNAL, SOCKET = "runtime.health", "/run/containerd/containerd.sock"
UP = RuntimeHealth(healthy=True, detail="answers", socket=SOCKET)
DOWN = RuntimeHealth(healthy=False, detail="no answer in 5 s", socket=SOCKET)

CASES = (
    Case(name="healthy", readings={SIGNAL: UP}, want=ok(value="answers")),
    Case(name="at the limit: any greeting is one", readings={SIGNAL: UP}, want=ok(limit="answers")),
    Case(
        name="over the limit: no answer", readings={SIGNAL: DOWN},
        want=bad(value="failing", says=f"does not answer at {SOCKET}: no answer in 5 s"),
    ),
    Case(
        name="gone", want=bad(says="connection refused"),
        readings={SIGNAL: RuntimeHealth(healthy=False, detail="connection refused", socket=SOCKET)},
    ),
    Case(name="recovered", readings={SIGNAL: UP}, want=ok()),
    Case(
        name="not supported", want=not_applicable(says="no kubelet"),
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="no CRI socket, and no kubelet is installed")},
    ),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="the worker was replaced")}, want=unknown(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
