"""Cases of `thermal.slowdown`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import SlowedTime
from nodeagent.memory import CounterWindow, Memory
from nodeagent.signals import Unread
from tests.decide.build import GPU, UPTIME_SECONDS, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.thermal_slowdown@{GPU}"
READ = {SIGNAL: SlowedTime(total_nanoseconds=9)}


def grown(count: int, seconds: float = 10.0) -> Memory:
    """Memory in which the counter grew so much in that time."""
    ended_seconds = UPTIME_SECONDS - 1.0
    window = CounterWindow(
        started_seconds=ended_seconds - seconds, ended_seconds=ended_seconds,
        started_count=1000, ended_count=1000 + count,
    )
    return Memory(counter_windows={f"gpu.thermal_slowdown|{GPU}": window})


CASES = (
    Case(name="healthy", readings=READ, memory=grown(0), want=ok(GPU, value="0.0 %")),
    Case(name="healthy: the first sample is a baseline", readings=READ, want=ok(GPU, value="first sample")),
    Case(
        name="healthy: a counter that fell is a baseline again", readings=READ, memory=grown(0, 0.0),
        want=ok(GPU, value="first sample"),
    ),
    Case(name="at the limit", readings=READ, memory=grown(1000000000), want=ok(GPU)),
    Case(name="over the limit", readings=READ, memory=grown(5000000000), want=bad(GPU, value="50.0 %")),
    Case(
        name="over the limit that the operator set", readings=READ, memory=grown(1000000000),
        limits={"slowed_percent": 5.0}, want=bad(GPU, limit="5 %"),
    ),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        memory=grown(5000000000), want=unknown(GPU),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="Not Supported")},
        want=not_applicable(GPU),
    ),
    Case(name="recovered: it grows no more", readings=READ, memory=grown(0), want=ok(GPU)),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
