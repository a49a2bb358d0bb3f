"""One read-all of NVML: every signal of every GPU by itself, each sent as soon as it is read.

One failing call must never cost another signal; a lost GPU is not called further, because each call
on it can block. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pynvml
from msgspec import Struct

from nodeagent import wire
from nodeagent.child import Channel
from nodeagent.drivers.nvml.asking import RECOVERY_ACTION, Asking
from nodeagent.drivers.nvml.condition import READERS, Reader
from nodeagent.drivers.nvml.library import (
    FUNCTION_NOT_FOUND,
    RESET_REQUIRED,
    UNINITIALIZED,
    Library,
    NvmlFailure,
)
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.signals import (
    EccCounters,
    GpuDriver,
    GpuIdentity,
    GpuPresence,
    GpuProcesses,
    RecoveryAction,
    RowRemap,
)


class Gpu(Struct, kw_only=True):
    """One enumerated GPU while it is read."""

    index: int
    pci_address: str
    pci_device_id: int | None = None
    pci_board_id: int | None = None
    handle: Any = None
    mig_enabled: bool = False
    lost: DriverError | None = None
    """Why it is not called any more."""
    answered: bool = False
    """The device itself, not the library's cache, answered a call of this read-all."""
    denied: DriverError | None = None
    """The last answer that a removed device permission would produce, too."""
    failure: DriverError | None = None
    reset_required: bool = False


