"""Cases of `pcie.replay`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import MonotonicCount, PcieLink
from nodeagent.memory import CounterWindow, Memory
from nodeagent.signals import Unread
from tests.decide.build import GPU, UPTIME_SECONDS, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.pcie_replay@{GPU}"
LINK = f"gpu.pcie_link@{GPU}"


def read(max_generation: int = 5, lanes: int = 16, generation: int = 1) -> dict[str, object]:
    """A link of that generation and width, idle at the moment."""
    link = PcieLink(
        lane_count=lanes, max_lane_count=16, generation=generation, max_generation=max_generation
    )
    return {SIGNAL: MonotonicCount(total_count=5000), LINK: link}


def grown(count: int, seconds: float = 60.0) -> Memory:
    """Memory in which the counter grew so much in that time."""
    ended_seconds = UPTIME_SECONDS - 1.0

    def window(count: int) -> CounterWindow:
        return CounterWindow(
            started_seconds=ended_seconds - seconds, ended_seconds=ended_seconds,
            started_count=1000, ended_count=1000 + count,
        )

    return Memory(counter_windows={f"gpu.pcie_replay|{GPU}": window(count)})


CASES = (
    Case(name="healthy", readings=read(), memory=grown(0), want=ok(GPU, value="0.0/min", limit="30.7/min")),
    Case(name="healthy: the first sample is a baseline", readings=read(), want=ok(GPU, value="first sample")),
    Case(
        name="healthy: a counter that fell is a baseline again", readings=read(), memory=grown(0, 0.0),
        want=ok(GPU, value="first sample"),
    ),
    Case(name="at the limit of generation 5", readings=read(), memory=grown(30), want=ok(GPU)),
    Case(
        name="over the limit of generation 5", readings=read(), memory=grown(31),
        want=bad(GPU, says="31 PCIe packets a minute"),
    ),
    Case(
        name="over the limit of generation 3", readings=read(3), memory=grown(8),
        want=bad(GPU, limit="7.7/min"),
    ),
    Case(
        name="over the limit of half the lanes", readings=read(5, 8), memory=grown(16),
        want=bad(GPU, limit="15.4/min"),
    ),
    Case(
        name="over the limit that the operator set", readings=read(), memory=grown(30),
        limits={"per_lane_per_minute": 0.1}, want=bad(GPU, limit="6.4/min"),
    ),
    Case(
        name="unread link: there is no limit to compare with",
        readings={SIGNAL: MonotonicCount(total_count=1)}, memory=grown(9000), want=unknown(GPU),
    ),
    Case(name="recovered: it grows no more", readings=read(), memory=grown(0), want=ok(GPU)),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(GPU),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="Not Supported")},
        want=not_applicable(GPU),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
