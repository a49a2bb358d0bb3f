"""Cases of `gpu.memory_orphaned`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import OwnerlessMemory
from nodeagent.signals import GpuIdentity, Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.ownerless_memory@{GPU}"
MIB = 1 << 20


def used(
    mib: int | None, *, of_system: bool = False, device: int = 0x2330, mig: bool = False
) -> dict[str, object]:
    """Memory in use on an idle GPU; None while a process holds it."""
    identity = GpuIdentity(
        index=0, pci_address=GPU, uuid="GPU-1", name="NVIDIA GPU", pci_device_id=device << 16 | 0x10DE,
        mig_enabled=mig,
    )
    memory = OwnerlessMemory(used_bytes=None if mib is None else mib * MIB, of_system=of_system)
    return {SIGNAL: memory, "gpu.devices": (identity,)}


CASES = (
    Case(name="healthy", readings=used(4), want=ok(GPU, value="4 MiB", limit="512 MiB")),
    Case(
        name="healthy: a process holds the GPU", readings=used(None),
        want=ok(GPU, value="in use by processes"),
    ),
    Case(name="at the limit", readings=used(512), want=ok(GPU)),
    Case(
        name="over the limit", readings=used(40_000),
        want=bad(GPU, says="40000 MiB are in use, and no process holds the GPU"),
    ),
    Case(
        name="over the limit that the operator set", readings=used(16), limits={"used_bytes": 15 * MIB},
        want=bad(GPU, limit="15 MiB"),
    ),
    Case(
        name="not supported: the system owns the memory", readings=used(40_000, of_system=True),
        want=not_applicable(GPU, says="the system owns this GPU's memory"),
    ),
    Case(
        name="not supported: a GB200 whose old driver does not tell", readings=used(40_000, device=0x2941),
        want=not_applicable(GPU, says="the system owns"),
    ),
    Case(
        name="not supported: MIG mode", readings=used(None, mig=True),
        want=not_applicable(GPU, says="MIG mode"),
    ),
    Case(name="recovered: it was given back", readings=used(0), want=ok(GPU)),
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
