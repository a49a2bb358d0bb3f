"""Samples what the API server knows of this node: its Node object and its pods, by watches of its own only.

An API server that is away is no fault of the node: what was known stands, with its age. Nothing here lists,
and nothing asks for more than what belongs to this node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable

from nodeagent.cluster import ApiStatus, NodeObject
from nodeagent.drivers.kube import (
    ApiRefusal,
    Budget,
    Credentials,
    KubeClient,
    WatchEvent,
    find_credentials,
)
from nodeagent.drivers.kube.client import path_of
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.node_parse import parse_node
from nodeagent.observe.api_watch import ApiWatch
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.pod_parse import PodTable
from nodeagent.signals import Unread
from nodeagent.traffic import PodList

NODE_SIGNAL, API_SIGNAL = "cluster.node", "cluster.api"
START_SECONDS = 5.0
"""The first watches of agents that start together are spread over it."""
GATHER_SECONDS = 0.1
"""Events that come together are told together."""
READ_SECONDS = 900.0
"""Between two reads of the Node where it may not be watched; with jitter of a fifth."""
WATCH_AGAIN_SECONDS = 6 * 3600.0
"""How long it is read instead, until a watch is tried again."""
STALE_SECONDS = 60.0
"""How long after an answer the watch may bring what was before it."""
NODES, PODS = path_of("api", "v1", "nodes"), path_of("api", "v1", "pods")


class ApiPods:
    """The pods of this node by a watch."""

    def __init__(
        self, client: KubeClient, *, node_name: str, prefix: str = "nodeagent.io", start_seconds: float = 0.0,
        entropy: Callable[[], float] = random.random,
    ) -> None:
        """`prefix`: domain of our own annotations; `start_seconds`: the first attempt is spread over it."""
        self._prefix = prefix
        self._table = PodTable(prefix)
        self._complete = False
        self._timer: asyncio.TimerHandle | None = None
        self._on_pods: Callable[[PodList], None] = lambda _: None
        self._on_error: Callable[[DriverError], None] = lambda _: None
        self._denied = asyncio.Event()
        self._watch = ApiWatch(
            client, self, PODS, f"spec.nodeName={node_name}", node_name=node_name,
            start_seconds=start_seconds, entropy=entropy, on_denied=self._wait_denied,
        )

    async def run(
        self, on_pods: Callable[[PodList], None], on_error: Callable[[DriverError], None]
    ) -> None:
        """Tell every list, also an equal one that was confirmed, and every error, until cancelled."""
        self._on_pods, self._on_error = on_pods, on_error
        try:
            await self._watch.run()
        finally:
            self._cancel_timer()

    async def until_denied(self) -> None:
        """Return once the server has refused both identities for good."""
        self._denied.clear()
        await self._denied.wait()

    async def read_once(self) -> PodList:
        """The pods as they are now. Raises DriverError."""
        await self._watch.read_once()
        self._cancel_timer()
        return self._table.pods("api")

    async def _wait_denied(self) -> None:
        self._denied.set()

    # ------------------------------------------------------------------ sink

    def begin(self) -> None:
        """A watch starts: the old list stands until the new one is whole."""
        self._table, self._complete = PodTable(self._prefix), False
        self._cancel_timer()

    def take(self, event: WatchEvent) -> None:
        """A pod was added, changed or deleted."""
        if event.kind == "DELETED":
            self._table.drop(event.object)
        else:
            self._table.put(event.object)
        if self._complete and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._tell)

    def current(self) -> None:
        """The list is whole, and true as of now."""
        self._complete = True
        self._tell()

    def failed(self, error: DriverError) -> None:
        """The watch is not to be had just now."""
        self._cancel_timer()
        self._on_error(error)

    def _tell(self) -> None:
        self._cancel_timer()
        self._on_pods(self._table.pods("api"))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def open_client(kubeconfig: Callable[[], str], monotonic_seconds: Callable[[], float]) -> KubeClient:
    """A client that looks for credentials at each request; `kubeconfig`: its path, "" = the pod's own."""

    def credentials() -> Credentials:
        found = find_credentials(kubeconfig(), os.environ)
        if found is None:
            detail = "neither the account of a pod nor cluster.kubeconfig is there"
            raise DriverError(ErrorKind.ABSENT, "the API server", "find credentials", detail)
        return found

    return KubeClient(credentials, Budget(monotonic_seconds))