class NvmlReader:
    """Reads on behalf of one child; holds what the library may not be asked twice."""

    def __init__(self, channel: Channel, library: Library, watch: Callable[[str, Any], None]) -> None:
        self._channel = channel
        self._library = library
        self._watch = watch
        self._initialised = False
        self._addresses: dict[int, tuple[str, int | None, int | None]] = {}
        """Index -> PCI address, device and board at the last good read."""
        self._names: dict[str, tuple[str | None, str | None, int | None]] = {}
        """PCI address -> UUID, name and minor number at the last good read."""
        self._lasting: dict[tuple[str, bool], dict[str, Any]] = {}
        """(UUID, MIG mode) -> what never changes while this library is loaded, and what is not supported."""
        self._refused: list[DriverError] = []
        """Why GPUs without a known address gave no handle in this read-all."""

    def read_all(self, request: wire.Request) -> wire.Done:
        """Send all signals; the answer tells when NVML as a whole does not work."""
        arguments = msgspec.json.decode(request.arguments, type=wire.NvmlArguments)
        try:
            gpus = self._enumerate(arguments)
        except NvmlFailure as failure:
            self._initialised = self._initialised and failure.code != UNINITIALIZED
            return _failed(request, failure)
        if not gpus and self._refused:
            return _failed(request, self._refused[0])
        for gpu in gpus:
            if gpu.handle is not None:
                self._watch(gpu.pci_address, gpu.handle)
        self._send("gpu.devices", NODE, tuple(self._identity(gpu) for gpu in gpus))
        for gpu in sorted(gpus, key=lambda gpu: gpu.pci_address in arguments.last):
            self._read_gpu(gpu)
        denied = [gpu.denied for gpu in gpus if gpu.denied is not None and not gpu.answered]
        if denied and len(denied) == len(gpus):
            return _failed(request, denied[0])
        return wire.Done(id=request.id)

    # ------------------------------------------------------------------ enumeration

    def _enumerate(self, arguments: wire.NvmlArguments) -> list[Gpu]:
        call = self._library.call
        if not self._initialised:
            call("nvmlInit", "")
            self._initialised = True
        version = call("nvmlSystemGetDriverVersion", "")
        nvml_version = call("nvmlSystemGetNVMLVersion", "")
        self._send("gpu.driver", NODE, GpuDriver(driver_version=version, nvml_version=nvml_version))
        count = call("nvmlDeviceGetCount", "")
        gpus: list[Gpu] = []
        self._refused.clear()
        for index in range(count):
            gpu = self._enumerated(index, arguments.known, {gpu.pci_address for gpu in gpus})
            if gpu is not None:
                gpus.append(gpu)
        return gpus

    def _enumerated(self, index: int, known: dict[int, str], taken: set[str]) -> Gpu | None:
        """The GPU of that index; one that gives no handle is known by its earlier address alone."""
        try:
            handle = self._library.call("nvmlDeviceGetHandleByIndex", f"GPU {index}", index)
            info = self._library.call("nvmlDeviceGetPciInfo_v3", f"GPU {index}", handle)
            address = normal_address(info.busId)
        except DriverError as error:
            earlier, device_id, board_id = self._addresses.get(index, (known.get(index, ""), None, None))
            if not earlier or earlier in taken:
                self._refused.append(error)
                return None
            gpu = Gpu(index=index, pci_address=earlier, pci_device_id=device_id, pci_board_id=board_id)
            self._note(gpu, error)
            gpu.lost = error
            return gpu
        device_id, board_id = int(info.pciDeviceId), int(info.pciSubSystemId)
        self._addresses[index] = (address, device_id, board_id)
        return Gpu(
            index=index, pci_address=address, pci_device_id=device_id, pci_board_id=board_id, handle=handle
        )

    def _identity(self, gpu: Gpu) -> GpuIdentity:
        uuid, name, minor = self._names.get(gpu.pci_address, (None, None, None))
        uuid = self._optional(gpu, "nvmlDeviceGetUUID") or uuid
        name = name or self._optional(gpu, "nvmlDeviceGetName")
        minor = self._optional(gpu, "nvmlDeviceGetMinorNumber") if minor is None else minor
        self._names[gpu.pci_address] = (uuid, name, minor)
        mode = self._optional(gpu, "nvmlDeviceGetMigMode")
        gpu.mig_enabled = bool(mode and mode[0])
        return GpuIdentity(
            index=gpu.index, pci_address=gpu.pci_address, uuid=uuid, name=name, minor=minor,
            pci_device_id=gpu.pci_device_id, pci_board_id=gpu.pci_board_id, mig_enabled=gpu.mig_enabled,
        )

    def _optional(self, gpu: Gpu, name: str) -> Any | None:
        if gpu.lost is not None:
            return None
        try:
            return self._library.call(name, gpu.pci_address, gpu.handle)
        except DriverError as error:
            self._note(gpu, error)
            return None

    # ------------------------------------------------------------------ signals of one GPU

    def _read_gpu(self, gpu: Gpu) -> None:
        asking = self._asking(gpu)
        self._signal(gpu, "gpu.recovery_action", lambda gpu: self._recovery_action(gpu, asking))
        self._signal(gpu, "gpu.ecc", self._ecc)
        self._signal(gpu, "gpu.row_remap", self._row_remap)
        self._signal(gpu, "gpu.processes", lambda gpu: self._processes(gpu, asking))
        for signal, reader in READERS.items():
            self._signal(gpu, signal, _supported(asking, signal, reader), proves=False)
        if gpu.lost is not None and gpu.lost.kind is ErrorKind.LOST:
            self._send("gpu.presence", gpu.pci_address, GpuPresence(reachable=False, detail=gpu.lost.detail))
        elif gpu.answered:
            detail = "NVML: the GPU requires a reset" if gpu.reset_required else ""
            self._send("gpu.presence", gpu.pci_address, GpuPresence(reachable=True, detail=detail))
        else:
            error = gpu.failure or DriverError(ErrorKind.INVALID, gpu.pci_address, "read", "no call answered")
            self._channel.send(wire.missing("gpu.presence", gpu.pci_address, error))

    def _asking(self, gpu: Gpu) -> Asking:
        """MIG mode can take a feature away and give it back, so what is kept is kept for one mode only."""
        uuid = self._names.get(gpu.pci_address, (None, None, None))[0]
        lasting = self._lasting.setdefault((uuid or gpu.pci_address, gpu.mig_enabled), {})
        return Asking(
            self._library, gpu.pci_address, gpu.handle, lasting=lasting, mig_enabled=gpu.mig_enabled
        )

    def _signal(
        self, gpu: Gpu, signal: str, read: Callable[[Gpu], Any], *, proves: bool = True
    ) -> None:
        """Read and send one signal; `proves`: only the device itself can answer it."""
        try:
            if gpu.lost is not None:
                raise gpu.lost
            noun = read(gpu)
        except DriverError as error:
            self._note(gpu, error)
            self._channel.send(wire.missing(signal, gpu.pci_address, error))
            return
        gpu.answered = gpu.answered or proves
        self._send(signal, gpu.pci_address, noun)

    def _note(self, gpu: Gpu, error: DriverError) -> None:
        """Keep what an error tells of the GPU as a whole."""
        gpu.failure = error
        if error.kind is ErrorKind.LOST:
            gpu.lost = error
        if isinstance(error, NvmlFailure) and error.access_lost:
            gpu.denied = error
        if isinstance(error, NvmlFailure) and error.code == RESET_REQUIRED:
            gpu.answered = gpu.reset_required = True

    def _recovery_action(self, gpu: Gpu, asking: Asking) -> RecoveryAction:
        try:
            return RecoveryAction(value=asking.field(RECOVERY_ACTION))
        except NvmlFailure as failure:
            if failure.code != RESET_REQUIRED:
                raise
            self._note(gpu, failure)
            return RecoveryAction(value=pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET)

    def _ecc(self, gpu: Gpu) -> EccCounters:
        def total(error_type: int, counter_type: int) -> int:
            name = "nvmlDeviceGetTotalEccErrors"
            return int(self._library.call(name, gpu.pci_address, gpu.handle, error_type, counter_type))

        corrected = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
        uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        return EccCounters(
            volatile_uncorrected=total(uncorrected, pynvml.NVML_VOLATILE_ECC),
            volatile_corrected=total(corrected, pynvml.NVML_VOLATILE_ECC),
            aggregate_uncorrected=total(uncorrected, pynvml.NVML_AGGREGATE_ECC),
            aggregate_corrected=total(corrected, pynvml.NVML_AGGREGATE_ECC),
        )

    def _row_remap(self, gpu: Gpu) -> RowRemap:
        answer = self._library.call("nvmlDeviceGetRemappedRows", gpu.pci_address, gpu.handle)
        corrected, uncorrected, pending, failed = answer
        return RowRemap(
            corrected_rows=corrected, uncorrected_rows=uncorrected, pending=bool(pending), failed=bool(failed)
        )

    def _processes(self, gpu: Gpu, asking: Asking) -> GpuProcesses:
        try:
            asking.processes = self._process_count(gpu)
        except DriverError as error:
            asking.processes = error
            raise
        return GpuProcesses(count=asking.processes)

    def _process_count(self, gpu: Gpu) -> int:
        name = "nvmlDeviceGetComputeRunningProcesses"
        try:
            return len(self._library.call(f"{name}_v3", gpu.pci_address, gpu.handle))
        except NvmlFailure as failure:
            if failure.code != FUNCTION_NOT_FOUND:
                raise
        return len(self._library.call(f"{name}_v2", gpu.pci_address, gpu.handle))

    def _send(self, signal: str, target: str, noun: Any) -> None:
        self._channel.send(wire.value(signal, target, noun))


def _supported(asking: Asking, signal: str, reader: Reader) -> Callable[[Gpu], Any]:
    """The reader, called again for a GPU only when that did not say "not supported" before."""
    return lambda _: asking.unless_lacking(signal, reader)


def normal_address(bus_id: str | bytes) -> str:
    """`00000000:4E:00.0` as the kernel writes it, `0000:4e:00.0`. Raises DriverError(invalid)."""
    text = bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id
    try:
        domain, bus, device = text.split(":")
        slot, function = device.split(".")
        return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(slot, 16):02x}.{int(function, 16):x}"
    except ValueError as error:
        raise DriverError(ErrorKind.INVALID, text[:40], "parse PCI address", "no PCI address") from error


def _failed(request: wire.Request, error: DriverError) -> wire.Done:
    cause = error.cause if isinstance(error, NvmlFailure) else "other"
    detail = f"{error.op}: {error.detail}"
    kind = ErrorKind.DENIED if cause == "access_lost" else error.kind
    return wire.Done(id=request.id, error_kind=kind, error_cause=cause, error_detail=detail)
