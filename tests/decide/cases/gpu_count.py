"""Cases of `gpu.count`."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import GpuBaseline, GpuMemory, Memory
from nodeagent.model import NodeClass
from nodeagent.signals import GpuIdentity, PciGpus, Unread
from tests.decide.build import BOOT, Case, bad, not_applicable, ok, unknown

A, B, C = "0000:4e:00.0", "0000:5e:00.0", "0000:6e:00.0"


def gpus(*addresses: str) -> tuple[GpuIdentity, ...]:
    """Enumerated devices at these addresses."""
    return tuple(
        GpuIdentity(index=i, pci_address=address, uuid=f"GPU-{i}", name="H100")
        for i, address in enumerate(addresses)
    )


def first_seen(count: int, boot_id: str = BOOT, **more: GpuMemory) -> Memory:
    """Memory of a boot that first showed `count` GPUs."""
    return Memory(boot_id=BOOT, baseline=GpuBaseline(boot_id=boot_id, count=count), gpus=dict(more))


CASES = (
    Case(
        name="healthy",
        readings={"gpu.devices": gpus(A, B), "gpu.pci": PciGpus(addresses=(A, B))},
        memory=first_seen(2),
        want=ok(value="2 GPUs", limit="2 GPUs"),
    ),
    Case(
        name="at the limit: exactly the configured number",
        readings={"gpu.devices": gpus(A, B)},
        gpu_expected_count=2,
        want=ok(),
    ),
    Case(
        name="over the limit: one GPU short of the configured number",
        readings={"gpu.devices": gpus(A)},
        gpu_expected_count=2,
        want=bad(value="1 GPUs", limit="2 GPUs", says="1 of 2"),
    ),
    Case(
        name="more than configured is no fault",
        readings={"gpu.devices": gpus(A, B, C)},
        gpu_expected_count=2,
        want=ok(),
    ),
    Case(
        name="fewer than this boot first showed names the missing address",
        readings={"gpu.devices": gpus(A), "gpu.pci": PciGpus(addresses=(A,))},
        memory=first_seen(2, **{A: GpuMemory(), B: GpuMemory()}),
        want=bad(says=f"missing: {B}"),
    ),
    Case(
        name="an earlier boot's number is no measure",
        readings={"gpu.devices": gpus(A), "gpu.pci": PciGpus(addresses=(A,))},
        memory=first_seen(2, boot_id="boot-0"),
        want=ok(),
    ),
    Case(
        name="fewer than the bus shows names the missing address",
        readings={"gpu.devices": gpus(A), "gpu.pci": PciGpus(addresses=(A, B))},
        want=bad(says=f"missing: {B}"),
    ),
    Case(
        name="a GPU that came to the bus in this boot and is not enumerated yet asks for no reboot",
        readings={"gpu.devices": gpus(A), "gpu.pci": PciGpus(addresses=(A, B))},
        memory=Memory(
            boot_id=BOOT, baseline=GpuBaseline(boot_id=BOOT, count=2, bus=(A,)), gpus={A: GpuMemory()}
        ),
        want=bad(node_class=NodeClass.CHECK, cause="newcomer", says=f"missing: {B}; new on the PCI bus"),
    ),
    Case(
        name="a newcomer does not hide one that is gone",
        readings={"gpu.devices": gpus(A), "gpu.pci": PciGpus(addresses=(A, B, C))},
        memory=Memory(
            boot_id=BOOT, baseline=GpuBaseline(boot_id=BOOT, count=3, bus=(A, B)),
            gpus={A: GpuMemory(), B: GpuMemory()},
        ),
        want=bad(cause="", says=f"missing: {B}, {C}"),
    ),
    Case(
        name="the operator's number outranks the bus",
        readings={"gpu.devices": gpus(A), "gpu.pci": PciGpus(addresses=(A, B))},
        gpu_expected_count=1,
        want=ok(),
    ),
    Case(
        name="no GPU enumerated at all",
        readings={"gpu.devices": (), "gpu.pci": PciGpus(addresses=(A,))},
        want=bad(value="0 GPUs"),
    ),
    Case(
        name="the bus unread leaves the first count as measure",
        readings={"gpu.devices": gpus(A), "gpu.pci": Unread(kind=ErrorKind.DENIED, reason="EACCES")},
        memory=first_seen(2),
        want=bad(),
    ),
    Case(
        name="the bus unread proves nothing good",
        readings={"gpu.devices": gpus(A, B), "gpu.pci": Unread(kind=ErrorKind.DENIED, reason="EACCES")},
        memory=first_seen(2),
        want=unknown(says="the PCI bus was not read"),
    ),
    Case(
        name="a machine without a PCI bus goes by the first count",
        readings={"gpu.devices": gpus(A, B), "gpu.pci": Unread(kind=ErrorKind.ABSENT, reason="no sysfs")},
        memory=first_seen(2),
        want=ok(),
    ),
    Case(
        name="unread: timeout",
        readings={"gpu.devices": Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(says="no answer"),
    ),
    Case(
        name="unread: lost",
        readings={"gpu.devices": Unread(kind=ErrorKind.LOST, reason="worker died")},
        want=unknown(),
    ),
    Case(
        name="not supported",
        readings={"gpu.devices": Unread(kind=ErrorKind.ABSENT, reason="NVML is released")},
        want=not_applicable(says="released"),
    ),
    Case(name="missing on the board", readings={}, want=unknown(says="not read yet")),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
