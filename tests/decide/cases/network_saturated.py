"""Cases of `network.saturated`: near a limit for ten minutes, measured at the reading's time."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.shape import ClassCounter, ShapeReading, ShapeState
from nodeagent.shape_memory import ClassCount, ShapeMemory, Shares
from nodeagent.signals import Unread
from nodeagent.traffic_memory import Claim, MarkMemory
from tests.decide.build import UPTIME_SECONDS, Case, bad, not_applicable, ok, unknown

READ = {"net.shape": ShapeReading(state=ShapeState(ifb=True, htb=True), tag="ab")}
READ_AT_SECONDS = UPTIME_SECONDS - 1.0
M = 10**6


def count(rate: int, busy_seconds: float | None) -> ClassCount:
    """A class at this rate, in Mbit/s, busy for so long."""
    since = None if busy_seconds is None else READ_AT_SECONDS - busy_seconds
    return ClassCount(
        minor=0x10, seen=ClassCounter(), rate_bits_per_second=rate * M, busy_since_seconds=since
    )


def seen(budget: ClassCount | None = None, limit: int = 10, **pods: ClassCount) -> Memory:
    """Pods by name, all with this limit in Mbit/s, in a budget of 100 Mbit/s."""
    shape = ShapeMemory(
        budget_bits_per_second=100 * M, listed=True, budget_count=budget, pods=pods,
        shares={name: Shares(limit_bits_per_second=limit * M) for name in pods},
    )  # fmt: skip
    claims = {
        f"10.0.0.{n}": Claim(uid=name, namespace="team", name=name, minor=0x10 + n)
        for n, name in enumerate(pods)
    }
    return Memory(shape=shape, marks=MarkMemory(claims=claims))


CASES = (
    Case(
        name="healthy",
        readings=READ,
        memory=seen(count(40, None), a=count(3, None)),
        want=ok(value="40 Mbit/s", limit="90 % for 10 min"),
    ),
    Case(
        name="at the limit: not long enough",
        readings=READ,
        memory=seen(count(99, 599.0), a=count(10, 599.0)),
        want=ok(value="99 Mbit/s"),
    ),
    Case(
        name="over the limit",
        readings=READ,
        memory=seen(count(40, None), a=count(10, 600.0), b=count(1, None)),
        want=bad(
            value="1 pods", cause="pod", says="at their limit for 10 min: team/a (10 Mbit/s of 10 Mbit/s)"
        ),
    ),
    Case(
        name="the budget",
        readings=READ,
        memory=seen(count(99, 600.0), a=count(10, 900.0)),
        want=bad(value="99 Mbit/s", cause="budget", says="budget of 100 Mbit/s is used up: 99 Mbit/s now"),
    ),
    Case(
        name="many pods",
        readings=READ,
        memory=seen(count(40, None), **{name: count(10, 700.0) for name in "abcde"}),
        want=bad(value="5 pods", says="and 2 more"),
    ),
    Case(
        name="a pod whose limit is the budget",
        readings=READ,
        memory=seen(count(40, None), limit=100, a=count(95, 700.0)),
        want=ok(),
    ),
    Case(
        name="another length",
        readings=READ,
        limits={"seconds": 60.0},
        memory=seen(count(40, None), a=count(10, 60.0)),
        want=bad(limit="90 % for 1 min"),
    ),
    Case(name="read once", readings=READ, memory=seen(), want=ok(value="no rate yet")),
    Case(name="no budget", readings=READ, memory=Memory(), want=not_applicable(says="internet_budget")),
    Case(
        name="unread: timeout",
        readings={"net.shape": Unread(kind=ErrorKind.TIMEOUT, reason="no answer in 5 s")},
        memory=seen(),
        want=unknown(says="no answer"),
    ),
    Case(
        name="not supported",
        readings={"net.shape": Unread(kind=ErrorKind.ABSENT, reason="no source of pods")},
        memory=seen(),
        want=not_applicable(),
    ),
    Case(name="missing on the board", readings={}, memory=seen(), want=unknown()),
)
