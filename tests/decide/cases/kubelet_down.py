"""Cases of `kubelet.down`."""

from nodeagent.errors import ErrorKind
from nodeagent.signals import KubeletHealth, Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown

CASES = (
    Case(name="healthy", readings={"kubelet.health": KubeletHealth(healthy=True, detail="ok")}, want=ok()),
    Case(
        name="at the limit: healthy in other words",
        readings={"kubelet.health": KubeletHealth(healthy=True, detail="ok, slow")},
        want=ok(),
    ),
    Case(
        name="over the limit: connection refused",
        readings={"kubelet.health": KubeletHealth(healthy=False, detail="connection refused")},
        want=bad(says="connection refused", value="failing"),
    ),
    Case(
        name="unhealthy without a word",
        readings={"kubelet.health": KubeletHealth(healthy=False, detail="")},
        want=bad(says="no detail"),
    ),
    Case(
        name="unread: timeout",
        readings={"kubelet.health": Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(),
    ),
    Case(
        name="unread: invalid",
        readings={"kubelet.health": Unread(kind=ErrorKind.INVALID, reason="no HTTP")},
        want=unknown(),
    ),
    Case(
        name="not supported",
        readings={"kubelet.health": Unread(kind=ErrorKind.ABSENT, reason="no kubelet here")},
        want=not_applicable(says="no kubelet here"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
