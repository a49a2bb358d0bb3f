"""Cases of `neighbour.full`: entries that the kernel's limit counts, and neighbours it refused."""

from typing import Any

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.net_signals import NeighbourTable
from nodeagent.signals import Unread
from tests.decide.build import OK, Case, Want, bad, not_applicable, ok, unknown
from tests.decide.links_build import grown, remembered

SIGNAL = "neighbour.table@ipv4"


def table(entries_count: int, exempt_count: int = 0, limit_count: int = 1000) -> NeighbourTable:
    """A table with so many entries."""
    return NeighbourTable(
        entries_count=entries_count, exempt_count=exempt_count, limit_count=limit_count, overflow_count=7
    )


def read(*counts: int) -> dict[str, Any]:
    """The table of IPv4."""
    return {SIGNAL: table(*counts)}


def refused(*steps: int) -> Memory:
    """So many refusals at the last reads, a minute apart."""
    return remembered(growths={"neighbour overflows|ipv4": grown(*steps)})


CASES = (
    Case(name="healthy", readings=read(30), memory=refused(0), want=ok("ipv4", value="3.0 %, 30 of 1000")),
    Case(name="healthy: the first count of refusals is a baseline", readings=read(30), want=ok("ipv4")),
    Case(name="at the limit", readings=read(800), want=ok("ipv4", limit="80 %, 0 refused in 5 min")),
    Case(
        name="over the limit", readings=read(801),
        want=bad("ipv4", cause="full", says="801 of 1000 ipv4 neighbours"),
    ),
    Case(
        name="what a control plane put there does not count", readings=read(2500, 2400),
        want=ok("ipv4", value="10.0 %, 100 of 1000"),
    ),
    Case(name="more exempt than entries: pods came and went", readings=read(200, 300), want=ok("ipv4")),
    Case(
        name="room again, but one was refused a minute ago", readings=read(30), memory=refused(2, 0),
        want=bad("ipv4", cause="overflow", says="2 neighbours refused in 5 min"),
    ),
    Case(
        name="a limit of the operator's", readings=read(300), limits={"percent": 20.0}, want=bad("ipv4"),
    ),
    Case(
        name="each family has a table of its own",
        readings={SIGNAL: table(900), "neighbour.table@ipv6": table(9)},
        want=(*bad("ipv4"), Want(state=OK, target="ipv6")),
    ),
    Case(
        name="recovered: the refusals are older than the window", readings=read(30),
        memory=refused(2, 0, 0, 0, 0, 0, 0), want=ok("ipv4"),
    ),
    Case(name="a table without a limit", readings=read(30, 0, 0), want=not_applicable("ipv4")),
    Case(
        name="unread: blank after a good read", memory=refused(0),
        readings={SIGNAL: Unread(kind=ErrorKind.BUSY, reason="interrupted")}, want=unknown("ipv4"),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="not the first network namespace")},
        want=not_applicable("ipv4"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
