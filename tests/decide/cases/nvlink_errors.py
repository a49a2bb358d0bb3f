"""Cases of `nvlink.errors`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import NvLinkErrors
from nodeagent.memory import CounterWindow, Memory
from nodeagent.signals import Unread
from tests.decide.build import GPU, UPTIME_SECONDS, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.nvlink_errors@{GPU}"
READ = {SIGNAL: NvLinkErrors(crc_errors=50_000_000, recovery_errors=9)}


def grown(crc: int = 0, recovery: int = 0, seconds: float = 60.0) -> Memory:
    """Memory in which the counters grew so much in that time."""
    ended_seconds = UPTIME_SECONDS - 1.0

    def window(count: int) -> CounterWindow:
        return CounterWindow(
            started_seconds=ended_seconds - seconds, ended_seconds=ended_seconds,
            started_count=1000, ended_count=1000 + count,
        )

    return Memory(counter_windows={
        f"gpu.nvlink_errors crc|{GPU}": window(crc), f"gpu.nvlink_errors recovery|{GPU}": window(recovery),
    })


CASES = (
    Case(name="healthy", readings=READ, memory=grown(), want=ok(GPU, value="CRC 0.0/s, recovery 0.0/s")),
    Case(
        name="healthy: the first sample is a baseline, however large", readings=READ,
        want=ok(GPU, value="first sample"),
    ),
    Case(
        name="healthy: counters that fell are a baseline again", readings=READ, memory=grown(seconds=0.0),
        want=ok(GPU, value="first sample"),
    ),
    Case(name="at the limit", readings=READ, memory=grown(crc=6000), want=ok(GPU)),
    Case(
        name="over the limit: damaged packets", readings=READ, memory=grown(crc=60_000),
        want=bad(GPU, says="1000 NVLink packets a second arrive damaged"),
    ),
    Case(
        name="over the limit: recoveries", readings=READ, memory=grown(recovery=6),
        want=bad(GPU, says="train anew 0.1 times a second"),
    ),
    Case(
        name="over the limit that the operator set", readings=READ, memory=grown(crc=60),
        limits={"crc_per_second": 0.5}, want=bad(GPU, limit="CRC 0.5/s, recovery 0/s"),
    ),
    Case(name="recovered: they grow no more", readings=READ, memory=grown(), want=ok(GPU)),
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