class NodeWatch:
    """The own Node object, and the state of the connection, on the board."""

    def __init__(
        self, client: KubeClient, board: Board, inbox: Inbox, *, node_name: str, prefix: str = "nodeagent.io",
        server: Callable[[], str] = lambda: "", start_seconds: float = 0.0,
        entropy: Callable[[], float] = random.random,
    ) -> None:
        """`server`: its URL, for the status; `start_seconds`: the first attempt is spread over it."""
        self._client = client
        self._board = board
        self._inbox = inbox
        self._node_name = node_name
        self._prefix = prefix
        self._server = server
        self._entropy = entropy
        self._node: NodeObject | None = None
        self._gone = False
        self._error: DriverError | None = None
        self._answered = (0, float("-inf"))
        """Version of the newest answer to a request of ours, and when it came (CLOCK_MONOTONIC)."""
        self._watch = ApiWatch(
            client, self, NODES, f"metadata.name={node_name}", node_name=node_name,
            start_seconds=start_seconds, entropy=entropy, on_denied=self._read_instead,
        )

    async def run(self) -> None:
        """Watch for ever; where that is refused read now and then. Cancel it to end."""
        await self._watch.run()

    @property
    def identity(self) -> str:
        """node | account: as whom the Node is watched; "" before the first answer."""
        return {None: "", True: "node", False: "account"}[self._watch.as_node]

    def answered(self, data: bytes) -> None:
        """Take a Node that an answer brought, as to a patch: it is the base of the next. What the watch
        still brings from before it is old. Raises DriverError(invalid)."""
        node = self._took(data)
        if node.resource_version.isdecimal():
            self._answered = int(node.resource_version), asyncio.get_running_loop().time()

    def tell(self) -> None:
        """Put the state of the connection, and what is left of the budget, on the board."""
        error = self._error
        self._board.put(API_SIGNAL, NODE, ApiStatus(
            server=self._server(), budget=self._client.budget.as_of_now(), identity=self.identity,
            error_kind=error.kind if error else None, error=str(error) if error else "",
        ))

    def _took(self, data: bytes) -> NodeObject:
        node = parse_node(data, self._prefix)
        changed = node != self._node
        self._node, self._gone = node, False
        self._board.put(NODE_SIGNAL, NODE, node)
        if changed:
            self._inbox.wake()
        return node

    def _is_old(self, data: bytes) -> bool:
        """True for what was so before the answer that was taken; for a minute only, since versions of a
        restored store begin anew."""
        version, at_seconds = self._answered
        if asyncio.get_running_loop().time() - at_seconds > STALE_SECONDS:
            return False
        seen = parse_node(data, self._prefix)
        known = self._node
        return (
            known is not None and seen.uid == known.uid and seen.resource_version.isdecimal()
            and int(seen.resource_version) < version
        )

    # ------------------------------------------------------------------ sink

    def begin(self) -> None:
        """A watch starts."""
        self._gone = True

    def take(self, event: WatchEvent) -> None:
        """The Node was added, changed or deleted."""
        if event.kind == "DELETED":
            self._gone = True
            self._lost()
            return
        self._gone = False
        try:
            if not self._is_old(event.object):
                self._took(event.object)
        except DriverError as error:
            self.failed(error)

    def current(self) -> None:
        """What was seen holds as of now."""
        if self._gone:
            self._lost()
        elif self._node is not None:
            self._board.put(NODE_SIGNAL, NODE, self._node)
        self._tell(None)

    def failed(self, error: DriverError) -> None:
        """What was known stands."""
        if self._node is None:
            self._board.put(NODE_SIGNAL, NODE, Unread(kind=error.kind, reason=str(error)))
        self._tell(error)

    def _lost(self) -> None:
        self._node = None
        reason = f"there is no Node object {self._node_name}"
        self._board.put(NODE_SIGNAL, NODE, Unread(kind=ErrorKind.ABSENT, reason=reason))
        self._inbox.wake()

    def _tell(self, error: DriverError | None) -> None:
        self._error = error
        self.tell()

    async def _read_instead(self) -> None:
        """Where both identities may not watch: read from the server's memory, now and then."""
        loop = asyncio.get_running_loop()
        end_seconds = loop.time() + WATCH_AGAIN_SECONDS
        while loop.time() < end_seconds:
            try:
                self._took(await self._client.get(
                    path_of("api", "v1", "nodes", self._node_name), {"resourceVersion": "0"}))
                self._tell(None)
            except DriverError as error:
                if error.kind is ErrorKind.ABSENT and isinstance(error, ApiRefusal):
                    self._lost()
                self.failed(error)
            with contextlib.suppress(TimeoutError):
                await asyncio.sleep(READ_SECONDS * (0.8 + 0.4 * self._entropy()))
