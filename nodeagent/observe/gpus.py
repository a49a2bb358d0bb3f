"""Samples NVML through its worker: readings to the board, Xid events to the inbox.

When NVML fails as a whole nothing good is left standing, and while it is released nothing is known of
the GPUs but what the host shows. It judges nothing.
"""

from __future__ import annotations

import asyncio
import contextlib

from nodeagent import wire
from nodeagent.drivers.clock import Clock
from nodeagent.drivers.worker import Worker
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.bus_watch import BusWatch
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.pace import Pace
from nodeagent.observe.worker_readings import WorkerReadings
from nodeagent.signals import GpuDriver, GpuIdentity, KernelDriver, PciGpus, WorkerStatus, XidEvent

STATUS_SIGNAL = "worker.nvml"
SIGNALS = (
    "gpu.driver", "gpu.devices", "gpu.presence", "gpu.recovery_action", "gpu.ecc", "gpu.row_remap",
    "gpu.processes", "gpu.sram", "gpu.retired_pages", "gpu.temperature_margin", "gpu.persistence",
    "gpu.thermal_slowdown", "gpu.power_brake", "gpu.pcie_link", "gpu.pcie_replay", "gpu.ownerless_memory",
    "gpu.nvlink", "gpu.nvlink_errors", "gpu.fabric",
)
FRESH_LIBRARY_CAUSES = ("mismatch", "access_lost")
"""Only a new process can find NVML well again after these."""


