"""Cases of `network.bypass`: both limits must be broken, in one direction at least."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.signals import Unread
from nodeagent.traffic import LinkState, MarkReading
from nodeagent.traffic_memory import MarkMemory, TrafficMemory, Window
from tests.decide.build import UPTIME_SECONDS, Case, bad, not_applicable, ok, unknown

MIB_BYTES = 1 << 20
LINKS = LinkState(
    uplinks=(), on_link_prefixes=(), own_addresses=(), pod_links=(), host_namespace=True
)
READ = {"net.links": LINKS, "net.marks": MarkReading(backend="nft", states=())}
GONE = Unread(kind=ErrorKind.TIMEOUT, reason="no answer")


def minute(out: tuple[float, float] = (0, 0), received: tuple[float, float] = (0, 0)) -> Memory:
    """A minute's (uplink, counted) MiB by direction."""
    window = Window(
        began_seconds=UPTIME_SECONDS - 61.0,
        ended_seconds=UPTIME_SECONDS - 1.0,
        uplink_out_bytes=round(out[0] * MIB_BYTES),
        counted_out_bytes=round(out[1] * MIB_BYTES),
        uplink_in_bytes=round(received[0] * MIB_BYTES),
        counted_in_bytes=round(received[1] * MIB_BYTES),
    )
    return Memory(marks=MarkMemory(listed=True), traffic=TrafficMemory(window=window))


CASES = (
    Case(
        name="healthy",
        readings=READ,
        memory=minute((1000, 960), (500, 490)),
        want=ok(value="out 40.0 MiB uncounted", limit="2 times and 64.0 MiB"),
    ),
    Case(name="at the limit: twice as much", readings=READ, memory=minute((2000, 1000)), want=ok()),
    Case(name="at the limit: 64 MiB", readings=READ, memory=minute((64, 0)), want=ok()),
    Case(
        name="over the limit",
        readings=READ,
        memory=minute((2000, 999)),
        want=bad(
            value="out 1001.0 MiB uncounted",
            says="2000.0 MiB out on the uplinks, but only 999.0 MiB passed our rules",
            cause="out",
        ),
    ),
    Case(name="incoming alone", readings=READ, memory=minute((10, 10), (300, 1)), want=bad(cause="in")),
    Case(
        name="the bad direction is shown, not the larger one",
        readings=READ,
        memory=minute((5000, 4800), (100, 1)),
        want=bad(value="in 99.0 MiB uncounted", cause="in"),
    ),
    Case(name="an idle node", readings=READ, memory=minute((0.5, 0.1)), want=ok()),
    Case(name="our rules count more than the wire", readings=READ, memory=minute((900, 1000)), want=ok()),
    Case(
        name="a configured ratio",
        readings=READ,
        limits={"ratio": 1.5},
        memory=minute((1600, 1000)),
        want=bad(),
    ),
    Case(
        name="configured bytes",
        readings=READ,
        limits={"uncounted_bytes": 2000 * MIB_BYTES},
        memory=minute((2000, 999)),
        want=ok(),
    ),
    Case(
        name="nothing compared yet",
        readings=READ,
        memory=Memory(marks=MarkMemory(listed=True)),
        want=unknown(says="30 s"),
    ),
    Case(name="no pod list", readings=READ, want=not_applicable(says="no pod list")),
    Case(
        name="another network namespace",
        readings=READ
        | {"net.links": LinkState(
            uplinks=(), on_link_prefixes=(), own_addresses=(), pod_links=(), host_namespace=False
        )},
        memory=minute((2000, 0)),
        want=not_applicable(),
    ),
    Case(
        name="unread: links",
        readings=READ | {"net.links": GONE},
        memory=minute(),
        want=unknown(says="no answer"),
    ),
    Case(name="unread: marks", readings=READ | {"net.marks": GONE}, memory=minute(), want=unknown()),
    Case(
        name="not supported",
        readings={"net.marks": Unread(kind=ErrorKind.ABSENT, reason="network is off")},
        want=not_applicable(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="missing on the board: marks", readings={"net.links": LINKS}, want=unknown()),
)
