"""Cases of `ib.flaps`: how often a port lost its link in a day, by the adapter's own count."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.net_memory import Growth
from nodeagent.net_signals import IbCounters
from nodeagent.signals import Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown
from tests.decide.links_build import PORT, grown, remembered

SIGNAL = f"ib.counters@{PORT}"
READ = {SIGNAL: IbCounters(link_downed_count=100)}
AT_END = {SIGNAL: IbCounters(link_downed_count=255)}


def lost(*steps: int) -> Memory:
    """So many losses at the last reads, a minute apart."""
    return remembered(growths={f"link_downed|{PORT}": grown(*steps)})


IN_BOOT = remembered(growths={
    f"link_downed|{PORT}": Growth(read_at_seconds=3599.0, last_count=100, steps=((200.0, 40),)),
})

CASES = (
    Case(name="healthy", readings=READ, memory=lost(0), want=ok(PORT, value="0 losses")),
    Case(
        name="healthy: the first sample is a baseline, however large", readings=READ,
        want=ok(PORT, value="first sample"),
    ),
    Case(name="at the limit", readings=READ, memory=lost(1, 1, 1), want=ok(PORT, limit="3 losses in 24 h")),
    Case(
        name="over the limit", readings=READ, memory=lost(1, 1, 1, 1),
        want=bad(PORT, says="mlx5_0/1 lost its link 4 times in 24 h"),
    ),
    Case(
        name="a limit of the operator's", readings=READ, memory=lost(1), limits={"losses_count": 0},
        want=bad(PORT),
    ),
    Case(
        name="boot grace: losses while links trained after boot do not count", readings=READ,
        memory=IN_BOOT, want=ok(PORT, value="0 losses"),
    ),
    Case(
        name="a counter at its end says nothing", readings=AT_END, memory=lost(0),
        want=unknown(PORT, says="counts no more"),
    ),
    Case(name="a counter that reached its end just now", readings=AT_END, memory=lost(9), want=bad(PORT)),
    Case(
        name="recovered: the losses are older than the window", readings=READ, memory=lost(9, 0),
        limits={"window_seconds": 30.0}, want=ok(PORT),
    ),
    Case(
        name="unread: blank after a good read", memory=lost(9),
        readings={SIGNAL: Unread(kind=ErrorKind.LOST, reason="Input/output error")}, want=unknown(PORT),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="no such counter")},
        want=not_applicable(PORT),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
