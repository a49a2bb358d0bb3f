"""Builds the observing half of the agent; the daemon and the one-shot check both use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from nodeagent.decide.check import Check
from nodeagent.decide.decide import gpu_wanted
from nodeagent.decide.registry import registry
from nodeagent.decide.rules import effective_limits
from nodeagent.decide.xid_table import XidTable
from nodeagent.drivers.clock import Clock, SystemClock
from nodeagent.drivers.kmsg import open_kmsg
from nodeagent.drivers.worker import Worker, python_module
from nodeagent.errors import ConfigError, DriverError
from nodeagent.memory import Memory
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.gpus import GpuSampler
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.kernel_log import KernelLog
from nodeagent.observe.node import NetworkAsked, NodeSampler
from nodeagent.settings import Settings
from nodeagent.signals import KernelDriver, Reading, SignalKey, read_as
from nodeagent.xid_data import load_xid_table

FIRST_LOOK_SECONDS = 8.0
"""How long the first cycle waits for every signal to have been tried once."""

WAYS_OUT = ("net.gateway", "net.target")
"""One of these is the last that the host worker reads of the network."""
HOST_SIGNALS = (("kubelet.health",), WAYS_OUT, ("process.gpu_holders",))
"""Of each of these groups a signal is there once the host was read."""

CANCEL_AGAIN_SECONDS = 2.0
"""How long a cancelled task may take to clean up before it is taken for one that goes on."""


class Parts:
    """Board, inbox, workers and samplers of one process."""

    def __init__(self, settings: Settings, memory: Memory, clock: Clock) -> None:
        self.clock = clock
        self.board = Board(clock)
        self.inbox = Inbox()
        self.checks: Mapping[str, Check] = registry()
        self.table: XidTable = load_xid_table()
        self.settings = settings
        self._released = memory.release is not None
        self._memory_at_start = memory
        gpu = settings.gpu
        self.nvml_worker = Worker(
            "nvml", python_module("nodeagent.drivers.nvml"), clock,
            call_deadline_seconds=gpu.call_deadline_seconds, stuck_seconds=gpu.stuck_seconds,
        )
        self.host_worker = Worker(
            "host", python_module("nodeagent.drivers.host"), clock,
            call_deadline_seconds=gpu.call_deadline_seconds, stuck_seconds=gpu.stuck_seconds,
            kill_seconds=0,
        )
        self.gpus = GpuSampler(
            self.nvml_worker, self.board, self.inbox, clock, poll_seconds=gpu.poll_seconds
        )
        self.node = NodeSampler(
            self.host_worker, self.board, self.inbox, clock, host_root=settings.node.host_root,
            proc_root=settings.node.proc_root, paths=self._disk_paths(settings),
            runtime_socket=self._runtime_socket(settings),
        )
        self.node.set_network(self._network_asked(settings))
        self.kernel_log = KernelLog(
            lambda: open_kmsg(settings.node.kernel_log), self.board, self.inbox, clock, self.table,
            cursor=memory.kernel_log, driver_version=self._driver_version,
        )

    def _driver_version(self) -> str:
        """The driver that prints the kernel log's lines: as the host shows it now, else as last known."""
        shown = read_as(self.board.readings().get(SignalKey("gpu.kernel_driver", NODE)), KernelDriver)
        return shown.version if shown is not None else self._memory_at_start.driver_version

    def _disk_paths(self, settings: Settings) -> tuple[str, ...]:
        checks = [self.checks[name] for name in ("disk.full", "disk.inodes") if name in self.checks]
        named = [path for check in checks for path in effective_limits(check, settings)["paths"]]
        return tuple(dict.fromkeys(named))

    def _runtime_socket(self, settings: Settings) -> str:
        check = self.checks.get("runtime.down")
        return str(effective_limits(check, settings)["socket"]) if check is not None else ""

    def _network_asked(self, settings: Settings) -> NetworkAsked:
        limits = {
            name: effective_limits(check, settings) for name in ("link.down", "net.unreachable")
            if (check := self.checks.get(name)) is not None and settings.check(name).enabled
        }
        devices = limits.get("link.down", {}).get("devices", ())
        reach = limits.get("net.unreachable", {})
        return NetworkAsked(
            devices=tuple(devices), targets=tuple(reach.get("targets", ())),
            deadline_seconds=reach.get("deadline_seconds", 2.0),
        )

    def apply(self, settings: Settings) -> None:
        """Put reloaded settings into the samplers."""
        self.settings = settings
        self.node.set_paths(self._disk_paths(settings))
        self.node.set_network(self._network_asked(settings))
        self.node.set_runtime_socket(self._runtime_socket(settings))

    def update_wanted(self) -> None:
        """Read NVML when GPU checks apply here, and not otherwise."""
        snapshot_readings = self.board.readings()
        remembered = bool(self._memory_at_start.gpus)
        self.gpus.set_wanted(gpu_wanted(self.settings, snapshot_readings, remembered=remembered))

    async def first_look(self, deadline_seconds: float = FIRST_LOOK_SECONDS) -> None:
        """Return when every signal was tried once, or at the deadline: a hung call is no excuse.

        A release of NVML that an earlier run was asked for stands: nothing is loaded meanwhile.
        """
        if self._released:
            await self.gpus.release()
        end_seconds = self.clock.monotonic_seconds() + deadline_seconds
        while self.clock.monotonic_seconds() < end_seconds:
            self.update_wanted()
            if self._tried():
                return
            await asyncio.sleep(0.05)

    def _tried(self) -> bool:
        readings = self.board.readings()
        host = readings.get(SignalKey("worker.host", NODE))
        log = readings.get(SignalKey("kernel_log", NODE))
        if host is None or not _host_tried(readings) or log is None:
            return False
        if not getattr(log.value, "backfilled", True):
            return False
        if not gpu_wanted(self.settings, readings):
            return True
        nvml = readings.get(SignalKey("worker.nvml", NODE))
        return nvml is not None and nvml.value.state not in ("starting", "reading")

    async def stop(self) -> None:
        """End both workers; returns when their processes are gone or known to be unkillable."""
        await asyncio.gather(self.nvml_worker.stop(), self.host_worker.stop())


def _host_tried(readings: Mapping[SignalKey, Reading]) -> bool:
    there = {key.signal for key in readings}
    return all(any(signal in there for signal in signals) for signals in HOST_SIGNALS)


async def cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and return when all have ended; one that swallowed it is cancelled again."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
        for task in done:
            _ = task.cancelled() or task.exception()  # else asyncio prints it when the task is collected


def open_clock(settings: Settings) -> SystemClock:
    """The host's clocks; ConfigError where proc_root is no /proc."""
    try:
        return SystemClock(settings.node.proc_root)
    except DriverError as error:
        raise ConfigError(f"node.proc_root must be the host's /proc: {error}") from error
