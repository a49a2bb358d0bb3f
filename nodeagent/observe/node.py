"""Samples the host through its worker: bus, kernel, kubelet, runtime, processes, network and disks.

What does not answer must not blind the rest: its worker is replaced and that mount point or call is
left alone for a while, as `Unread`. It judges nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from nodeagent import wire
from nodeagent.drivers.clock import Clock
from nodeagent.drivers.worker import Worker
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.pace import Pace
from nodeagent.observe.worker_readings import WorkerReadings
from nodeagent.signals import SignalKey, Unread, WorkerStatus

STATUS_SIGNAL = "worker.host"
DISK_SIGNAL = "disk.usage"
NODE_SIGNALS = (
    "gpu.pci", "gpu.kernel_driver", "fabric.manager", "clock.sync", "kubelet.health", "memory.pressure",
    "memory.oom_kills", "kernel.hung_tasks", "runtime.health", "process.gpu_holders",
)
DISK_SIGNALS = (DISK_SIGNAL, "disk.mount", "disk.errors")
NET_SIGNALS = ("link.devices", "net.adapters", "conntrack")
NET_TARGET_SIGNALS = ("ib.port", "ib.counters", "net.gateway", "net.target", "neighbour.table")
"""Of ports, gateways, configured targets and families."""
SIGNALS = (*NODE_SIGNALS, *NET_SIGNALS, *NET_TARGET_SIGNALS, *DISK_SIGNALS)
"""All that the host worker may tell."""
LEAVE_ALONE_SECONDS = 600.0
"""How long a mount point or a call is not touched after it did not answer."""


class NetworkAsked(NamedTuple):
    """What the operator wants read of the network besides what is read anyway."""

    devices: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    """HOST:PORT; empty: the default gateways."""
    deadline_seconds: float = 2.0


class NodeSampler:
    """One task; the worker is its own from construction on."""

    def __init__(
        self, worker: Worker, board: Board, inbox: Inbox, clock: Clock, *, poll_seconds: float = 15.0,
        host_root: str = "/", proc_root: str = "/proc", sys_root: str = "/sys", paths: tuple[str, ...] = (),
        kubelet_port: int = 10248, runtime_socket: str = "",
    ) -> None:
        """`paths`: read in addition to the local disks, whatever file system they are on;
        `runtime_socket`: the CRI socket, "" to look for it."""
        self._worker = worker
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._pace = Pace(clock, poll_seconds)
        self._readings = WorkerReadings(board, inbox, clock, SIGNALS, poll_seconds)
        self._places = (host_root, proc_root, sys_root)
        self._paths = paths
        self._network = NetworkAsked()
        self._kubelet_port = kubelet_port
        self._runtime_socket = runtime_socket
        self._silent_until_seconds: dict[str, float] = {}
        """Mount point or call that did not answer -> CLOCK_MONOTONIC when it is asked again."""
        self._restarts = 0
        worker.on_message = self._on_message
        worker.on_change = self._on_change

    async def run(self) -> None:
        """Sample for ever; cancel it to end. The worker is stopped by whoever made it."""
        while True:
            self._pace.start()
            await self._read()
            self._inbox.wake()
            await self._pace.wait(lambda: self._worker.ready_at_seconds)

    def request_now(self) -> None:
        """Read soon instead of at the next poll."""
        self._pace.wake()

    def set_paths(self, paths: tuple[str, ...]) -> None:
        """Paths that the operator names, from the next read-all on."""
        self._paths = paths

    def set_network(self, asked: NetworkAsked) -> None:
        """What the operator wants read of the network, from the next read-all on."""
        self._network = asked

    def set_runtime_socket(self, path: str) -> None:
        """The CRI socket that the operator names, from the next read-all on."""
        self._runtime_socket = path

    # ------------------------------------------------------------------ reading

    def _arguments(self) -> wire.HostArguments:
        now_seconds = self._clock.monotonic_seconds()
        silent = {path: end for path, end in self._silent_until_seconds.items() if end > now_seconds}
        self._silent_until_seconds = silent
        host_root, proc_root, sys_root = self._places
        return wire.HostArguments(
            host_root=host_root, proc_root=proc_root, sys_root=sys_root, paths=self._paths,
            skip=tuple(sorted(silent)), kubelet_port=self._kubelet_port,
            net_devices=self._network.devices, tcp_targets=self._network.targets,
            tcp_deadline_seconds=self._network.deadline_seconds,
            runtime_socket=self._runtime_socket,
        )

    async def _read(self) -> None:
        self._readings.seen.clear()
        try:
            done = await self._worker.read(self._arguments())
        except DriverError as error:
            self._readings.grow_stale(error.kind, f"host worker: {error.detail}")
            return
        if done.error_kind is not None:
            expected = (*NODE_SIGNALS, *NET_SIGNALS)
            self._readings.fail(done.error_kind, f"host worker: {done.error_detail}", expected)
            return
        unlisted = SignalKey(DISK_SIGNAL, NODE) in self._readings.seen
        for key in self._readings.vanished():
            if unlisted:
                reason = "the list of mounts could not be read"
                self._board.put(key.signal, key.target, Unread(kind=ErrorKind.INVALID, reason=reason))
            else:
                self._board.drop(key.signal, key.target)

    # ------------------------------------------------------------------ what the worker tells

    def _on_message(self, message: wire.Message) -> None:
        if not isinstance(message, wire.Value | wire.Missing):
            raise DriverError(ErrorKind.INVALID, NODE, "message", "the host worker knows no events")
        self._readings.take(message)

    def _on_change(self) -> None:
        status = self._worker.status
        self._board.put(STATUS_SIGNAL, NODE, status)
        self._readings.show_pending(status)
        if status.state == "stuck":
            self._on_stuck(status)
        if status.restarts != self._restarts:
            self._restarts = status.restarts
            self._pace.wake()

    def _on_stuck(self, status: WorkerStatus) -> None:
        reason = f"{status.pending_call or 'a call'} has not returned"
        call, _, path = (status.pending_call or "").partition(" ")
        silent = path if call == "statvfs" else status.pending_call
        if silent:
            self._silent_until_seconds[silent] = self._clock.monotonic_seconds() + LEAVE_ALONE_SECONDS
        if call == "statvfs":
            self._board.put(DISK_SIGNAL, path, Unread(kind=ErrorKind.TIMEOUT, reason=reason))
        self._readings.grow_stale(ErrorKind.TIMEOUT, reason)
