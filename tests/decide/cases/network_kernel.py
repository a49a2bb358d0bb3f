"""Cases of `network.kernel`: one feature each; what was not tried is no verdict."""

from typing import Any

from nodeagent.errors import ErrorKind
from nodeagent.signals import Unread
from nodeagent.traffic import KernelFeature, KernelFeatures
from tests.decide.build import Case, bad, not_applicable, ok, unknown


def kernel(works: bool | None, **more: Any) -> dict[str, KernelFeatures]:
    """A kernel of one feature."""
    return {"net.kernel": KernelFeatures(features=(KernelFeature(name="ifb", works=works, **more),))}


CASES = (
    Case(
        name="healthy",
        readings=kernel(True, detail="IPv4 and IPv6"),
        want=ok(target="ifb", value="IPv4 and IPv6"),
    ),
    Case(
        name="at the limit: something that can be done without",
        readings=kernel(False, needed=False, detail="no cgroup v2"),
        want=not_applicable(target="ifb", says="no cgroup v2"),
    ),
    Case(
        name="over the limit: a needed feature is missing",
        readings=kernel(False, detail="no such module"),
        want=bad(target="ifb", value="does not work", says="no such module", cause="ifb"),
    ),
    Case(
        name="not tried",
        readings=kernel(None, detail="not tried: run it as root"),
        want=not_applicable(target="ifb", says="run it as root"),
    ),
    Case(
        name="unread: timeout",
        readings={"net.kernel": Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(says="no answer"),
    ),
    Case(
        name="not supported",
        readings={"net.kernel": Unread(kind=ErrorKind.ABSENT, reason="no source of pods")},
        want=not_applicable(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
