"""Cases of `gpu.lost`."""

from nodeagent.errors import ErrorKind
from nodeagent.signals import GpuPresence, Unread
from tests.decide.build import GPU, OK, UNKNOWN, Case, Want, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.presence@{GPU}"

CASES = (
    Case(name="healthy", readings={SIGNAL: GpuPresence(reachable=True)}, want=ok(GPU)),
    Case(
        name="at the limit: reachable, with a remark",
        readings={SIGNAL: GpuPresence(reachable=True, detail="slow")},
        want=ok(GPU),
    ),
    Case(
        name="over the limit: lost",
        readings={SIGNAL: GpuPresence(reachable=False, detail="GPU is lost")},
        want=bad(GPU, says="GPU is lost", value="lost"),
    ),
    Case(
        name="lost without a word",
        readings={SIGNAL: GpuPresence(reachable=False)},
        want=bad(GPU, says="no reason given"),
    ),
    Case(
        name="unread: timeout",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(GPU),
    ),
    Case(
        name="unread: denied",
        readings={SIGNAL: Unread(kind=ErrorKind.DENIED, reason="EPERM")},
        want=unknown(GPU, says="EPERM"),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="NVML is released")},
        want=not_applicable(GPU),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(
        name="one unread GPU hides no other",
        readings={
            SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer"),
            "gpu.presence@0000:5e:00.0": GpuPresence(reachable=True),
        },
        want=(Want(state=UNKNOWN, target=GPU), Want(state=OK, target="0000:5e:00.0")),
    ),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
