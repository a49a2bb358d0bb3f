"""What the daemon and its disposable workers say to each other: one JSON message a line.

The daemon sends `Request`; the worker answers with a `Mark` before each call that could block,
a `Value` or a `Missing` as soon as a signal is read, and one `Done`. Events come at any time.
Pure: it encodes and decodes, it never reads or writes. Whatever does not decode is an `ErrorKind.INVALID`
for the caller, never a crash.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.errors import DriverError, ErrorKind
from nodeagent.gpu_signals import (
    FabricManager,
    FabricState,
    MonotonicCount,
    NvLinkErrors,
    NvLinks,
    OwnerlessMemory,
    PcieLink,
    PersistenceMode,
    RetiredPages,
    SlowedTime,
    SramErrors,
    TemperatureMargin,
)
from nodeagent.host_signals import (
    DiskErrors,
    GpuHolders,
    KernelCount,
    MemoryPressure,
    MountFlags,
    RuntimeHealth,
)
from nodeagent.net_signals import (
    ConntrackTable,
    Gateway,
    IbCounters,
    IbPort,
    NeighbourTable,
    NetAdapters,
    NetDevice,
    TcpTarget,
)
from nodeagent.signals import (
    ClockSync,
    DiskUsage,
    EccCounters,
    GpuDriver,
    GpuIdentity,
    GpuPresence,
    GpuProcesses,
    KernelDriver,
    KubeletHealth,
    PciGpus,
    RecoveryAction,
    RowRemap,
    Unread,
    XidEvent,
)

LINE_LIMIT_BYTES = 1 << 20
"""A longer line from a worker is no message."""

VALUE_TYPES: dict[str, Any] = {
    "gpu.driver": GpuDriver,
    "gpu.devices": tuple[GpuIdentity, ...],
    "gpu.presence": GpuPresence,
    "gpu.recovery_action": RecoveryAction,
    "gpu.ecc": EccCounters,
    "gpu.row_remap": RowRemap,
    "gpu.processes": GpuProcesses,
    "gpu.sram": SramErrors,
    "gpu.retired_pages": RetiredPages,
    "gpu.temperature_margin": TemperatureMargin,
    "gpu.persistence": PersistenceMode,
    "gpu.thermal_slowdown": SlowedTime,
    "gpu.power_brake": SlowedTime,
    "gpu.pcie_link": PcieLink,
    "gpu.pcie_replay": MonotonicCount,
    "gpu.ownerless_memory": OwnerlessMemory,
    "gpu.nvlink": NvLinks,
    "gpu.nvlink_errors": NvLinkErrors,
    "gpu.fabric": FabricState,
    "fabric.manager": FabricManager,
    "gpu.pci": PciGpus,
    "gpu.kernel_driver": KernelDriver,
    "disk.usage": DiskUsage,
    "clock.sync": ClockSync,
    "kubelet.health": KubeletHealth,
    "link.devices": tuple[NetDevice, ...],
    "net.adapters": NetAdapters,
    "ib.port": IbPort,
    "ib.counters": IbCounters,
    "net.gateway": Gateway,
    "net.target": TcpTarget,
    "conntrack": ConntrackTable,
    "neighbour.table": NeighbourTable,
    "disk.mount": MountFlags,
    "disk.errors": DiskErrors,
    "process.gpu_holders": GpuHolders,
    "memory.oom_kills": KernelCount,
    "memory.pressure": MemoryPressure,
    "kernel.hung_tasks": KernelCount,
    "runtime.health": RuntimeHealth,
}
"""Signal -> type of its value."""


class NvmlArguments(Struct, frozen=True, kw_only=True):
    """Arguments of a read-all of NVML."""

    known: dict[int, str] = {}
    """NVML index -> PCI address at the last enumeration: names a GPU whose handle is refused."""
    last: tuple[str, ...] = ()
    """PCI addresses to read after all others, because a call on them hung before."""


class HostArguments(Struct, frozen=True, kw_only=True):
    """Arguments of a read-all of the host."""

    host_root: str = "/"
    proc_root: str = "/proc"
    sys_root: str = "/sys"
    paths: tuple[str, ...] = ()
    """Paths the operator named: read whatever file system they are on."""
    skip: tuple[str, ...] = ()
    """Mount points, paths and calls that did not answer: not touched this time."""
    kubelet_port: int = 10248
    kubelet_deadline_seconds: float = 2.0
    net_devices: tuple[str, ...] = ()
    """Network devices the operator named: read whatever kind they are."""
    tcp_targets: tuple[str, ...] = ()
    """HOST:PORT the operator named; empty: the default gateways are asked of the kernel instead."""
    tcp_deadline_seconds: float = 2.0
    runtime_socket: str = ""
    """Path of the CRI socket as the host sees it; "": look for it."""


class Request(Struct, frozen=True, kw_only=True):
    """Read everything once; `arguments` is the noun of that kind of worker."""

    id: int
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class Mark(Struct, frozen=True, kw_only=True, tag="mark"):
    """The worker is about to make a call that could block."""

    call: str
    target: str = ""


class Value(Struct, frozen=True, kw_only=True, tag="value"):
    """One signal that was read."""

    signal: str
    target: str
    value: msgspec.Raw

    def typed(self) -> Any:
        """The value as its signal noun; DriverError(invalid) for an unknown signal or a wrong shape."""
        kind = VALUE_TYPES.get(self.signal)
        if kind is None:
            detail = f"unknown signal {self.signal[:80]!r}"
            raise DriverError(ErrorKind.INVALID, self.target, "decode", detail)
        try:
            return msgspec.json.decode(self.value, type=kind)
        except msgspec.MsgspecError as error:
            raise DriverError(ErrorKind.INVALID, self.target, f"decode {self.signal}", str(error)) from error


class Missing(Struct, frozen=True, kw_only=True, tag="missing"):
    """One signal that could not be read."""

    signal: str
    target: str
    unread: Unread


class Done(Struct, frozen=True, kw_only=True, tag="done"):
    """The read-all is over; the error fields tell why it failed as a whole."""

    id: int
    error_kind: ErrorKind | None = None
    error_cause: str = ""
    error_detail: str = ""


Message = Mark | Value | Missing | Done | XidEvent

_encoder = msgspec.json.Encoder()
_messages = msgspec.json.Decoder(Message)
_requests = msgspec.json.Decoder(Request)


def encode(message: Message | Request) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def value(signal: str, target: str, noun: Any) -> Value:
    """A `Value` of a signal noun."""
    return Value(signal=signal, target=target, value=msgspec.Raw(_encoder.encode(noun)))


def missing(signal: str, target: str, error: DriverError) -> Missing:
    """A `Missing` with the reason of a failed read."""
    reason = f"{error.op}: {error.detail}" if error.detail else f"{error.op}: {error.kind.value}"
    return Missing(signal=signal, target=target, unread=Unread(kind=error.kind, reason=reason))


def request(number: int, arguments: NvmlArguments | HostArguments | None = None) -> Request:
    """A `Request` with its arguments encoded."""
    raw = _encoder.encode(arguments) if arguments is not None else b"{}"
    return Request(id=number, arguments=msgspec.Raw(raw))


def decode_message(line: bytes) -> Message:
    """A worker's line; DriverError(invalid) when it is no message."""
    try:
        return _messages.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DriverError(ErrorKind.INVALID, "worker", "decode message", str(error)) from error


def decode_request(line: bytes) -> Request:
    """The daemon's line; DriverError(invalid) when it is no request."""
    try:
        return _requests.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DriverError(ErrorKind.INVALID, "daemon", "decode request", str(error)) from error
