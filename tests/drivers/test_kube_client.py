"""The API client over real TLS against a server that does its worst: how an answer fails to be one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from nodeagent.drivers.kube import ApiRefusal, Budget, Credentials, KubeClient, WatchEnded, watch
from nodeagent.drivers.kube.budget import Allowance
from nodeagent.errors import DriverError, ErrorKind
from tests.drivers.rig import HandClock, check_leaks

PODS, NODE = "/api/v1/pods", "/api/v1/nodes/a"
Write = Callable[[asyncio.StreamWriter], Awaitable[None]]


def reply(status: int, body: object = b"", *more: str, length: int | None = None) -> Write:
    """An answer with that status; `length` announces another size than the body has."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = len(data) if length is None else length

    async def write(writer: asyncio.StreamWriter) -> None:
        head = "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Length: {size}", *more, "", ""])
        writer.write(head.encode() + data)
        await writer.drain()

    return write


def stream(*lines: bytes, then: str = "end") -> Write:
    """A watch: chunks as given, then its end, silence, or a broken connection."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for line in lines:
            writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        if then == "end":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if then == "silence":
            await asyncio.sleep(3600)

    return write


async def never(_: asyncio.StreamWriter) -> None:
    """No answer at all."""
    await asyncio.sleep(3600)


async def nonsense(writer: asyncio.StreamWriter) -> None:
    """No HTTP."""
    writer.write(b"\x00\xff garbage\r\n\r\n" * 10)
    await writer.drain()


async def drip(writer: asyncio.StreamWriter) -> None:
    """One byte at a time, each soon enough for any timeout between two of them."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


async def flood(writer: asyncio.StreamWriter) -> None:
    """A body, or one event, without end."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 0xFFFF + b"x\r\n")
        await writer.drain()


class Rig:
    """One scripted server (the last answer repeats) and the client's credentials."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.token, self.ca = folder / "token", folder / "ca.crt"
        self.token.write_text("secret-1\n")
        self.authority.cert_pem.write_to_path(self.ca)
        self.clock = HandClock()
        self.budget = Budget(self.clock.monotonic_seconds)
        self.requests: list[str] = []
        self.on_request: Callable[[], None] = lambda: None

    @contextlib.asynccontextmanager
    async def client(self, *script: Write, name: str = "127.0.0.1") -> AsyncIterator[KubeClient]:
        """A client of a server that lives as long as the block."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(name).configure_cert(context)
        left, tasks = list(script), set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.current_task())
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                self.on_request()
                await (left.pop(0) if len(left) > 1 else left[0])(writer)
            writer.transport.abort()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        made = Credentials(server=f"https://127.0.0.1:{port}", source="test", ca_file=str(self.ca),
                           token_file=str(self.token))
        try:
            yield KubeClient(lambda: made, self.budget)
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()

    def failure(self, *script: Write, deadline_seconds: float = 5.0, name: str = "127.0.0.1") -> DriverError:
        """How a GET fails; no descriptor is left of it."""
        failed: list[DriverError] = []

        async def whole() -> None:
            async with self.client(*script, name=name) as client:
                with pytest.raises(DriverError) as caught:
                    await client.get(NODE, deadline_seconds=deadline_seconds)
                failed.append(caught.value)

        check_leaks(whole())
        return failed[0]

    def watched(self, *script: Write, **options: Any) -> tuple[list[str], DriverError]:
        """Kinds of the events of one watch, and how it ended."""
        kinds: list[str] = []
        ended: list[DriverError] = []
        given = {"life_seconds": 60.0, "first_seconds": 5.0, "progress_seconds": 0.3, **options}

        async def whole() -> None:
            async with self.client(*script) as client:
                with pytest.raises(DriverError) as caught:
                    async with contextlib.aclosing(watch(client, PODS, "spec.nodeName=a", **given)) as events:
                        async for event in events:
                            kinds.append(event.kind)
                ended.append(caught.value)

        check_leaks(whole())
        return kinds, ended[0]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A server that this test scripts."""
    return Rig(tmp_path)


def status(code: int, *causes: str) -> dict[str, Any]:
    """A v1.Status."""
    return {"kind": "Status", "code": code, "message": f"no {code}",
            "details": {"causes": [{"reason": cause} for cause in causes]}}


REFUSALS = [
    (401, status(401), ErrorKind.DENIED), (403, status(403), ErrorKind.DENIED),
    (404, status(404), ErrorKind.ABSENT), (409, status(409), ErrorKind.BUSY),
    (410, status(410), ErrorKind.LOST), (422, status(422), ErrorKind.BUSY),
    (422, status(422, "FieldValueInvalid"), ErrorKind.INVALID), (400, b"\xff", ErrorKind.INVALID),
    (429, b"Too many requests", ErrorKind.BUSY), (500, b"", ErrorKind.BUSY), (503, b"[]", ErrorKind.BUSY),
    (504, status(504), ErrorKind.TIMEOUT), (302, b"", ErrorKind.INVALID),
]


@pytest.mark.parametrize(("code", "body", "kind"), REFUSALS)
def test_a_refusal_has_a_kind(rig: Rig, code: int, body: object, kind: ErrorKind) -> None:
    """Status and causes decide; a body that is no Status does no harm, and no redirect is followed."""
    error = rig.failure(reply(code, body, "Location: https://127.0.0.1:1/"))

    assert isinstance(error, ApiRefusal)
    assert (error.kind, error.status, len(rig.requests)) == (kind, code, 1)


BROKEN = [
    (never, ErrorKind.TIMEOUT), (drip, ErrorKind.TIMEOUT), (nonsense, ErrorKind.LOST),
    (reply(200, b"{", length=100), ErrorKind.LOST), (flood, ErrorKind.INVALID),
    (reply(200, b"x", "Content-Encoding: gzip"), ErrorKind.INVALID),
]


