"""`gpu.memory_orphaned`: GPU memory is in use although no process holds the GPU.

A process that died inside the driver can leave its memory behind, and the next job finds too little. On
boards whose memory the operating system owns as a NUMA node, use without a process is normal.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable
from nodeagent.decide.nvlink_table import OF_SYSTEM_MEMORY, device_of
from nodeagent.model import NODE, Finding, NodeClass

MIB = 1 << 20


def judge(given: CheckInput) -> Iterator[Finding]:
    """More memory in use than the limit while nobody holds the GPU is bad; number is bytes."""
    limit_bytes = given.limits["used_bytes"]
    devices = given.value("gpu.devices", NODE)
    listed = devices if isinstance(devices, tuple) else ()
    shared = {gpu.pci_address for gpu in listed if device_of(gpu.pci_device_id) in OF_SYSTEM_MEMORY}
    in_mig = {gpu.pci_address for gpu in listed if gpu.mig_enabled}
    for target, memory, reading in given.values("gpu.ownerless_memory"):
        limit = f"{limit_bytes / MIB:.0f} MiB"
        if memory.of_system or target in shared or target in in_mig:
            words = "the GPU is in MIG mode" if target in in_mig else "the system owns this GPU's memory"
            yield not_applicable(target, words)
        elif memory.used_bytes is None:
            yield good(target, reading, value="in use by processes", limit=limit)
        else:
            used = f"{memory.used_bytes / MIB:.0f} MiB"
            shown = {"value": used, "limit": limit, "number": float(memory.used_bytes)}
            if memory.used_bytes <= limit_bytes:
                yield good(target, reading, **shown)
            else:
                yield bad(target, reading, f"{used} are in use, and no process holds the GPU", **shown)


CHECKS = (
    Check(
        id="gpu.memory_orphaned",
        title="GPU memory without an owner",
        family="gpu",
        signals=("gpu.ownerless_memory",),
        source="NVML memory in use while NVML lists no compute process",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(name="used_bytes", unit="bytes", default=512 * MIB,
                  meaning="Memory in use without a process that is still tolerated."),
        ),
        hold=HoldRule(bad_polls=5, of_polls=5),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
)
