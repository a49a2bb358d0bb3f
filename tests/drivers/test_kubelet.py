"""The kubelet's list over real TLS: trust, tokens, and every way in which an answer can fail to come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from nodeagent import pod_parse
from nodeagent.drivers.kubelet import KubeletPods
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import PodList
from tests.drivers.rig import check_leaks

LIST = json.dumps(
    {"kind": "PodList", "items": [{"metadata": {"uid": "u1", "name": "a", "namespace": "b"}}]}
).encode()
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def reply(status: int, body: bytes = b"", *more: str, length: int | None = None) -> Answer:
    """An answer with that status and body; `length` announces another size."""

    async def write(writer: asyncio.StreamWriter) -> None:
        size = len(body) if length is None else length
        head = "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Length: {size}", *more, "", ""])
        writer.write(head.encode() + body)
        await writer.drain()

    return write


async def never(_: asyncio.StreamWriter) -> None:
    """No answer at all."""
    await asyncio.sleep(3600)


async def flood(writer: asyncio.StreamWriter) -> None:
    """A body without end, in chunks."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        await writer.drain()


async def drip(writer: asyncio.StreamWriter) -> None:
    """One byte at a time, each soon enough for any timeout between two of them."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


class Kubelet:
    """A scripted server on loopback; the last answer repeats."""

    def __init__(self, authority: trustme.CA, name: str, answers: tuple[Answer, ...]) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(self._context)
        self._answers = list(answers)
        self.requests: list[str] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def serve(self) -> Any:
        """Serve while the block runs."""
        tasks: set[asyncio.Task[None]] = set()

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                await (self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])(writer)
            writer.transport.abort()

        server = await asyncio.start_server(on_connection, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()


class Rig:
    """Token, CA and reader of one test."""

    def __init__(self, tmp_path: Path) -> None:
        self.authority = trustme.CA()
        self.token = tmp_path / "token"
        self.token.write_text("secret-1\n")
        self.ca = tmp_path / "ca.crt"
        self.authority.cert_pem.write_to_path(self.ca)
        self.requests: list[str] = []

    def read(self, *answers: Answer, name: str = "127.0.0.1", **options: Any) -> PodList:
        """Read once from a server with these answers; nothing is left open afterwards."""
        result: list[PodList] = []

        async def whole() -> None:
            async with Kubelet(self.authority, name, answers).serve() as kubelet:
                self.requests = kubelet.requests
                reader = KubeletPods(
                    f"https://127.0.0.1:{kubelet.port}/", str(self.token),
                    **{"ca_file": str(self.ca), "deadline_seconds": 5.0, **options},
                )
                result.append(await reader.read())

        check_leaks(whole())
        return result[0]

    def error(self, *answers: Answer, **options: Any) -> DriverError:
        """The error that reading ends with."""
        with pytest.raises(DriverError) as caught:
            self.read(*answers, **options)
        assert "secret" not in str(caught.value)
        return caught.value


@pytest.fixture(scope="module", autouse=True)
def _import_first() -> Iterator[None]:
    """What httpx keeps open for good is no leak of a read."""
    import httpx

    asyncio.run(httpx.AsyncClient().aclose())
    yield


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A token and a CA."""
    return Rig(tmp_path)


def test_pods_are_read_with_the_token(rig: Rig) -> None:
    """GET /pods with the bearer token; the list comes parsed."""
    pods = rig.read(reply(200, LIST))

    assert [pod.uid for pod in pods.pods] == ["u1"] and pods.source == "kubelet"
    assert len(rig.requests) == 1
    assert rig.requests[0].startswith("GET /pods HTTP/1.1\r\n")
    assert "authorization: bearer secret-1\r\n" in rig.requests[0].lower()


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_read_again_once(rig: Rig, status: int) -> None:
    """A token that was renewed between the two attempts helps."""

    async def renew(writer: asyncio.StreamWriter) -> None:
        rig.token.write_text("secret-2")
        await reply(status)(writer)

    rig.read(renew, reply(200, LIST))

    assert ["secret-1" in rig.requests[0], "secret-2" in rig.requests[1]] == [True, True]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_ends_after_one_retry(rig: Rig, status: int) -> None:
    """Two refusals are DENIED, with what the kubelet said; there is no third attempt."""
    error = rig.error(reply(status, b"Forbidden (user=x,\x1b[31m verb=get)"))

    assert error.kind is ErrorKind.DENIED
    assert error.detail == f"the kubelet answered {status}: Forbidden (user=x,[31m verb=get)"
    assert len(rig.requests) == 2


