"""Builds the half of the agent that looks at pods and their traffic, and the executor that marks it.

Nothing here imports a netlink or iptables library before pods are known: a node without pods pays nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from nodeagent.act.network import KernelMarks
from nodeagent.decide.marks import MarkOptions
from nodeagent.drivers.clock import Clock
from nodeagent.drivers.ipset import IpSets
from nodeagent.drivers.iptables import choose_backend, open_rules
from nodeagent.drivers.links import LinkReader
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE, Op
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.marks import MarkReader, MarkSampler
from nodeagent.observe.network import LinkSampler
from nodeagent.observe.pods import PodSampler
from nodeagent.settings import Settings
from nodeagent.signals import Unread

WAIT_FOR_PODS_SECONDS = 5.0
"""How often a node without a source of pods is looked at for one."""
RETRY_BACKEND_SECONDS = 30.0
CIDRS_FILE_SECONDS = 60.0
MAX_CIDRS_FILE_BYTES = 1 << 20


class NetworkParts:
    """Samplers of pods, links and marks, and the ops on marks."""

    def __init__(self, settings: Settings, board: Board, inbox: Inbox, clock: Clock) -> None:
        self._settings = settings
        self._board = board
        self._clock = clock
        self.pods = PodSampler(
            board, inbox, clock, node_name=settings.node.name, settings=settings.pods,
            prefix=settings.cluster.taint_prefix, on_change=self._on_pods,
        )
        self.links = LinkSampler(
            LinkReader(settings.node.proc_root), board, inbox, clock,
            uplinks=settings.network.uplinks, on_devices=self.pods.devices_changed,
        )
        self.marks = MarkSampler(None, board, inbox, clock)
        self._kernel: KernelMarks | None = None
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
        )

    def apply(self, settings: Settings) -> None:
        """Take reloaded settings."""
        self._settings = settings
        self._file_cidrs = _listed(settings.network.cluster_cidrs_file)
        self.pods.apply(settings.pods)
        self.links.apply(settings.network.uplinks)

    def runs(self) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
        """Named tasks, each for ever."""
        return (
            ("pods", self.pods.run),
            ("links", self._run_links),
            ("marks", self._run_marks),
            ("cluster prefixes", self._run_cidrs),
        )

    async def perform(self, op: Op) -> str:
        """Carry out one op on the kernel; raises DriverError."""
        if self._kernel is None:
            raise DriverError(ErrorKind.ABSENT, op.target, op.kind, "the kernel's marks were not read yet")
        return await self._kernel.perform(op)

    # ------------------------------------------------------------------ tasks

    async def _until_enabled(self) -> None:
        while not self.enabled:
            reason = "network marks are off" if not self._settings.network.enabled else "no source of pods"
            for signal in ("net.links", "net.marks"):
                self._board.put(signal, NODE, Unread(kind=ErrorKind.ABSENT, reason=reason))
            await asyncio.sleep(WAIT_FOR_PODS_SECONDS)

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

    async def _run_cidrs(self) -> None:
        while True:
            await asyncio.sleep(CIDRS_FILE_SECONDS)
            self._file_cidrs = await asyncio.to_thread(_listed, self._settings.network.cluster_cidrs_file)

    async def _open(self) -> None:
        rules = open_rules(await choose_backend(self._settings.network.iptables_path))
        sets = IpSets()
        self._kernel = KernelMarks(rules, sets)
        self.marks.reader = MarkReader(rules, sets, self._clock, self._settings.network.mark_mask)

    def _on_pods(self) -> None:
        self.links.request_now()


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
