"""What the status server answers on its unix socket, and how it refuses what is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.report.server import StatusServer
from nodeagent.signals import GpuCommand
from tests.report.serving import FakeSurface, Served, parse, read_all, running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: a socket's is limited to 107 bytes."""
    return tmp_path_factory.mktemp("s")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    """One server with ordinary limits for all tests that do not need their own."""
    surface, bugs = FakeSurface(), []
    server = StatusServer(surface, socket_path=str(folder / "a.sock"), on_bug=bugs.append)
    with running(server):
        yield Served(folder / "a.sock", surface, server, bugs)


DONE = {"schema": "nodeagent/gpu/v1", "ok": True, "sentence": "done"}
ROUTES = [
    ("GET", "/v1/status", b"", 200, {"schema": "nodeagent/status/v1"}),
    ("GET", "/v1/status?verbose=1", b"", 200, {"schema": "nodeagent/status/v1"}),
    ("GET", "/v1/checks", b"", 200, {"schema": "nodeagent/check/v1"}),
    ("GET", "/v1/history", b"", 200, {"schema": "nodeagent/history/v1"}),
    ("GET", "/metrics", b"", 200, "up 1\n"),
    ("GET", "/health", b"", 200, "ok\n"),
    ("GET", "/ready", b"", 200, "ok\n"),
    ("GET", "/v1/net/top", b"", 200, {"schema": "nodeagent/net-top/v1"}),
    ("GET", "/v1/net/show?pod=a%2Fb", b"", 200, {"schema": "nodeagent/net-show/v1"}),
    ("GET", "/v1/net/diff", b"", 200, {"schema": "nodeagent/net-diff/v1"}),
    ("POST", "/v1/check", b"", 200, {"schema": "nodeagent/check/v1", "checks": []}),
    ("POST", "/v1/check", b'{"ids":["gpu.lost"]}', 200, {"schema": "nodeagent/check/v1", "checks": []}),
    ("POST", "/v1/gpu/release", b'{"for_seconds":60}', 200, DONE),
    ("POST", "/v1/gpu/resume", b"{}", 200, DONE),
    ("POST", "/v1/gpu/repaired", b'{"target":"gone","reason":"new"}', 409, DONE | {"ok": False}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "target", "body", "status", "expected"), ROUTES)
def test_every_path_answers(
    served: Served, method: str, target: str, body: bytes, status: int, expected: Any
) -> None:
    """Each path hands the surface's own answer through."""
    assert served.ask(method, target, body) == (status, expected)


REFUSED = [
    ("GET", "/v1/net/show", b"", 400, "show takes only pod="),
    ("GET", "/v1/net/show?pod=%ff", b"", 400, "show takes only pod="),
    ("GET", "/v1/net/show?pod=no/such", b"", 400, "no pod no/such"),
    ("GET", "/", b"", 404, "no such path"),
    ("GET", "/v1/nothing", b"", 404, "no such path"),
    ("GET", "http://x/v1/status", b"", 404, "no such path"),
    ("GET", "//[", b"", 404, "no such path"),
    ("POST", "/v1/status", b"", 405, "/v1/status takes GET only"),
    ("GET", "/v1/check", b"", 405, "/v1/check takes POST only"),
    ("BREW", "/metrics", b"", 405, "/metrics takes GET only"),
    ("GET", "/v1/history?since_seconds=x", b"", 400, "history takes only since_seconds=N"),
    ("GET", "/v1/history?since_seconds=-1", b"", 400, "history takes only since_seconds=N"),
    ("GET", "/v1/history?since_seconds=nan", b"", 400, "history takes only since_seconds=N"),
    ("GET", "/v1/history?since_seconds=1e999", b"", 400, "history takes only since_seconds=N"),
    ("GET", "/v1/history?since_seconds=", b"", 400, "history takes only since_seconds=N"),
    ("GET", "/v1/history?since=1", b"", 400, "history takes only since_seconds=N"),
    ("GET", "/v1/history?since_seconds=1&since_seconds=2", b"", 400, "history takes only since_seconds=N"),
    ("GET", "/v1/history?" + "&".join("a=1" * 9), b"", 400, "history takes only since_seconds=N"),
    ("GET", "/v1/history?%", b"", 400, "history takes only since_seconds=N"),
    ("POST", "/v1/check", b"{", 400, "the body is not what this path takes"),
    ("POST", "/v1/check", b"\xff", 400, "the body is not what this path takes"),
    ("POST", "/v1/check", b"[]", 400, "Expected `object`, got `array`"),
    ("POST", "/v1/check", b'{"ids":"a"}', 400, "Expected `array`, got `str`"),
    ("POST", "/v1/check", b'{"id":["a"]}', 400, "unknown field `id`"),
    ("POST", "/v1/check", b'{"ids":["nope"]}', 400, "no check nope"),
    ("POST", "/v1/check", b"[" * 60000, 400, "the body is not what this path takes"),
    ("POST", "/v1/gpu/release", b'{"for_seconds":0}', 400, "`float` >= 1.0"),
    ("POST", "/v1/gpu/release", b'{"for_seconds":1e999}', 400, "the body is not what this path takes"),
    ("POST", "/v1/gpu/release", b'{"for_seconds":"15m"}', 400, "Expected `float | null`, got `str`"),
    ("POST", "/v1/gpu/resume", b'{"now":true}', 400, "unknown field `now`"),
    ("POST", "/v1/gpu/repaired", b"", 400, "missing required field `target`"),
    ("POST", "/v1/gpu/repaired", b'{"target":"a","reason":" "}', 400, "neither may be blank"),
    ("POST", "/v1/gpu/repaired", b'{"target":"a","reason":"b\\n"}', 400, "printable text on one line"),
    ("POST", "/v1/check", b"x" * 65537, 413, "the body is larger than 65536 bytes"),
]


