"""`nvlink.down` and `nvlink.errors`: are a GPU's NVLinks up, and do they carry data undamaged?

How many should be up depends on device and board, and links train after boot and reset: neither a smaller
board nor a young link is a fault. A count of errors says nothing but by its growth.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide import counters
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, unknown
from nodeagent.decide.nvlink_table import allowed_links, own_links
from nodeagent.gpu_signals import NvLinks
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.signals import GpuIdentity


def judge_down(given: CheckInput) -> Iterator[Finding]:
    """Fewer links up than device and board should have, or than this boot has seen; number is links up."""
    own, odd = own_links(given.limits["expected_links"])
    devices = given.value("gpu.devices", NODE)
    identities = {gpu.pci_address: gpu for gpu in devices} if isinstance(devices, tuple) else {}
    for target, links, reading in given.values("gpu.nvlink"):
        shown = {"value": f"{links.active_count} links up", "number": float(links.active_count)}
        if odd:
            sentence = f"expected_links: {odd!r} is not DEVICE=LINKS or DEVICE:BOARD=LINKS, such as 2330=18"
            yield unknown(target, reading, sentence, **shown)
            continue
        wanted = _wanted(given, target, links, identities.get(target), own)
        shown["limit"] = f"{wanted} links up"
        if links.active_count >= wanted:
            yield good(target, reading, **shown)
        elif _trains(given, target):
            yield unknown(target, reading, "links may still train after the reset", **shown)
        else:
            named = ", ".join(map(str, links.inactive))
            sentence = f"{links.active_count} of {wanted} NVLinks are up; down: {named}"
            yield bad(target, reading, sentence, **shown)


def _wanted(
    given: CheckInput, target: str, links: NvLinks, identity: GpuIdentity | None, own: dict[str, int]
) -> int:
    """Links that must be up: the next count that is right, and no fewer than were up in this boot."""
    allowed: tuple[int, ...] = ()
    if identity is not None:
        allowed = allowed_links(identity.pci_device_id, identity.pci_board_id, own)
    gpu = given.memory.gpus.get(target)
    seen = gpu.links_seen or 0 if gpu is not None else 0
    if not allowed:
        return seen
    if seen > max(allowed):
        return max(allowed)
    return min((count for count in allowed if count >= max(seen, links.active_count)), default=max(allowed))


def _trains(given: CheckInput, target: str) -> bool:
    gpu = given.memory.gpus.get(target)
    if gpu is None or gpu.reset_seen is None or gpu.reset_seen.boot_id != given.snapshot.now.at.boot_id:
        return False
    return given.snapshot.now.age_seconds(gpu.reset_seen) < float(given.limits["training_seconds"])


def judge_errors(given: CheckInput) -> Iterator[Finding]:
    """Faster growth than either limit is bad; number is CRC errors per second."""
    crc_limit, recovery_limit = given.limits["crc_per_second"], given.limits["recoveries_per_second"]
    limit = f"CRC {crc_limit:g}/s, recovery {recovery_limit:g}/s"
    for target, _, reading in given.values("gpu.nvlink_errors"):
        crc = counters.per_second(given.memory, "gpu.nvlink_errors crc", target)
        recovery = counters.per_second(given.memory, "gpu.nvlink_errors recovery", target)
        if crc is None or recovery is None:
            yield good(target, reading, value="first sample", limit=limit)
            continue
        shown = {"value": f"CRC {crc:.1f}/s, recovery {recovery:.1f}/s", "limit": limit, "number": crc}
        if crc > crc_limit:
            yield bad(target, reading, f"{crc:.0f} NVLink packets a second arrive damaged", **shown)
        elif recovery > recovery_limit:
            sentence = f"NVLinks send again or train anew {recovery:.1f} times a second"
            yield bad(target, reading, sentence, **shown)
        else:
            yield good(target, reading, **shown)


CHECKS = (
    Check(
        id="nvlink.down",
        title="NVLinks down",
        family="gpu",
        signals=("gpu.nvlink",),
        source="NVML field 165, or NVML link states, against a table by PCI device and this boot's best",
        node_class=NodeClass.RESET,
        judge=judge_down,
        limits=(
            Limit(name="expected_links", unit="DEVICE[:BOARD]=LINKS", default=(),
                  meaning="Own counts by PCI device and subsystem id, such as 2330=18 or 20b2:1463=8."),
            Limit(name="training_seconds", unit="s", default=120.0,
                  meaning="After a GPU reset that was seen, links may be down for so long."),
        ),
        hold=HoldRule(bad_polls=3, of_polls=5, proof="reset"),
        depends_on=("driver.stuck", "gpu.lost"),
        common_cause="links",
        boot_grace_seconds=300.0,
    ),
    Check(
        id="nvlink.errors",
        title="NVLink error rate",
        family="gpu",
        signals=("gpu.nvlink_errors",),
        source="growth of NVML NVLink error counters between two polls",
        node_class=NodeClass.CHECK,
        judge=judge_errors,
        limits=(
            Limit(name="crc_per_second", unit="errors/s", default=100.0,
                  meaning="Damaged packets per second, over all links of a GPU, that are still tolerated."),
            Limit(name="recoveries_per_second", unit="1/s", default=0.0,
                  meaning="Replays and recoveries per second that are still tolerated in most polls."),
        ),
        hold=HoldRule(bad_polls=3, of_polls=5),
        depends_on=("driver.stuck", "gpu.lost"),
        common_cause="links",
        boot_grace_seconds=300.0,
    ),
)
