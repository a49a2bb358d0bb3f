"""Builds the half of the agent that looks at pods and their traffic, and the executor that marks it.

Nothing here imports a netlink or iptables library before pods are known: a node without pods pays nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nodeagent.cluster_parts import ClusterParts
from nodeagent.decide import limits
from nodeagent.decide.marks import MarkOptions
from nodeagent.drivers.clock import Clock
from nodeagent.drivers.iptables import choose_backend, open_rules
from nodeagent.drivers.links import LinkReader
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE, Op
from nodeagent.observe.board import Board
from nodeagent.observe.host_pods import HostPodSampler
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.marks import MarkReader, MarkSampler
from nodeagent.observe.network import LinkSampler
from nodeagent.observe.pods import PodSampler
from nodeagent.observe.shape import ShapeSampler
from nodeagent.settings import Settings
from nodeagent.signals import Unread

if TYPE_CHECKING:
    from nodeagent.act.network import KernelMarks
    from nodeagent.act.shaping import KernelShape

WAIT_FOR_PODS_SECONDS = 5.0
"""How often a node without a source of pods is looked at for one."""
RETRY_BACKEND_SECONDS = 30.0
REFRESH_GAP_SECONDS = 1.0
"""Least time between two reads that were asked for over the socket."""
CIDRS_FILE_SECONDS = 60.0
PROBE_SECONDS = 6 * 3600.0
"""Between two tries of what the kernel can do: modules seldom come or go."""
MAX_CIDRS_FILE_BYTES = 1 << 20


class NetworkParts:
    """Samplers of pods, links, marks and tc, and the ops on both."""

    def __init__(
        self, settings: Settings, board: Board, inbox: Inbox, clock: Clock,
        cluster: ClusterParts | None = None,
    ) -> None:
        """`cluster`: whose client the watch of pods shares; None: one of its own."""
        cluster = cluster or ClusterParts(settings, board, inbox, clock)
        self._settings = settings
        self._board = board
        self._clock = clock
        self.pods = PodSampler(
            board, inbox, clock, node_name=settings.node.name, settings=settings.pods,
            prefix=settings.cluster.taint_prefix, on_change=self._on_pods, api=cluster.open_pods,
            has_api=lambda: cluster.available,
        )
        self.links = LinkSampler(
            LinkReader(settings.node.proc_root), board, inbox, clock,
            uplinks=settings.network.uplinks, on_devices=self.pods.devices_changed,
        )
        self.marks = MarkSampler(None, board, inbox, clock)
        self.shape = ShapeSampler(None, board, inbox, clock)
        self.shape.wanted = bool(settings.network.internet_budget)
        self.host_pods = HostPodSampler(settings.node.proc_root, board, inbox)
        self._kernel: KernelMarks | None = None
        self._shape: KernelShape | None = None
        self._refreshing = asyncio.Lock()
        self._refreshed_seconds = float("-inf")
        self._file_cidrs = _listed(settings.network.cluster_cidrs_file)

    @property
    def enabled(self) -> bool:
        """True when marking is wanted and there is a source of pods."""
        return self._settings.network.enabled and self.pods.effective

    def options(self) -> MarkOptions:
        """What of the configuration marking depends on, as of now."""
        network = self._settings.network
        return MarkOptions(
            enabled=self.enabled, mark_mask=network.mark_mask,
            extra_cluster_cidrs=(*network.extra_cluster_cidrs, *self._file_cidrs),
            host_pod_paths=self.host_pods.paths if self.marks.takes_cgroups else {},
            shaping=limits.options(self._settings),
        )

    def apply(self, settings: Settings) -> None:
        """Take reloaded settings."""
        self._settings = settings
        self._file_cidrs = _listed(settings.network.cluster_cidrs_file)
        self.pods.apply(settings.pods)
        self.links.apply(settings.network.uplinks)
        self.shape.wanted = bool(settings.network.internet_budget)
        self.shape.request_now()

    async def refresh(self) -> None:
        """Read links, tc and marks now, links first; questions that come together share one read."""
        asked_seconds = self._clock.monotonic_seconds()
        async with self._refreshing:
            if self._refreshed_seconds >= asked_seconds:
                return
            wait_seconds = self._refreshed_seconds + REFRESH_GAP_SECONDS - self._clock.monotonic_seconds()
            await asyncio.sleep(max(0.0, wait_seconds))
            self._refreshed_seconds = self._clock.monotonic_seconds()
            await self.links.read_now()
            for sampler in (self.shape, self.marks):
                with contextlib.suppress(DriverError):  # it is on the board
                    await sampler.read_now()

    def look_after_plan(self) -> None:
        """A plan on the kernel has ended: what it left is worth reading back."""
        self.marks.request_now()
        if not self.shape.idles():
            self.shape.request_now()

    def runs(self) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
        """Named tasks, each for ever."""
        return (
            ("pods", self.pods.run),
            ("links", self._run_links),
            ("marks", self._run_marks),
            ("shaper", self._run_shape),
            ("hostNetwork pods", self.host_pods.run),
            ("cluster prefixes", self._run_cidrs),
            ("kernel probe", self._run_probe),
        )

    async def perform(self, op: Op) -> str:
        """Carry out one op on the kernel; raises DriverError."""
        if self._shape is not None and self._shape.knows(op):
            return await self._shape.perform(op)
        if self._kernel is None:
            raise DriverError(ErrorKind.ABSENT, op.target, op.kind, "the kernel's marks were not read yet")
        return await self._kernel.perform(op)

    async def read_once(self) -> None:
        """Read pods, links, tc and marks once, in this order, for a look without a daemon."""
        await self.pods.read_now()
        if not self.enabled:
            self._tell_off()
            return
        await self.links.read_now()
        self._open_shape()
        with contextlib.suppress(DriverError):  # it is on the board
            await self.shape.read_now()
        try:
            await self._open()
            await self.marks.read_now()
        except DriverError as error:
            self._board.put("net.marks", NODE, Unread(kind=error.kind, reason=str(error)))

    # ------------------------------------------------------------------ tasks

    async def _until_enabled(self) -> None:
        while not self.enabled:
            self._tell_off()
            await asyncio.sleep(WAIT_FOR_PODS_SECONDS)

    def _tell_off(self) -> None:
        reason = "network marks are off" if not self._settings.network.enabled else "no source of pods"
        for signal in ("net.links", "net.marks", "net.shape", "net.kernel"):
            self._board.put(signal, NODE, Unread(kind=ErrorKind.ABSENT, reason=reason))

    async def _run_links(self) -> None:
        await self._until_enabled()
        await self.links.run()

    async def _run_marks(self) -> None:
        await self._until_enabled()
        while self.marks.reader is None:
            try:
                await self._open()
            except DriverError as error:
                self._board.put("net.marks", NODE, Unread(kind=error.kind, reason=str(error)))
                await asyncio.sleep(RETRY_BACKEND_SECONDS)
        await self.marks.run()

    async def _run_shape(self) -> None:
        await self._until_enabled()
        self._open_shape()
        await self.shape.run()

    async def _run_cidrs(self) -> None:
        while True:
            await asyncio.sleep(CIDRS_FILE_SECONDS)
            self._file_cidrs = await asyncio.to_thread(_listed, self._settings.network.cluster_cidrs_file)

    async def probe(self) -> None:
        """Try out what kernel and iptables can do, and put it on the board."""
        net_probe = importlib.import_module("nodeagent.net_probe")
        self._board.put("net.kernel", NODE, await net_probe.probe(self._settings.network.iptables_path))

    async def _run_probe(self) -> None:
        await self._until_enabled()
        while True:
            await self.probe()
            await asyncio.sleep(PROBE_SECONDS)

    async def _open(self) -> None:
        rules = open_rules(await choose_backend(self._settings.network.iptables_path))
        sets = importlib.import_module("nodeagent.drivers.ipset").IpSets()
        self._kernel = importlib.import_module("nodeagent.act.network").KernelMarks(rules, sets)
        self.marks.reader = MarkReader(rules, sets, self._clock, self._settings.network.mark_mask)

    def _open_shape(self) -> None:
        if self._shape is None:
            shaper = importlib.import_module("nodeagent.drivers.tc").Shaper()
            self._shape = importlib.import_module("nodeagent.act.shaping").KernelShape(shaper)
            self.shape.reader = shaper

    def _on_pods(self) -> None:
        self.links.request_now()
        self.host_pods.request_now()


def _listed(path: str) -> tuple[str, ...]:
    """Prefixes of a file, one a line, # begins a comment; a file that cannot be read has none."""
    if not path:
        return ()
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            lines = file.read(MAX_CIDRS_FILE_BYTES).splitlines()
    except OSError:
        return ()
    return tuple(word for line in lines if (word := line.partition("#")[0].strip()))
