"""Cases of `conntrack.full`: a share in use, and what was lost for want of room."""

from typing import Any

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.net_signals import ConntrackTable
from nodeagent.signals import Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown
from tests.decide.links_build import grown, remembered


def read(entries_count: int, limit_count: int = 1000) -> dict[str, Any]:
    """A table with so many entries."""
    table = ConntrackTable(entries_count=entries_count, limit_count=limit_count, dropped_count=7)
    return {"conntrack": table}


def dropped(*steps: int) -> Memory:
    """So many drops at the last reads, a minute apart."""
    return remembered(growths={"conntrack dropped|node": grown(*steps)})


CASES = (
    Case(name="healthy", readings=read(120), memory=dropped(0), want=ok(value="12.0 %, 120 of 1000")),
    Case(name="healthy: the first count of drops is a baseline", readings=read(120), want=ok()),
    Case(name="at the limit", readings=read(850), want=ok(limit="85 %, 0 dropped in 5 min")),
    Case(name="over the limit", readings=read(851), want=bad(cause="full", says="851 of 1000")),
    Case(
        name="room again, but it was full a minute ago", readings=read(120), memory=dropped(3, 0),
        want=bad(cause="dropped", says="3 connections lost in 5 min"),
    ),
    Case(
        name="some drops are tolerated by order", readings=read(120), memory=dropped(3),
        limits={"dropped_count": 3}, want=ok(),
    ),
    Case(
        name="a share of the operator's", readings=read(851), limits={"percent": 95.0}, want=ok(),
    ),
    Case(
        name="a kernel that does not count drops", memory=remembered(),
        readings={"conntrack": ConntrackTable(entries_count=1, limit_count=10)}, want=ok(),
    ),
    Case(
        name="recovered: the drops are older than the window", readings=read(120),
        memory=dropped(3, 0, 0, 0, 0, 0, 0), want=ok(),
    ),
    Case(name="a table without a limit", readings=read(5, 0), want=not_applicable(says="no limit")),
    Case(
        name="unread: blank after a good read", memory=dropped(0),
        readings={"conntrack": Unread(kind=ErrorKind.DENIED, reason="EACCES")}, want=unknown(),
    ),
    Case(
        name="not supported",
        readings={"conntrack": Unread(kind=ErrorKind.ABSENT, reason="nf_conntrack is not loaded")},
        want=not_applicable(says="not loaded"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