@pytest.mark.parametrize(("answer", "kind"), BROKEN)
def test_no_whole_answer_is_an_error_within_the_deadline(rig: Rig, answer: Write, kind: ErrorKind) -> None:
    """Silence, a drip, half a body, garbage and a flood all end, and the token is in none of the messages."""
    error = rig.failure(answer, deadline_seconds=0.6 if kind is ErrorKind.TIMEOUT else 5.0)

    assert error.kind is kind
    assert "secret-1" not in str(error)


def test_a_certificate_of_somebody_else_gets_no_token(rig: Rig) -> None:
    """The name must fit; nothing is sent otherwise."""
    error = rig.failure(reply(200), name="elsewhere.invalid")

    assert error.kind is ErrorKind.INVALID
    assert rig.requests == []


@pytest.mark.parametrize("code", [401, 403])
def test_a_renewed_token_is_used_at_once(rig: Rig, code: int) -> None:
    """Refused with the old token while the file has a new one: one more attempt, with that."""
    rig.on_request = lambda: rig.token.write_text("secret-2") and None

    async def whole() -> None:
        async with rig.client(reply(code), reply(200, b"{}")) as client:
            assert await client.get(NODE) == b"{}"

    check_leaks(whole())
    assert ["secret-1" in rig.requests[0], "secret-2" in rig.requests[1]] == [True, True]


def test_the_same_token_is_not_sent_again(rig: Rig) -> None:
    """Refused and nothing new to show: one request."""
    assert rig.failure(reply(401)).kind is ErrorKind.DENIED
    assert len(rig.requests) == 1


def test_overload_is_counted_by_its_level_and_a_disruption_budget_is_none(rig: Rig) -> None:
    """Both are 429; only the first is the server's, and its Retry-After is kept."""
    headers = ("X-Kubernetes-PF-PriorityLevel-UID: level-1", "X-Kubernetes-PF-FlowSchema-UID: schema-1")
    overload = rig.failure(reply(429, b"Too many requests", "Retry-After: 7", *headers))
    other = rig.failure(reply(429, status(429, "DisruptionBudget"), *headers))
    told = rig.budget.as_of_now()

    assert isinstance(overload, ApiRefusal) and isinstance(other, ApiRefusal)
    assert (overload.overloaded, overload.retry_after_seconds, other.overloaded) == (True, 7.0, False)
    assert [(t.priority_level, t.throttled_count) for t in told.throttles] == [("level-1", 1)]
    assert (told.priority_level, told.flow_schema) == ("level-1", "schema-1")


def test_a_spent_budget_sends_nothing_until_it_refills(rig: Rig) -> None:
    """The request beyond the bucket is withheld, with the time until the next."""
    rig.budget = Budget(rig.clock.monotonic_seconds, {"get": Allowance(2, 60.0)})

    async def whole() -> None:
        async with rig.client(reply(200, b"{}")) as client:
            for _ in range(2):
                await client.get(NODE)
            with pytest.raises(ApiRefusal) as caught:
                await client.get(NODE)
            assert (caught.value.kind, caught.value.retry_after_seconds) == (ErrorKind.BUSY, 60.0)
            rig.clock.now_seconds += 61
            await client.get(NODE)

    check_leaks(whole())
    verb = rig.budget.as_of_now().verbs[0]
    assert (verb.spent_count, verb.withheld_count, verb.left_count, len(rig.requests)) == (3, 1, 0, 3)


# --------------------------------------------------------------------------- watch

ADDED = b'{"type":"ADDED","object":{}}\n'
GONE = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'


@pytest.mark.parametrize(("answer", "kinds", "kind"), [
    (stream(ADDED), ["ADDED"], ErrorKind.LOST),
    (stream(ADDED[:9], ADDED[9:] + ADDED, then="silence"), ["ADDED", "ADDED"], ErrorKind.TIMEOUT),
    (stream(ADDED, then="break"), ["ADDED"], ErrorKind.LOST),
    (stream(ADDED, GONE, ADDED), ["ADDED"], ErrorKind.LOST),
    (stream(ADDED, b"{half\n"), ["ADDED"], ErrorKind.INVALID),
    (flood, [], ErrorKind.INVALID),
    (stream(b'{"type":"MAGIC","object":{}}\n'), [], ErrorKind.INVALID),
    (reply(403, status(403)), [], ErrorKind.DENIED),
    (reply(500), [], ErrorKind.BUSY),
])  # fmt: skip
def test_a_watch_ends_by_an_error(rig: Rig, answer: Write, kinds: list[str], kind: ErrorKind) -> None:
    """Events before the fault count; the fault has its kind, and silence after an event is one."""
    seen, error = rig.watched(answer)

    assert (seen, error.kind) == (kinds, kind)


def test_a_watch_that_never_begins_ends_too(rig: Rig) -> None:
    """No head, and a head without a first event, both end at the deadline of the first event."""
    for answer in (never, stream(then="silence")):
        assert rig.watched(answer, first_seconds=0.4)[1].kind is ErrorKind.TIMEOUT


def test_a_watch_asks_from_the_servers_memory(rig: Rig) -> None:
    """resourceVersion=0 with bookmarks and a time limit; an end before that limit is told as early."""
    _, error = rig.watched(stream(ADDED))

    line = rig.requests[0].split("\r\n")[0]
    for words in ("resourceVersion=0", "allowWatchBookmarks=true", "timeoutSeconds=60", "spec.nodeName%3Da"):
        assert words in line
    assert isinstance(error, WatchEnded) and error.early
