"""Peers that are slow, greedy or mad: every connection ends, and the server stays."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.report.server import StatusServer
from tests.report.serving import QUICK, FakeSurface, Served, parse, read_all, running


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


@pytest.fixture
def quick(folder: Path) -> Iterator[Served]:
    """A server with tight limits."""
    surface, bugs = FakeSurface(), []
    server = StatusServer(surface, socket_path=str(folder / "q.sock"), limits=QUICK, on_bug=bugs.append)
    with running(server):
        yield Served(folder / "q.sock", surface, server, bugs)


def test_probes_say_no_with_503(quick: Served) -> None:
    """Health and ready follow the surface."""
    quick.surface.is_healthy = quick.surface.is_ready = False

    assert quick.ask("GET", "/health") == (503, "the cycle does not tick\n")
    assert quick.ask("GET", "/ready") == (503, "the first full cycle is not over\n")


def test_a_bug_is_told_once_a_minute_and_answered(quick: Served) -> None:
    """A surface that raises costs a 500 each and one sentence for all."""
    quick.surface.fails = True

    answers = [quick.ask("GET", "/v1/status") for _ in range(5)]

    assert [status for status, _ in answers] == [500] * 5
    assert quick.bugs == ["/v1/status could not be answered: ZeroDivisionError: a bug"]


def test_a_hanging_answer_ends_in_504(quick: Served) -> None:
    """A read that takes too long is given up with a sentence."""
    quick.surface.hangs = True

    status, answer = quick.ask("POST", "/v1/check")

    assert (status, answer["error"]) == (504, "no answer within 0.3 s; the agent goes on reading")


def test_a_slow_sender_is_cut_off(quick: Served) -> None:
    """A peer that never completes its request is answered 408 and closed."""
    with quick.connect() as client:
        client.sendall(b"GET /health HT")

        status, answer = parse(read_all(client))

    assert (status, answer["error"]) == (408, "the request was not complete within 0.3 s")
    assert quick.server.rejected["timeout"] == 1


def test_a_peer_that_does_not_read_is_cut_off(quick: Served) -> None:
    """An answer that nobody takes is thrown away with its connection."""
    quick.surface.status = b"x" * 8_000_000
    with quick.connect() as client:
        client.sendall(b"GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n")
        threading.Event().wait(1.0)

        assert len(read_all(client)) < 8_000_000
    assert quick.ask("GET", "/health")[0] == 200


def test_more_connections_than_allowed_are_told_to_wait(quick: Served) -> None:
    """The connection over the limit gets 503 at once; a place is free again when one ends."""
    idle = [quick.connect() for _ in range(QUICK.connections)]
    with quick.connect() as client:
        status, answer = parse(read_all(client))
    for client in idle:
        assert parse(read_all(client))[0] == 408
        client.close()

    assert (status, answer["schema"]) == (503, "nodeagent/error/v1")
    assert quick.ask("GET", "/health")[0] == 200


REQUEST_PIECES = [
    b"GET ", b"POST ", b"/v1/status", b"/v1/check", b"/v1/history?since_seconds=", b" HTTP/1.1", b"\r\n",
    b"Host: a", b"Content-Length: ", b"Transfer-Encoding: chunked", b"\r\n\r\n", b"{}", b"0", b"1", b"\x00",
    b"\xff", b"Expect: 100-continue", b"Connection: upgrade", b"Upgrade: websocket",
]  # fmt: skip
pieces = st.lists(st.one_of(st.sampled_from(REQUEST_PIECES), st.binary(max_size=30)), max_size=20)


@settings(max_examples=400, deadline=None)
@given(data=pieces.map(b"".join))
def test_any_bytes_are_answered_or_closed(served: Served, data: bytes) -> None:
    """Nothing that a peer sends kills the server or shows as a bug."""
    answer = served.raw(data)

    if answer and not data.startswith(b"HEAD") and not answer.startswith(b"HTTP/1.1 100"):
        assert parse(answer)[0] in {200, 400, 404, 405, 413, 431, 501, 505}
    assert served.bugs == []
    assert served.ask("GET", "/health")[0] == 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["ids", "for_seconds", "target", "reason", "x"]), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(
    value=json_values,
    path=st.sampled_from(["/v1/check", "/v1/gpu/release", "/v1/gpu/resume", "/v1/gpu/repaired"]),
)
def test_any_json_body_is_answered(served: Served, value: Any, path: str) -> None:
    """Every JSON body is a command, a refusal or one sentence."""
    status, answer = served.ask("POST", path, json.dumps(value).encode("utf-8", "replace"))

    assert status in {200, 400, 409}
    assert (status == 400) == (answer["schema"] == "nodeagent/error/v1")
    assert served.bugs == []
