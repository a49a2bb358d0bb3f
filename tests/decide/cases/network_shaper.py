"""Cases of `network.shaper`: in place, or why not."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.shape import ShapeClass, ShapeReading, ShapeState
from nodeagent.shape_memory import ShapeMemory
from nodeagent.signals import Unread
from nodeagent.traffic_memory import MarkMemory
from tests.decide.build import Case, bad, not_applicable, ok, unknown

LEAVES = tuple(
    ShapeClass(
        minor=minor, parent=1, rate_bytes_per_second=1, ceil_bytes_per_second=1, burst_bytes=1,
        cburst_bytes=1, quantum_bytes=1500, leaf_limit_bytes=1,
    )
    for minor in (0xF, 0x10, 0x11)
)  # fmt: skip
READ = {"net.shape": ShapeReading(state=ShapeState(ifb=True, htb=True, classes=LEAVES), tag="ab")}
FILTER, CLASS = "shape filter eth0", "shape class 4e:10"


def seen(**more: object) -> Memory:
    """A budget of 10 Gbit/s on two uplinks."""
    fields = {"budget_bits_per_second": 10**10, "listed": True, "scanned": True} | more
    return Memory(shape=ShapeMemory(**fields), marks=MarkMemory(uplinks=("eth0", "eth1")))  # type: ignore[arg-type]


CASES = (
    Case(name="healthy", readings=READ, memory=seen(), want=ok(value="10 Gbit/s, 2 pods")),
    Case(
        name="at the limit: guarantees that add up to more are said, and no fault",
        readings=READ,
        memory=seen(scaled_ratio=0.625),
        want=ok(value="10 Gbit/s, 2 pods, guarantees cut to 62%"),
    ),
    Case(
        name="over the limit",
        readings=READ,
        memory=seen(pending=(FILTER, CLASS)),
        want=bad(value="not in place", cause="not in place", says=f"{FILTER}, {CLASS}"),
    ),
    Case(
        name="many parts",
        readings=READ,
        memory=seen(pending=tuple(f"shape class 4e:{n}" for n in range(5))),
        want=bad(says="4e:2 and 2 more"),
    ),
    Case(
        name="the kernel lacks something",
        readings=READ,
        memory=seen(missing=("no HTB: modprobe sch_htb",), pending=(FILTER,)),
        want=bad(value="count-only", cause="count-only", says="no HTB: modprobe sch_htb"),
    ),
    Case(
        name="an uplink takes no filter",
        readings=READ,
        memory=seen(blocked={"eth0": "an ingress qdisc is there", "eth1": "the same", "gone0": "gone"}),
        want=bad(value="eth0 blocked", cause="blocked", says="an ingress qdisc is there, and 1 more"),
    ),
    Case(
        name="a blocked device that is no uplink any more",
        readings=READ,
        memory=seen(blocked={"gone0": "an ingress qdisc is there"}),
        want=ok(),
    ),
    Case(name="no budget", readings=READ, memory=Memory(), want=not_applicable(says="internet_budget")),
    Case(name="no budget, nothing read", readings={}, want=not_applicable(says="internet_budget")),
    Case(
        name="no pod list yet",
        readings=READ,
        memory=seen(listed=False),
        want=not_applicable(says="no pod list"),
    ),
    Case(
        name="unread: busy",
        readings={"net.shape": Unread(kind=ErrorKind.BUSY, reason="dump interrupted")},
        memory=seen(),
        want=unknown(says="dump interrupted"),
    ),
    Case(
        name="not supported",
        readings={"net.shape": Unread(kind=ErrorKind.ABSENT, reason="no source of pods")},
        memory=seen(),
        want=not_applicable(says="no source of pods"),
    ),
    Case(name="missing on the board", readings={}, memory=seen(), want=unknown()),
)