@pytest.mark.parametrize(("method", "target", "body", "status", "sentence"), REFUSED)
def test_a_wrong_request_gets_one_sentence(
    served: Served, method: str, target: str, body: bytes, status: int, sentence: str
) -> None:
    """What a peer asks for in error is answered with what would be right, as JSON."""
    found, answer = served.ask(method, target, body)

    assert (found, answer["schema"]) == (status, "nodeagent/error/v1")
    assert sentence in answer["error"]
    assert answer["error"].isprintable()


MALFORMED = [
    (b"hello\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{}", 400),
    (b"POST /v1/check HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 30000 + b"\r\n\r\n", 431),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (
        b"POST /v1/check HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"8000\r\n" + b"x" * 0x8000 + b"\r\n" + b"8001\r\n" + b"x" * 0x8001 + b"\r\n0\r\n\r\n",
        413,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status"), MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_http_gets_one_sentence(served: Served, data: bytes, status: int) -> None:
    """Bytes that are no HTTP, or too many, are refused with a status and a sentence."""
    before = sum(served.server.rejected.values())

    found, answer = parse(served.raw(data))

    assert (found, answer["schema"]) == (status, "nodeagent/error/v1")
    assert sum(served.server.rejected.values()) == before + 1
    assert served.bugs == []


def test_a_chunked_body_within_the_limit_is_taken(served: Served) -> None:
    """Clients that do not know the length beforehand are served."""
    head = b"POST /v1/check HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

    assert parse(served.raw(head + b"2\r\n{}\r\n0\r\n\r\n"))[0] == 200


def test_a_client_that_waits_for_100_continue_is_told_to_go_on(served: Served) -> None:
    """`Expect: 100-continue` is answered before the body is read."""
    with served.connect() as client:
        client.sendall(
            b"POST /v1/check HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        interim = client.recv(64)
        client.sendall(b"{}")

        assert interim.startswith(b"HTTP/1.1 100 ")
        assert parse(read_all(client))[0] == 200


def test_head_has_no_body(served: Served) -> None:
    """HEAD answers like GET, without the body."""
    head, _, body = served.raw(b"HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n").partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"Content-Length: 3" in head
    assert body == b""


def test_a_second_request_on_the_connection_is_not_served(served: Served) -> None:
    """One request a connection: what follows is dropped with it."""
    status, _ = parse(served.raw(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 2))

    assert status == 200


def test_a_peer_that_says_nothing_leaves_no_trace(served: Served) -> None:
    """A probe that only connects is no malformed request."""
    before = dict(served.server.rejected)

    assert served.raw(b"") == b""
    assert dict(served.server.rejected) == before


def test_commands_carry_the_peers_user(served: Served) -> None:
    """Who asked is known from the socket, not from the request."""
    served.ask("POST", "/v1/gpu/release", b'{"for_seconds":60}')
    served.ask("POST", "/v1/gpu/repaired", b'{"target":"0000:4e:00.0","reason":"new board"}')

    assert served.surface.asked[-2:] == [
        GpuCommand(verb="release", for_seconds=60.0, user_id=os.getuid()),
        GpuCommand(verb="repaired", target="0000:4e:00.0", reason="new board", user_id=os.getuid()),
    ]


def test_the_window_of_history_is_handed_on(served: Served) -> None:
    """since_seconds reaches the surface as a number, absent as None."""
    served.ask("GET", "/v1/history?since_seconds=3600")
    served.ask("GET", "/v1/history")

    assert served.surface.asked[-2:] == [3600.0, None]
