"""Cases of `pcie.width`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import PcieLink
from nodeagent.signals import Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.pcie_link@{GPU}"


def link(
    lanes: int = 16, generation: int = 5, busy_percent: int | None = None, slot_lanes: int = 16
) -> dict[str, object]:
    """A link in a slot of generation 5."""
    state = PcieLink(
        lane_count=lanes, max_lane_count=slot_lanes, generation=generation, max_generation=5,
        busy_percent=busy_percent,
    )
    return {SIGNAL: state}


CASES = (
    Case(name="healthy", readings=link(), want=ok(GPU, value="x16 gen 5", limit="x16 gen 5")),
    Case(name="healthy: a slot of eight lanes", readings=link(8, slot_lanes=8), want=ok(GPU)),
    Case(name="healthy: an idle GPU runs slower", readings=link(16, 1, 0), want=ok(GPU, value="x16 gen 1")),
    Case(name="at the limit: not busy enough to tell", readings=link(16, 4, 19), want=ok(GPU)),
    Case(name="over the limit: fewer lanes, even idle", readings=link(8, 1, 0), want=bad(
        GPU, cause="width", says="8 of 16 lanes")),
    Case(name="over the limit: slower under load", readings=link(16, 4, 20), want=bad(
        GPU, cause="generation", says="generation 4 of 5 while the GPU is 20 % busy")),
    Case(
        name="over the limit that the operator set", readings=link(16, 4, 5), limits={"load_percent": 5.0},
        want=bad(GPU, cause="generation"),
    ),
    Case(name="slower, and the GPU does not tell its load", readings=link(16, 1, None), want=ok(GPU)),
    Case(name="recovered: all lanes again", readings=link(), want=ok(GPU)),
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
