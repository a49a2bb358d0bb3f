"""`gpu.count`: are all GPUs enumerated that should be there?

The operator's number is the last word; without one, what this boot first showed and what the PCI
bus shows are the measure. It must never guess a number from an earlier boot.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.signals import PciGpus


def _expected(given: CheckInput) -> int:
    """GPUs that must be there; 0 when nothing is known yet."""
    if given.gpu_expected_count:
        return given.gpu_expected_count
    pci = given.value("gpu.pci", NODE)
    on_bus = len(pci.addresses) if isinstance(pci, PciGpus) else 0
    baseline = given.memory.baseline
    this_boot = baseline is not None and baseline.boot_id == given.snapshot.now.at.boot_id
    return max(on_bus, baseline.count if baseline is not None and this_boot else 0)


def _missing(given: CheckInput, enumerated: set[str]) -> str:
    """Names the addresses that the bus or an earlier read showed and NVML does not."""
    pci = given.value("gpu.pci", NODE)
    known = set(pci.addresses) if isinstance(pci, PciGpus) else set()
    known |= {address for address, gpu in given.memory.gpus.items() if gpu.replaced is None}
    absent = sorted(known - enumerated)
    return f"; missing: {', '.join(absent)}" if absent else ""


def judge(given: CheckInput) -> Iterator[Finding]:
    """Fewer than expected is bad, more is not; number is GPUs enumerated."""
    for target, devices, reading in given.values("gpu.devices"):
        count, expected = len(devices), _expected(given)
        shown = {"value": f"{count} GPUs", "limit": f"{expected or count} GPUs", "number": float(count)}
        if count >= expected:
            yield good(target, reading, **shown)
            continue
        missing = _missing(given, {gpu.pci_address for gpu in devices})
        yield bad(target, reading, f"{count} of {expected} GPUs enumerated{missing}", **shown)


CHECKS = (
    Check(
        id="gpu.count",
        title="GPUs enumerated",
        family="gpu",
        signals=("gpu.devices",),
        source="NVML device count, against [gpu] expected_count or the PCI bus and this boot's first count",
        node_class=NodeClass.REBOOT,
        judge=judge,
        hold=HoldRule(bad_polls=2, of_polls=3, proof="reset"),
        depends_on=("driver.stuck",),
    ),
)
