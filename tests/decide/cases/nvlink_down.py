"""Cases of `nvlink.down`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import NvLinks
from nodeagent.memory import GpuMemory, Memory
from nodeagent.model import Instant
from nodeagent.signals import GpuIdentity, Unread
from tests.decide.build import BOOT, GPU, UPTIME_SECONDS, WALL_SECONDS, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.nvlink@{GPU}"
H100, A100, A100_PCIE, UNLISTED = 0x2330, 0x20B2, 0x20B5, 0x1234


def links(up: int, count: int, device: int = H100, board: int = 0x16C1) -> dict[str, object]:
    """That many links up on a GPU of that device."""
    identity = GpuIdentity(
        index=0, pci_address=GPU, uuid="GPU-1", name="NVIDIA GPU",
        pci_device_id=device << 16 | 0x10DE, pci_board_id=board << 16 | 0x10DE,
    )
    state = NvLinks(link_count=count, inactive=tuple(range(up, count)))
    return {SIGNAL: state, "gpu.devices": (identity,)}


def seen(count: int, reset_seconds_ago: float | None = None) -> Memory:
    """Memory of a GPU with so many links up in this boot, and of a reset."""
    reset = None
    if reset_seconds_ago is not None:
        at_seconds = UPTIME_SECONDS - reset_seconds_ago
        reset = Instant(boot_id=BOOT, monotonic_seconds=at_seconds, wall_seconds=WALL_SECONDS + at_seconds)
    return Memory(gpus={GPU: GpuMemory(links_seen=count, reset_seen=reset)})


CASES = (
    Case(name="healthy", readings=links(18, 18), want=ok(GPU, value="18 links up", limit="18 links up")),
    Case(name="at the limit: an A100 with eight links", readings=links(8, 12, A100), want=ok(GPU)),
    Case(name="healthy: a PCIe A100 without a bridge", readings=links(0, 12, A100_PCIE), want=ok(GPU)),
    Case(name="healthy: a PCIe A100 with two bridges", readings=links(8, 12, A100_PCIE), want=ok(GPU)),
    Case(name="healthy: a device that nobody listed", readings=links(3, 6, UNLISTED), want=ok(GPU)),
    Case(
        name="over the limit: one link down", readings=links(17, 18),
        want=bad(GPU, says="17 of 18 NVLinks are up; down: 17"),
    ),
    Case(
        name="over the limit: between two right counts", readings=links(9, 12, A100),
        want=bad(GPU, limit="12 links up"),
    ),
    Case(
        name="over the limit: fewer than this boot has seen", readings=links(8, 12, A100), memory=seen(12),
        want=bad(GPU, says="8 of 12"),
    ),
    Case(
        name="over the limit: an unlisted device lost a link", readings=links(3, 6, UNLISTED), memory=seen(4),
        want=bad(GPU, limit="4 links up"),
    ),
    Case(
        name="over the limit: all links of a bridge that was there", readings=links(0, 12, A100_PCIE),
        memory=seen(4), want=bad(GPU, limit="4 links up"),
    ),
    Case(
        name="the operator's count by device", readings=links(16, 18),
        limits={"expected_links": ("2330=16",)}, want=ok(GPU, limit="16 links up"),
    ),
    Case(
        name="the operator's count by board wins", readings=links(4, 18),
        limits={"expected_links": ("0x2330=16", "2330:16C1=4")}, want=ok(GPU, limit="4 links up"),
    ),
    Case(
        name="the operator's count of another board is not this one's", readings=links(4, 18),
        limits={"expected_links": ("2330:16c2=4",)}, want=bad(GPU, limit="18 links up"),
    ),
    Case(
        name="the operator's word cannot be read", readings=links(18, 18),
        limits={"expected_links": ("H100=18",)}, want=unknown(GPU, says="'H100=18' is not DEVICE=LINKS"),
    ),
    Case(
        name="links train after a reset", readings=links(0, 18), memory=seen(18, 30.0),
        want=unknown(GPU, says="may still train"),
    ),
    Case(
        name="links are still down long after a reset", readings=links(0, 18), memory=seen(18, 200.0),
        want=bad(GPU),
    ),
    Case(name="recovered: all are up again", readings=links(18, 18), memory=seen(18, 30.0), want=ok(GPU)),
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
