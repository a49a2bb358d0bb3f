"""Cases of `network.cluster_cidrs`: addresses of the cluster's outside the cluster set."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.signals import Unread
from nodeagent.traffic import LinkState
from nodeagent.traffic_memory import MarkMemory, Uncovered
from tests.decide.build import Case, bad, not_applicable, ok, unknown


def links(*, host_namespace: bool = True) -> dict[str, LinkState]:
    """Links as read."""
    state = LinkState(
        uplinks=(), on_link_prefixes=(), own_addresses=(), pod_links=(), host_namespace=host_namespace
    )
    return {"net.links": state}


def outside(*prefixes: str) -> Memory:
    """Memory with one address outside in each /24."""
    missing = tuple(
        Uncovered(address=f"{prefix}.7", owner="team-a/web", prefix=f"{prefix}.0/24") for prefix in prefixes
    )
    return Memory(marks=MarkMemory(uncovered=missing))


CASES = (
    Case(name="healthy", readings=links(), want=ok(value="0 addresses", limit="0 addresses")),
    Case(
        name="at the limit: pods not listed, own addresses covered",
        readings=links() | {"pods": Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=ok(),
    ),
    Case(
        name="over the limit",
        readings=links(),
        memory=outside("203.0.113"),
        want=bad(
            value="1 addresses",
            says="lacks 203.0.113.0/24: 203.0.113.7 of team-a/web is in no cluster prefix",
            cause="prefix",
        ),
    ),
    Case(
        name="a prefix is named once",
        readings=links(),
        memory=outside("203.0.113", "203.0.113"),
        want=bad(value="2 addresses", says="lacks 203.0.113.0/24: "),
    ),
    Case(
        name="many prefixes",
        readings=links(),
        memory=outside(*(f"203.0.{n}" for n in range(6))),
        want=bad(says="203.0.3.0/24 and 2 more"),
    ),
    Case(
        name="another network namespace",
        readings=links(host_namespace=False),
        memory=outside("203.0.113"),
        want=not_applicable(),
    ),
    Case(
        name="unread: timeout",
        readings={"net.links": Unread(kind=ErrorKind.TIMEOUT, reason="netlink")},
        memory=outside("203.0.113"),
        want=unknown(says="netlink"),
    ),
    Case(
        name="not supported",
        readings={"net.links": Unread(kind=ErrorKind.ABSENT, reason="network is off")},
        want=not_applicable(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