class GpuSampler:
    """One task; the worker is its own from construction on."""

    def __init__(
        self, worker: Worker, board: Board, inbox: Inbox, clock: Clock, *, poll_seconds: float = 15.0
    ) -> None:
        """`poll_seconds`: from the start of one read-all to the start of the next."""
        self._worker = worker
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._bus = BusWatch()
        self._pace = Pace(clock, poll_seconds)
        self._readings = WorkerReadings(board, inbox, clock, SIGNALS, poll_seconds)
        self._wanted = False
        self._released = False
        self._addresses: dict[int, str] = {}
        self._hung: tuple[str, ...] = ()
        """GPUs to read last, because a call on them hung."""
        self._kernel_version: str | None = None
        """Kernel driver when the worker was last replaced for its sake."""
        self._restarts = 0
        self._parking: asyncio.Task[None] | None = None
        worker.on_message = self._on_message
        worker.on_change = self._on_change

    async def run(self) -> None:
        """Sample for ever; cancel it to end. The worker is stopped by whoever made it."""
        self._on_change()
        while True:
            self._pace.start()
            if self._wanted and not self._released:
                await self._read()
                self._inbox.wake()
            await self._pace.wait(self._ready_at_seconds)

    def request_now(self) -> None:
        """Read soon instead of at the next poll."""
        self._pace.wake()

    def set_wanted(self, wanted: bool) -> None:
        """Read NVML from now on, or leave it alone; called as often as one likes."""
        if wanted == self._wanted:
            return
        self._wanted = wanted
        if wanted:
            self._unpark()
        else:
            self._parking = asyncio.create_task(self._park_quietly())

    async def release(self) -> None:
        """Let go of NVML: returns when the worker's process is gone, so that a GPU reset succeeds.

        Raises DriverError(timeout) while it is inside a call that does not return; it goes as soon as
        it can, and the release stands.
        """
        self._released = True
        await self._park()

    def resume(self) -> None:
        """End the release and read at once."""
        self._released = False
        if self._wanted:
            self._unpark()
        else:
            self._parking = asyncio.create_task(self._park_quietly())

    # ------------------------------------------------------------------ parking

    async def _park(self) -> None:
        self._readings.forget()
        await self._worker.park("released" if self._released else "absent")

    async def _park_quietly(self) -> None:
        if self._wanted and not self._released:
            return  # wanted again before this task began
        with contextlib.suppress(DriverError):
            await self._park()

    def _unpark(self) -> None:
        if self._wanted and not self._released:
            self._worker.unpark()
            self._pace.wake()

    # ------------------------------------------------------------------ reading

    async def _read(self) -> None:
        self._readings.seen.clear()
        try:
            done = await self._worker.read(wire.NvmlArguments(known=self._addresses, last=self._hung))
        except DriverError as error:
            if not self._worker.parked:
                self._readings.grow_stale(error.kind, f"NVML: {error.detail}")
            return
        if done.error_kind is not None:
            self._readings.fail(done.error_kind, f"NVML: {done.error_detail}", ("gpu.devices",))
            if done.error_cause in FRESH_LIBRARY_CAUSES:
                await self._replace(done.error_cause)
            return
        self._hung = ()
        for key in self._readings.vanished():
            self._board.drop(key.signal, key.target)
        await self._follow_driver()
        await self._follow_bus()

    async def _follow_driver(self) -> None:
        """A library of another version than the kernel driver's is replaced, once for each such driver."""
        kernel, library = self._readings.value("gpu.kernel_driver"), self._readings.value("gpu.driver")
        if not isinstance(kernel, KernelDriver) or not isinstance(library, GpuDriver):
            return
        if kernel.version not in (library.driver_version, self._kernel_version):
            await self._replace(f"the kernel driver is {kernel.version}, NVML says {library.driver_version}")

    async def _follow_bus(self) -> None:
        """A GPU that came to the bus since NVML was loaded is found by a new worker only."""
        bus, devices = self._readings.value("gpu.pci"), self._readings.value("gpu.devices")
        if not isinstance(bus, PciGpus) or not isinstance(devices, tuple):
            return
        enumerated = [gpu.pci_address for gpu in devices]
        added = self._bus.added(bus.addresses, enumerated, self._clock.monotonic_seconds())
        if added:
            await self._replace(f"GPU {added} is on the PCI bus and was not when NVML was loaded")

    async def _replace(self, reason: str) -> None:
        self._kernel_version = self._current_kernel_version()
        with contextlib.suppress(DriverError):
            await self._worker.replace(reason)

    def _current_kernel_version(self) -> str | None:
        kernel = self._readings.value("gpu.kernel_driver")
        return kernel.version if isinstance(kernel, KernelDriver) else None

    def _ready_at_seconds(self) -> float:
        """The worker's backoff, which ends early when another kernel driver was loaded meanwhile."""
        version = self._current_kernel_version()
        if self._worker.status.state == "backoff" and version not in (None, self._kernel_version):
            self._kernel_version = version
            self._worker.forgive()
        return self._worker.ready_at_seconds

    # ------------------------------------------------------------------ what the worker tells

    def _on_message(self, message: wire.Message) -> None:
        if isinstance(message, XidEvent):
            self._inbox.put(message, urgent=True)
        elif isinstance(message, wire.Value | wire.Missing):
            value = self._readings.take(message)
            if isinstance(value, tuple):
                self._addresses = {
                    gpu.index: gpu.pci_address for gpu in value if isinstance(gpu, GpuIdentity)
                }

    def _on_change(self) -> None:
        status = self._worker.status
        if status.state in ("released", "absent"):
            self._readings.forget()
        self._board.put(STATUS_SIGNAL, NODE, self._shown(status))
        self._readings.show_pending(status)
        if status.state == "stuck":
            call = status.pending_call or "a call"
            self._hung = tuple(address for address in self._addresses.values() if call.endswith(address))
            self._readings.grow_stale(ErrorKind.TIMEOUT, f"NVML: {call} has not returned")
        if status.restarts != self._restarts:
            self._restarts = status.restarts
            self._pace.wake()

    def _shown(self, status: WorkerStatus) -> WorkerStatus:
        """Before the first order to read, the worker is absent, not starting."""
        if self._wanted or status.pid is not None or status.state != "starting":
            return status
        return WorkerStatus(state="absent")
