"""The own Node on the board: what an answer brought is newer than what the watch still brings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from nodeagent.cluster import ApiStatus, NodeObject
from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.kube import Budget, Credentials, KubeClient, WatchEvent
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.cluster import NodeWatch
from nodeagent.observe.inbox import Inbox
from nodeagent.signals import SignalKey, Unread


def node(version: int, uid: str = "u") -> bytes:
    """A Node of that version."""
    metadata = {"uid": uid, "name": "a", "resourceVersion": str(version)}
    return json.dumps({"metadata": metadata}).encode()


def watched(story: Callable[[NodeWatch], None]) -> Board:
    """The board after a story."""
    board = Board(SystemClock())

    def nothing() -> Credentials:
        raise DriverError(ErrorKind.ABSENT, "the API server", "find credentials")

    async def main() -> None:
        client = KubeClient(nothing, Budget(SystemClock().monotonic_seconds))
        story(NodeWatch(client, board, Inbox(), node_name="a"))

    asyncio.run(main())
    return board


def version(board: Board) -> str:
    """Of the Node on the board."""
    value = board.readings()[SignalKey("cluster.node", NODE)].value
    assert isinstance(value, NodeObject)
    return value.resource_version


def seen(number: int, uid: str = "u") -> WatchEvent:
    """The watch shows that version."""
    return WatchEvent(kind="MODIFIED", object=node(number, uid))


def test_an_answer_is_newer_than_a_watch_that_lags() -> None:
    """What was before it is not taken; what came after it, and another uid, are."""

    def lags(watch: NodeWatch) -> None:
        watch.take(seen(8))
        watch.answered(node(10))
        watch.take(seen(9))

    def goes_on(watch: NodeWatch) -> None:
        lags(watch)
        watch.take(seen(11))

    def is_reborn(watch: NodeWatch) -> None:
        lags(watch)
        watch.take(seen(3, "v"))

    assert [version(watched(story)) for story in (lags, goes_on, is_reborn)] == ["10", "11", "3"]


def test_a_failure_leaves_the_node_and_stays_told_until_the_next_success() -> None:
    """The board keeps the Node, and `cluster.api` its error however often it is told again."""

    def fails(watch: NodeWatch) -> None:
        watch.take(seen(8))
        watch.failed(DriverError(ErrorKind.LOST, "x", "watch", "broken off"))
        watch.tell()

    board = watched(fails)
    status = board.readings()[SignalKey("cluster.api", NODE)].value
    assert isinstance(status, ApiStatus)
    assert (version(board), status.error_kind) == ("8", ErrorKind.LOST)


def test_a_node_that_is_gone_is_absent() -> None:
    """Deleted, or not among the first objects of a watch."""

    def deleted(watch: NodeWatch) -> None:
        watch.take(seen(8))
        watch.take(WatchEvent(kind="DELETED", object=node(9)))

    def missing(watch: NodeWatch) -> None:
        watch.begin()
        watch.current()

    for story in (deleted, missing):
        value = watched(story).readings()[SignalKey("cluster.node", NODE)].value
        assert isinstance(value, Unread)
        assert value.kind is ErrorKind.ABSENT
