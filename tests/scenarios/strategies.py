"""What hypothesis may throw at the judgement: well-typed snapshots, and timelines of a scripted node."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from nodeagent import net_signals as net
from nodeagent import signals as s
from nodeagent.errors import ErrorKind
from nodeagent.model import NodeClass
from nodeagent.wire import VALUE_TYPES
from tests.scenarios.world import (
    GPU_A,
    GPU_B,
    clock,
    disk,
    ecc,
    healthy,
    healthy_host,
    healthy_network,
    identity,
    remap,
)

KINDS = st.sampled_from(list(ErrorKind))
DOWN = s.KubeletHealth(healthy=False, detail="connection refused")


def _per_gpu(pci_address: str) -> dict[str, list[Any]]:
    return {
        f"gpu.presence@{pci_address}": [s.GpuPresence(reachable=False, detail="GPU is lost")],
        f"gpu.recovery_action@{pci_address}": [s.RecoveryAction(value=value) for value in (1, 2, 5, 9)],
        f"gpu.ecc@{pci_address}": [ecc(1), ecc(3), ecc(0, corrected=50)],
        f"gpu.row_remap@{pci_address}": [remap(pending=True)],
        f"gpu.processes@{pci_address}": [s.GpuProcesses(count=0)],
    }


WORSE: dict[str, list[Any]] = {
    **_per_gpu(GPU_A),
    **_per_gpu(GPU_B),
    "gpu.devices": [(identity(0, GPU_A),), ()],
    "gpu.kernel_driver": [s.KernelDriver(version="590.10")],
    "worker.nvml": [
        s.WorkerStatus(state="stuck", misses=3),
        s.WorkerStatus(state="reading", misses=1),
        s.WorkerStatus(state="idle", error_kind=ErrorKind.INVALID, error_cause="mismatch"),
        s.WorkerStatus(state="idle", error_kind=ErrorKind.DENIED, error_cause="access_lost"),
        s.WorkerStatus(state="released"),
    ],
    "disk.usage@/": [disk(1.0)],
    "clock.sync": [clock(synchronized=False)],
    "kubelet.health": [DOWN],
    "state_file": [s.StateFileStatus(writable=False, detail="ENOSPC")],
    "link.devices": [(), (net.NetDevice(name="eth0", index=2, carrier=False, down_count=9),)],
    "net.adapters": [net.NetAdapters(addresses=())],
    "ib.port@mlx5_0/1": [net.IbPort(state="DOWN", phys_state="Polling", link_layer="InfiniBand")],
    "ib.counters@mlx5_0/1": [net.IbCounters(link_downed_count=count) for count in (9, 255)],
    "net.gateway@10.0.0.1%eth0": [net.Gateway(state="failed"), net.Gateway(state="none")],
    "conntrack": [net.ConntrackTable(entries_count=9, limit_count=9, dropped_count=9)],
    "neighbour.table@ipv4": [net.NeighbourTable(entries_count=9, limit_count=9, overflow_count=9)],
}
"""What may go wrong, by signal."""

unread = KINDS.map(lambda kind: s.Unread(kind=kind, reason="not read"))


def _change(name: str) -> st.SearchStrategy[dict[str, Any]]:
    worse = st.sampled_from(WORSE[name])
    values = st.one_of(worse, worse, unread, st.just(healthy()[name]))
    return values.map(lambda value: {name: value})


changes = st.sampled_from(sorted(WORSE)).flatmap(_change)
xids = st.builds(
    s.XidEvent,
    source=st.sampled_from(["kernel", "nvml"]),
    pci_address=st.sampled_from([GPU_A, GPU_B]),
    number=st.sampled_from([13, 43, 48, 63, 74, 79, 92, 95, 109, 119, 154, 999]),
    at_seconds=st.just(0.0),
    text=st.just("NVRM: Xid"),
)
commands = st.builds(
    s.GpuCommand,
    verb=st.sampled_from(["release", "resume", "repaired"]),
    for_seconds=st.sampled_from([None, 60.0]),
    target=st.sampled_from([None, GPU_A]),
)
steps = st.one_of(
    changes.map(lambda change: ("put", change)),
    changes.map(lambda change: ("put", change)),
    st.just(("heal", None)),
    st.sampled_from([2, 3, 22]).map(lambda polls: ("run", polls)),
    xids.map(lambda event: ("xid", event)),
    commands.map(lambda event: ("emit", event)),
    st.sampled_from([-3600.0, 3600.0]).map(lambda seconds: ("step_wall", seconds)),
    st.just(("reboot", None)),
)
timelines = st.lists(steps, min_size=5, max_size=14)
"""Scripts: each step is a verb of the world and its argument."""

OF_NODE = frozenset(name.partition("@")[0] for name in (*healthy_network(), *healthy_host())) | {"net.target"}
NOUNS: dict[str, Any] = {
    "gpu.driver": s.GpuDriver,
    "gpu.devices": tuple[s.GpuIdentity, ...],
    "gpu.presence": s.GpuPresence,
    "gpu.recovery_action": s.RecoveryAction,
    "gpu.ecc": s.EccCounters,
    "gpu.row_remap": s.RowRemap,
    "gpu.processes": s.GpuProcesses,
    "gpu.pci": s.PciGpus,
    "gpu.kernel_driver": s.KernelDriver,
    "disk.usage": s.DiskUsage,
    "clock.sync": s.ClockSync,
    "kubelet.health": s.KubeletHealth,
    "worker.nvml": s.WorkerStatus,
    "worker.host": s.WorkerStatus,
    "kernel_log": s.KernelLogStatus,
    "state_file": s.StateFileStatus,
    **{name: noun for name, noun in VALUE_TYPES.items() if name in OF_NODE},
}
"""Signal -> its noun."""


def of(noun: Any) -> st.SearchStrategy[Any]:
    """Any value of the noun's types: negative counts, odd text, huge numbers; no clock says NaN."""
    basic: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**63), 2**64),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(max_size=8)
        | st.sampled_from(["stuck", "released", "kernel", "nvml", "release", "resume"]),
        bool: st.booleans(),
        type(None): st.none(),
        ErrorKind: KINDS,
        NodeClass: st.sampled_from(list(NodeClass)),
    }
    if noun in basic:
        return basic[noun]
    arguments = getattr(noun, "__args__", ())
    if getattr(noun, "__origin__", None) is tuple:
        return st.lists(of(arguments[0]), max_size=3).map(tuple)
    if arguments:
        return st.one_of([of(argument) for argument in arguments])
    hints = {field.name: field.type for field in noun_fields(noun)}
    return st.builds(noun, **{name: of(kind) for name, kind in hints.items()})


def noun_fields(noun: Any) -> Any:
    """Fields of a struct with their types resolved."""
    import msgspec

    return msgspec.structs.fields(noun)


targets = st.sampled_from(["node", GPU_A, GPU_B, "/", "/data", "", "odd target|x"])
names = st.builds(lambda signal, target: f"{signal}@{target}", st.sampled_from(sorted(NOUNS)), targets)
boards = st.dictionaries(names, st.none(), max_size=14).flatmap(
    lambda keys: st.fixed_dictionaries({key: of(NOUNS[key.partition("@")[0]]) | unread for key in keys})
)
events = st.lists(of(s.Event), max_size=5)
