"""Cases of `net.unreachable`: targets that the operator named, else gateways as the kernel knows them."""

from nodeagent.errors import ErrorKind
from nodeagent.net_signals import Gateway, TcpTarget
from nodeagent.signals import Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown

GATEWAY = "10.0.0.1%eth0"
TARGET = "10.0.0.9:443"
SIGNAL, TCP = f"net.gateway@{GATEWAY}", f"net.target@{TARGET}"


def gateway(state: str, used_seconds: float = 1.0) -> Gateway:
    """An entry that was last used so long ago."""
    return Gateway(state=state, used_seconds=used_seconds, confirmed_seconds=900.0)


CASES = (
    Case(name="healthy", readings={SIGNAL: gateway("reachable")}, want=ok(GATEWAY, value="reachable")),
    Case(
        name="healthy: an accepted connection",
        readings={TCP: TcpTarget(outcome="accepted", answered_seconds=0.0123)},
        want=ok(TARGET, value="accepts in 12.3 ms", limit="accepts in 2 s"),
    ),
    Case(name="at the limit: a stale entry is as it should be",
         readings={SIGNAL: gateway("stale", 90_000.0)}, want=ok(GATEWAY)),
    Case(name="at the limit: being asked just now", readings={SIGNAL: gateway("probe")}, want=ok(GATEWAY)),
    Case(name="at the limit: an entry that a person put there",
         readings={SIGNAL: gateway("permanent")}, want=ok(GATEWAY)),
    Case(
        name="over the limit: it does not answer", readings={SIGNAL: gateway("failed")},
        want=bad(GATEWAY, cause="gateway", says="the gateway 10.0.0.1 on eth0 does not answer (FAILED)"),
    ),
    Case(name="over the limit: it is asked in vain", readings={SIGNAL: gateway("incomplete")},
         want=bad(GATEWAY)),
    Case(name="a failure at the end of its time", readings={SIGNAL: gateway("failed", 120.0)},
         want=bad(GATEWAY)),
    Case(
        name="a failure that nobody has met lately says nothing of now",
        readings={SIGNAL: gateway("failed", 9000.0)}, want=not_applicable(GATEWAY, says="150 min"),
    ),
    Case(name="nobody uses it", readings={SIGNAL: Gateway(state="none")}, want=not_applicable(GATEWAY)),
    Case(
        name="a target that refuses",
        readings={TCP: TcpTarget(outcome="refused", detail="connection refused")},
        want=bad(TARGET, cause="refused", says="answers, but nothing listens there"),
    ),
    Case(
        name="a target that swallows", readings={TCP: TcpTarget(outcome="silent", detail="no answer in 2 s")},
        want=bad(TARGET, cause="silent", says="does not answer: no answer in 2 s"),
    ),
    Case(
        name="a target without a way to it",
        readings={TCP: TcpTarget(outcome="unreachable", detail="no route to host")},
        want=bad(TARGET, cause="unreachable", says="no route to host"),
    ),
    Case(
        name="a target whose name does not resolve",
        readings={TCP: TcpTarget(outcome="unnamed", detail="Name or service not known")},
        want=bad(TARGET, cause="unnamed", says="does not resolve"),
    ),
    Case(name="recovered", readings={SIGNAL: gateway("reachable", 0.0)}, want=ok(GATEWAY)),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")}, want=unknown(GATEWAY),
    ),
    Case(
        name="a target that is none",
        readings={"net.target@foo": Unread(kind=ErrorKind.INVALID, reason="'foo' is not HOST:PORT")},
        want=unknown("foo", says="HOST:PORT"),
    ),
    Case(
        name="not supported: no default route",
        readings={"net.gateway": Unread(kind=ErrorKind.ABSENT, reason="no default route")},
        want=not_applicable(says="no default route"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
