"""One watch, from its first event to its end: it always starts from the server's memory and always ends.

`resourceVersion=0` means: the objects as they are, then what changes. A watch is never resumed from a version
of one object, since on an idle node that is older than what the server still knows, for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

import msgspec
from msgspec import Raw, Struct

from nodeagent.drivers.kube import answers
from nodeagent.drivers.kube.client import KubeClient, pieces
from nodeagent.errors import DriverError, ErrorKind

FIRST_SECONDS = 30.0
"""Deadline of the answer's head, and of the first event: a server whose store was restored says 200 and is
silent."""
PROGRESS_SECONDS = 150.0
"""Longest silence: the server sends a bookmark every 60 s."""
GRACE_SECONDS = 30.0
"""How much longer than asked for a watch may last."""
MAX_LINE_BYTES = 8 << 20
NO_BOOKMARKS = "RequestWatchProgress"
"""What a server says in the stream when its store is too old for bookmarks."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class WatchEvent(Struct, frozen=True, kw_only=True):
    """One event."""

    kind: str
    """ADDED, MODIFIED, DELETED or BOOKMARK"""
    object: bytes
    """JSON; of a bookmark a skeleton."""
    completes: bool = False
    """True on the bookmark that ends the objects as they were at the start."""


class WatchEnded(DriverError):
    """The server ended the watch after `lasted_seconds`; `early`: before the time that was asked for."""

    def __init__(self, target: str, lasted_seconds: float, *, early: bool) -> None:
        how = "before" if early else "at"
        detail = f"the server ended it after {lasted_seconds:.0f} s, {how} the time asked for"
        super().__init__(ErrorKind.LOST, target, "watch", detail)
        self.lasted_seconds = lasted_seconds
        self.early = early


class _Event(Struct):
    type: str
    object: Raw


class _Metadata(Struct):
    annotations: dict[str, str] | None = None


class _Skeleton(Struct):
    metadata: _Metadata | None = None


_events = msgspec.json.Decoder(_Event)
_skeletons = msgspec.json.Decoder(_Skeleton)


async def watch(
    client: KubeClient, path: str, field_selector: str, *, life_seconds: float, bookmarks: bool = True,
    as_user: str = "", first_seconds: float = FIRST_SECONDS, progress_seconds: float = PROGRESS_SECONDS,
) -> AsyncGenerator[WatchEvent, None]:
    """Events until the watch ends, which it does by an exception; close it when left before that.

    `life_seconds`: asked of the server. Without `bookmarks` nothing tells where the first objects end, and
    silence is no sign. Raises WatchEnded; ApiRefusal, also for an error inside the stream; DriverError:
    timeout (silence), invalid (no event), and what a request raises.
    """
    loop = asyncio.get_running_loop()
    query = {
        "watch": "true", "fieldSelector": field_selector, "resourceVersion": "0",
        "timeoutSeconds": str(int(life_seconds)),
    } | ({"allowWatchBookmarks": "true"} if bookmarks else {})
    headers = {"Impersonate-User": as_user} if as_user else {}
    began_seconds = loop.time()
    end_seconds = began_seconds + life_seconds + GRACE_SECONDS
    async with contextlib.AsyncExitStack() as stack:
        with _silence(path, first_seconds):
            async with asyncio.timeout(first_seconds):
                answer = await stack.enter_async_context(
                    client.open("watch", path, query=query, headers=headers))
        lines = await stack.enter_async_context(contextlib.aclosing(_lines(pieces(answer, "watch"), path)))
        # Without bookmarks an idle node is silent from the start.
        wait_seconds = first_seconds if bookmarks else life_seconds + GRACE_SECONDS
        while True:
            wait_seconds = min(wait_seconds, end_seconds - loop.time())
            with _silence(path, wait_seconds):
                async with asyncio.timeout(wait_seconds):
                    line = await anext(lines, None)
            if line is None:
                lasted_seconds = loop.time() - began_seconds
                raise WatchEnded(path, lasted_seconds, early=lasted_seconds < life_seconds - 1)
            yield _event(line, path)
            wait_seconds = progress_seconds if bookmarks else life_seconds + GRACE_SECONDS


@contextlib.contextmanager
def _silence(target: str, waited_seconds: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        detail = f"no sign of life from the server for {waited_seconds:.0f} s"
        raise DriverError(ErrorKind.TIMEOUT, target, "watch", detail) from error


async def _lines(source: AsyncIterator[bytes], target: str) -> AsyncGenerator[bytes, None]:
    """Whole lines; a last one without an end is none."""
    rest = bytearray()
    async for piece in source:
        rest += piece
        if b"\n" in piece:
            *lines, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in lines:
                if line.strip():
                    yield line
        if len(rest) > MAX_LINE_BYTES:
            detail = f"an event is larger than {MAX_LINE_BYTES >> 20} MiB"
            raise DriverError(ErrorKind.INVALID, target, "watch", detail)


def _event(line: bytes, target: str) -> WatchEvent:
    try:
        event = _events.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        detail = f"not an event: {answers.shown(line)[:80]!r}: {error}"
        raise DriverError(ErrorKind.INVALID, target, "watch", detail) from error
    if event.type == "ERROR":
        raise answers.in_stream(target, "watch", bytes(event.object))
    if event.type == "BOOKMARK":
        return WatchEvent(kind=event.type, object=bytes(event.object), completes=_completes(event.object))
    if event.type not in ("ADDED", "MODIFIED", "DELETED"):
        raise DriverError(ErrorKind.INVALID, target, "watch", f"unknown event {answers.shown(event.type)!r}")
    return WatchEvent(kind=event.type, object=bytes(event.object))


def _completes(data: Raw) -> bool:
    try:
        metadata = _skeletons.decode(data).metadata
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    annotations = metadata.annotations if metadata is not None else None
    return (annotations or {}).get(INITIAL_EVENTS_END) == "true"