CASES: list[tuple[str, Answer, ErrorKind, str]] = [
    ("garbage body", reply(200, b"<html>"), ErrorKind.INVALID, "not a v1.PodList"),
    ("another object", reply(200, b'{"kind":"Status"}'), ErrorKind.INVALID, "not a v1.PodList"),
    ("half body", reply(200, LIST[:20], length=len(LIST)), ErrorKind.LOST, "RemoteProtocolError"),
    ("server error", reply(500, b"oops"), ErrorKind.INVALID, "the kubelet answered 500: oops"),
    ("redirect", reply(302, b"", "Location: https://127.0.0.1:1/"), ErrorKind.INVALID, "answered 302"),
    ("compressed", reply(200, b"x", "Content-Encoding: gzip"), ErrorKind.INVALID, "compressed"),
    ("huge", flood, ErrorKind.INVALID, "larger than"),
]


@pytest.mark.parametrize(("answer", "kind", "text"), [row[1:] for row in CASES], ids=[r[0] for r in CASES])
def test_every_other_answer_is_one_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, answer: Answer, kind: ErrorKind, text: str
) -> None:
    """Its kind and detail tell what came instead of a list; it is not tried again."""
    monkeypatch.setattr(pod_parse, "MAX_BYTES", 4 << 20)

    error = rig.error(answer)

    assert error.kind is kind
    assert text in error.detail
    assert len(rig.requests) == 1


@pytest.mark.parametrize("answer", [never, drip])
def test_no_whole_answer_is_a_timeout(rig: Rig, answer: Answer) -> None:
    """Silence, and bytes that never end, both end at the deadline."""
    error = rig.error(answer, deadline_seconds=0.5)

    assert (error.kind, error.detail) == (ErrorKind.TIMEOUT, "no whole answer within 0.5 s")


def test_nobody_listens(rig: Rig) -> None:
    """A refused connection is ABSENT."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        reader = KubeletPods(f"https://127.0.0.1:{unused.getsockname()[1]}", str(rig.token))
        with pytest.raises(DriverError) as caught:
            asyncio.run(reader.read())

    assert caught.value.kind is ErrorKind.ABSENT
    assert caught.value.detail == "nobody listens there"


def test_a_foreign_certificate_is_refused(rig: Rig, tmp_path: Path) -> None:
    """Another CA, or another name on the certificate: no token is sent, and the remedy is named."""
    other = tmp_path / "other.crt"
    trustme.CA().cert_pem.write_to_path(other)

    for options in ({"ca_file": str(other)}, {"name": "10.9.9.9"}):
        error = rig.error(reply(200, LIST), **options)
        assert error.kind is ErrorKind.INVALID
        assert "certificate is not trusted" in error.detail and "kubelet_insecure" in error.detail
        assert rig.requests == []


def test_trust_in_any_certificate_must_be_asked_for(rig: Rig) -> None:
    """With `insecure` a self-made certificate for another name is accepted."""
    pods = rig.read(reply(200, LIST), name="10.9.9.9", insecure=True, ca_file="")

    assert len(pods.pods) == 1


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("token", None, ErrorKind.ABSENT),
        ("token", "", ErrorKind.INVALID),
        ("token", "a\nb", ErrorKind.INVALID),
        ("ca", None, ErrorKind.ABSENT),
        ("ca", "no certificate", ErrorKind.INVALID),
    ],
)
def test_a_bad_token_or_ca_file_is_named(rig: Rig, name: str, text: str | None, kind: ErrorKind) -> None:
    """The detail names the file, and nothing is sent."""
    file: Path = getattr(rig, name)
    file.unlink()
    if text is not None:
        file.write_text(text)

    error = rig.error(reply(200, LIST))

    assert error.kind is kind
    assert str(file) in error.detail
    assert rig.requests == []


def test_a_proxy_of_the_environment_is_not_used(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token goes to the node itself, whatever HTTPS_PROXY says."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")

    assert len(rig.read(reply(200, LIST)).pods) == 1
