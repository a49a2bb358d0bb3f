"""Builds the half of the agent that speaks with the API server: one client and one budget for all of it.

Nothing of it is loaded on a node without a cluster. It never decides what is asked or written.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nodeagent.decide.node_write import WriteOptions
from nodeagent.drivers.clock import Clock
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import Op
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.settings import Settings

if TYPE_CHECKING:
    from nodeagent.act.cluster import NodeWriter
    from nodeagent.drivers.kube import KubeClient
    from nodeagent.observe.cluster import ApiPods, NodeWatch

SWITCH_SECONDS, SWITCH_LATE_SECONDS = 1.0, 15.0
"""How often the kill switch is looked at, besides before each write; what was not looked at for so long holds
writes."""
SEE_SECONDS = 2.0
"""Longest wait of a write for that look."""
LOOK_SECONDS = 5.0
"""How often a node without credentials is looked at for some."""


class ClusterParts:
    """The client, and the watch of the own Node."""

    def __init__(self, settings: Settings, board: Board, inbox: Inbox, clock: Clock) -> None:
        self._settings = settings
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._client: KubeClient | None = None
        self._watch: NodeWatch | None = None
        self._writer: NodeWriter | None = None
        self._switch = ""
        self._switch_seconds = float("-inf")
        self._looking: asyncio.Future[str] | None = None
        self.paused: Callable[[], str] = lambda: ""
        """Why an operator does not want writes now; "" when nobody minds."""

    @property
    def available(self) -> bool:
        """True when the API server is to be spoken with, and there is something to log in with."""
        return self._settings.cluster.enabled != "false" and self._has_credentials()

    def _has_credentials(self) -> bool:
        if self._settings.cluster.kubeconfig:
            return True
        if not os.environ.get("KUBERNETES_SERVICE_HOST"):
            return False
        return bool(importlib.import_module("nodeagent.drivers.kube").in_pod(os.environ))

    def apply(self, settings: Settings) -> None:
        """Take reloaded settings; credentials are looked for again at each request."""
        self._settings = settings

    async def open_pods(self) -> ApiPods:
        """The watch of pods."""
        client = await self._opened()
        cluster = importlib.import_module("nodeagent.observe.cluster")
        settings = self._settings
        made: ApiPods = cluster.ApiPods(
            client, node_name=settings.node.name, prefix=settings.cluster.taint_prefix,
            start_seconds=cluster.START_SECONDS,
        )
        return made

    def runs(self) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
        """Named tasks, each for ever."""
        return (("own Node", self._run_watch), ("kill switch", self._look_at_switch))

    def writing(self) -> WriteOptions:
        """Whether and why not the Node may be written, as of now; a pause is decide's."""
        return WriteOptions(enabled=self._writer is not None, held=self._held())

    async def perform(self, op: Op) -> str:
        """Carry out one op on the Node; raises DriverError."""
        if self._writer is None:
            raise DriverError(ErrorKind.ABSENT, op.target, op.kind, "there is no API server to write to")
        if not await self._see_switch():
            raise DriverError(ErrorKind.TIMEOUT, op.target, op.kind, "the kill switch cannot be looked at")
        try:
            return await self._writer.perform(op)
        finally:
            self.tell()

    def _held(self) -> str:
        if self._settings.node.dry_run:
            return "dry run"
        if self._settings.cluster.enabled == "false":
            return "cluster.enabled is false"
        late_seconds = self._clock.monotonic_seconds() - self._switch_seconds
        if late_seconds > SWITCH_LATE_SECONDS:
            return f"the kill switch {self._settings.cluster.kill_switch_file} cannot be looked at"
        return self._switch

    async def _look_at_switch(self) -> None:
        while True:
            await self._see_switch()
            await asyncio.sleep(SWITCH_SECONDS)

    async def _see_switch(self) -> bool:
        """Look at the kill switch now; False when that does not end.

        The disk it is on may hang, so it is looked at in a thread, and never in two at once.
        """
        if self._looking is None or self._looking.done():
            path = self._settings.cluster.kill_switch_file
            self._looking = asyncio.ensure_future(asyncio.to_thread(_found, path))
        done, _ = await asyncio.wait({self._looking}, timeout=SEE_SECONDS)
        if not done:
            return False
        before, self._switch = self._switch, self._looking.result()
        self._switch_seconds = self._clock.monotonic_seconds()
        if self._switch != before:
            self._inbox.wake()
        return True

    def tell(self) -> None:
        """Have the state of the connection on the board as it is now."""
        if self._watch is not None:
            self._watch.tell()

    # ------------------------------------------------------------------ inside

    async def _opened(self) -> KubeClient:
        """The one client of this process; whatever it needs is loaded in a thread."""
        module = await asyncio.to_thread(importlib.import_module, "nodeagent.observe.cluster")
        if self._client is None:
            self._client = module.open_client(
                lambda: self._settings.cluster.kubeconfig, self._clock.monotonic_seconds)
        return self._client

    async def _run_watch(self) -> None:
        while True:
            while not self.available:
                await asyncio.sleep(LOOK_SECONDS)
            client = await self._opened()
            cluster = importlib.import_module("nodeagent.observe.cluster")
            settings = self._settings
            self._watch = cluster.NodeWatch(
                client, self._board, self._inbox, node_name=settings.node.name,
                prefix=settings.cluster.taint_prefix, server=self._server,
                start_seconds=cluster.START_SECONDS,
            )
            writer = importlib.import_module("nodeagent.act.cluster").NodeWriter
            self._writer = writer(
                client, settings.node.name, answered=self._watch.answered, gate=self._gate,
                reads_as=self._reads_as,
            )
            await self._while_available(self._watch.run)

    async def _while_available(self, run: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.ensure_future(run())
        try:
            while self.available and not task.done():
                await asyncio.wait((task,), timeout=LOOK_SECONDS)
        finally:
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            self._watch = self._writer = None
            for signal in ("cluster.node", "cluster.api"):
                self._board.drop(signal, "node")
        if isinstance(ended, Exception):
            raise ended

    def _gate(self) -> str:
        return self._held() or self.paused()

    def _reads_as(self) -> str:
        is_node = self._watch is not None and self._watch.identity == "node"
        return f"system:node:{self._settings.node.name}" if is_node else ""

    def _server(self) -> str:
        credentials = importlib.import_module("nodeagent.drivers.kube")
        with contextlib.suppress(DriverError):
            found = credentials.find_credentials(self._settings.cluster.kubeconfig, os.environ)
            return found.server if found is not None else ""
        return ""


def _found(path: str) -> str:
    return f"the kill switch {path} is there" if os.path.lexists(path) else ""
