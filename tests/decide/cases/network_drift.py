"""Cases of `network.drift`: a part that was as wanted and is not any more."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.shape_memory import ShapeMemory
from nodeagent.signals import Unread
from nodeagent.traffic import MarkReading
from nodeagent.traffic_memory import DriftMemory, MarkMemory
from tests.decide.build import UPTIME_SECONDS, Case, bad, not_applicable, ok, unknown

READ = {"net.marks": MarkReading(backend="nft", states=())}
CHAIN, JUMPS = "4 chain NODEAGENT-EGRESS", "4 jumps FORWARD"


def seen(*parts: str, repaired_seconds_ago: tuple[float, ...] = (), part: str = JUMPS) -> Memory:
    """Memory after a reading in which these parts differed."""
    times = tuple(UPTIME_SECONDS - ago for ago in repaired_seconds_ago)
    drift = DriftMemory(open=parts, repairs={part: times})
    return Memory(marks=MarkMemory(listed=True, drift=drift))


def shaped(part: str, repaired_seconds_ago: tuple[float, ...] = ()) -> Memory:
    """Memory after a reading of tc in which this part differed."""
    times = tuple(UPTIME_SECONDS - ago for ago in repaired_seconds_ago)
    drift = DriftMemory(open=(part,), repairs={part: times})
    return Memory(marks=MarkMemory(listed=True), shape=ShapeMemory(drift=drift))


CASES = (
    Case(name="healthy", readings=READ, memory=seen(), want=ok(value="0 parts", limit="0 parts")),
    Case(
        name="at the limit: repaired and read back equal",
        readings=READ,
        memory=seen(repaired_seconds_ago=(60.0,)),
        want=ok(),
    ),
    Case(
        name="over the limit",
        readings=READ,
        memory=seen(JUMPS, repaired_seconds_ago=(0.0,)),
        want=bad(value="1 parts", says="changed by others: 4 jumps FORWARD", cause="changed"),
    ),
    Case(
        name="two repairs are no contest",
        readings=READ,
        memory=seen(JUMPS, repaired_seconds_ago=(90.0, 30.0)),
        want=bad(cause="changed"),
    ),
    Case(
        name="three repairs are",
        readings=READ,
        memory=seen(JUMPS, repaired_seconds_ago=(120.0, 90.0, 30.0)),
        want=bad(cause="contested", says="again and again"),
    ),
    Case(
        name="a contest of long ago",
        readings=READ,
        memory=seen(JUMPS, repaired_seconds_ago=(960.0, 930.0, 901.0)),
        want=bad(cause="changed"),
    ),
    Case(
        name="a contest about another part",
        readings=READ,
        memory=seen(JUMPS, repaired_seconds_ago=(30.0, 20.0, 10.0), part=CHAIN),
        want=bad(cause="changed"),
    ),
    Case(
        name="everything was flushed",
        readings=READ,
        memory=seen(JUMPS, CHAIN, *(f"4 entry 10.244.1.{n}" for n in range(5))),
        want=bad(value="7 parts", says="10.244.1.1 and 3 more"),
    ),
    Case(
        name="a class was deleted",
        readings=READ,
        memory=shaped("shape class 4e:10"),
        want=bad(value="1 parts", says="changed by others: shape class 4e:10", cause="changed"),
    ),
    Case(
        name="a fight over the last filter",
        readings=READ,
        memory=shaped("shape filter eth0", repaired_seconds_ago=(120.0, 90.0, 30.0)),
        want=bad(cause="contested", says="again and again"),
    ),
    Case(
        name="no pod list yet",
        readings=READ,
        want=not_applicable(says="no pod list"),
    ),
    Case(
        name="unread: busy",
        readings={"net.marks": Unread(kind=ErrorKind.BUSY, reason="dump interrupted")},
        memory=seen(JUMPS),
        want=unknown(says="dump interrupted"),
    ),
    Case(
        name="not supported",
        readings={"net.marks": Unread(kind=ErrorKind.ABSENT, reason="network is off")},
        want=not_applicable(says="network is off"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
