"""`gpu.count`: are all GPUs enumerated that should be there?

The operator's number is the last word; without one, what this boot first showed and what the PCI
bus shows are the measure. It must never guess a number from an earlier boot.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good, unknown
from nodeagent.errors import ErrorKind
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.signals import PciGpus, Unread


def _expected(given: CheckInput) -> tuple[int, bool]:
    """GPUs that must be there at least (0: nothing is known yet), and whether that is all of them."""
    if given.gpu_expected_count:
        return given.gpu_expected_count, True
    pci = given.value("gpu.pci", NODE)
    no_bus = isinstance(pci, Unread) and pci.kind is ErrorKind.ABSENT
    on_bus = len(pci.addresses) if isinstance(pci, PciGpus) else 0
    baseline = given.memory.baseline
    this_boot = baseline is not None and baseline.boot_id == given.snapshot.now.at.boot_id
    seen_first = baseline.count if baseline is not None and this_boot else 0
    return max(on_bus, seen_first), no_bus or isinstance(pci, PciGpus)


def _missing(given: CheckInput, enumerated: set[str]) -> str:
    """Names the addresses that the bus or an earlier read showed and NVML does not."""
    pci = given.value("gpu.pci", NODE)
    known = set(pci.addresses) if isinstance(pci, PciGpus) else set()
    known |= {address for address, gpu in given.memory.gpus.items() if gpu.replaced is None}
    absent = sorted(known - enumerated)
    return f"; missing: {', '.join(absent)}" if absent else ""


def _newcomers(given: CheckInput) -> set[str]:
    """Addresses that came to the bus in this boot, and that NVML has never enumerated."""
    pci, baseline = given.value("gpu.pci", NODE), given.memory.baseline
    if not isinstance(pci, PciGpus) or baseline is None or baseline.bus is None:
        return set()
    if baseline.boot_id != given.snapshot.now.at.boot_id:
        return set()
    return set(pci.addresses) - set(baseline.bus) - set(given.memory.gpus)


def judge(given: CheckInput) -> Iterator[Finding]:
    """Fewer than expected is bad, more is not; number is GPUs enumerated.

    One that only came to the bus and is not yet enumerated is no fault of those that are there.
    """
    for target, devices, reading in given.values("gpu.devices"):
        count, (expected, is_all) = len(devices), _expected(given)
        shown = {"value": f"{count} GPUs", "limit": f"{expected or count} GPUs", "number": float(count)}
        if count < expected:
            missing = _missing(given, {gpu.pci_address for gpu in devices})
            sentence = f"{count} of {expected} GPUs enumerated{missing}"
            if count + len(_newcomers(given)) >= expected and not given.gpu_expected_count:
                more = {"node_class": NodeClass.CHECK, "cause": "newcomer"}
                yield bad(target, reading, f"{sentence}; new on the PCI bus", **shown, **more)
            else:
                yield bad(target, reading, sentence, **shown)
        elif is_all:
            yield good(target, reading, **shown)
        else:
            sentence = "the PCI bus was not read, so the number of GPUs to expect is not known"
            yield unknown(target, reading, sentence, value=f"{count} GPUs")


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
