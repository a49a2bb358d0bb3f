"""Cases of `network.annotation`: a refused value is told with pod, value and remedy."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.shape_memory import BadAnnotation, ShapeMemory
from nodeagent.signals import Unread
from nodeagent.traffic import PodList
from tests.decide.build import Case, bad, not_applicable, ok, unknown

READ = {"pods": PodList(source="file", pods=())}
FAST = BadAnnotation(
    uid="u1", namespace="team-a", name="loader", annotation="nodeagent.io/internet-egress-limit",
    value="'10Mbit'", remedy='it must be a Kubernetes Quantity in bits/s like "10G"',
    in_force="limit 20 Mbit/s (the pod's)",
)  # fmt: skip


def seen(*refused: BadAnnotation, listed: bool = True) -> Memory:
    """Memory after a list with these bad values."""
    return Memory(shape=ShapeMemory(budget_bits_per_second=10**9, listed=listed, bad=refused))


CASES = (
    Case(name="healthy", readings=READ, memory=seen(), want=ok(value="0 bad values", limit="0 bad values")),
    Case(
        name="at the limit: no pods at all",
        readings={"pods": PodList(source="api", pods=())},
        memory=seen(),
        want=ok(),
    ),
    Case(
        name="over the limit",
        readings=READ,
        memory=seen(FAST),
        want=bad(
            value="1 bad values",
            says="team-a/loader: nodeagent.io/internet-egress-limit is '10Mbit': it must be",
            cause="bad value",
            immediate=False,
        ),
    ),
    Case(
        name="what holds instead",
        readings=READ,
        memory=seen(FAST),
        want=bad(says="in force: limit 20 Mbit/s (the pod's)"),
    ),
    Case(
        name="several",
        readings=READ,
        memory=seen(FAST, FAST, FAST),
        want=bad(value="3 bad values", says="; 2 more"),
    ),
    Case(name="no budget", readings=READ, memory=Memory(), want=not_applicable(says="internet_budget")),
    Case(name="no complete list yet", readings=READ, memory=seen(listed=False), want=unknown()),
    Case(
        name="unread: denied",
        readings={"pods": Unread(kind=ErrorKind.DENIED, reason="403")},
        memory=seen(),
        want=unknown(says="403"),
    ),
    Case(
        name="not supported",
        readings={"pods": Unread(kind=ErrorKind.ABSENT, reason="no source of pods")},
        memory=seen(),
        want=not_applicable(says="no source of pods"),
    ),
    Case(name="missing on the board", readings={}, memory=seen(), want=unknown()),
)
