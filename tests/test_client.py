"""The client over real unix sockets: complete answers only, and a cause for every other outcome."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.client import Cause, Response, Unreachable, ask

Talk = Callable[[socket.socket], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: a socket's is limited to 107 bytes."""
    return tmp_path_factory.mktemp("k")


@contextmanager
def peer(path: Path, talk: Talk) -> Iterator[str]:
    """A listener that takes one connection, talks, and closes it."""
    with socket.socket(socket.AF_UNIX) as listener:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(path)
        finally:
            thread.join()


def after_request(answer: bytes) -> Talk:
    """Read the request's head, then send these bytes."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    return talk


def at_once(answer: bytes) -> Talk:
    """Send without reading, as a refusing server does: the unread request resets the connection."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(answer)

    return talk


GOOD = b"HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\nok"


@pytest.mark.parametrize("talk", [after_request(GOOD), at_once(GOOD)])
def test_a_complete_answer_is_returned(folder: Path, talk: Talk) -> None:
    """Status and body, also where the server closes without reading everything."""
    with peer(folder / "a", talk) as path:
        assert ask(path, "GET", "/x") == Response(200, b"ok")


def test_a_body_larger_than_the_server_reads_gets_its_refusal(folder: Path) -> None:
    """A connection that breaks while sending still has an answer to read."""
    refusal = b"HTTP/1.1 413 \r\ncontent-length: 0\r\n\r\n"

    with peer(folder / "a", after_request(refusal)) as path:
        assert ask(path, "POST", "/x", b"x" * 4_000_000) == Response(413, b"")


BAD_ANSWERS = [
    (b"", "it closed without an answer"),
    (b"hello", "the answer is not from nodeagent"),
    (b"HTTP/1.1 200 \r\n\r\n", "the answer is not from nodeagent"),
    (b"HTTP/1.1 2x0 \r\ncontent-length: 2\r\n\r\nok", "the answer is not from nodeagent"),
    (b"HTTP/1.1 200 \r\ncontent-length: -2\r\n\r\nok", "the answer is not from nodeagent"),
    (b"HTTP/1.1 200 \r\ncontent-length: 3\r\n\r\nok", "the answer was cut short"),
    (b"HTTP/1.1 200 \r\ncontent-length: 1\r\n\r\nok", "the answer was cut short"),
    (b"HTTP/1.1", "the answer is not from nodeagent"),
]


@pytest.mark.parametrize(("answer", "detail"), BAD_ANSWERS)
def test_anything_but_a_complete_answer_is_garbled(folder: Path, answer: bytes, detail: str) -> None:
    """A cut answer is never taken for a whole one."""
    with peer(folder / "a", after_request(answer)) as path, pytest.raises(Unreachable) as caught:
        ask(path, "GET", "/x")

    assert (caught.value.cause, caught.value.detail) == (Cause.GARBLED, detail)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60).map(lambda tail: b"HTTP/1.1 200 \r\n" + tail) | st.binary(max_size=60))
def test_any_answer_is_an_answer_or_a_cause(folder: Path, answer: bytes) -> None:
    """No bytes from the socket make the client fail otherwise."""
    with peer(folder / "a", after_request(answer)) as path:
        try:
            assert ask(path, "GET", "/x").status >= 0
        except Unreachable as error:
            assert error.cause is Cause.GARBLED


def test_a_silent_peer_is_a_timeout(folder: Path) -> None:
    """The deadline ends a wait for a hung daemon."""
    done = threading.Event()
    try:
        with peer(folder / "a", lambda connection: assert_waited(done)) as path:
            with pytest.raises(Unreachable) as caught:
                ask(path, "GET", "/x", timeout_seconds=0.1)
            done.set()
    finally:
        done.set()

    assert caught.value.cause is Cause.TIMEOUT


def assert_waited(done: threading.Event) -> None:
    """Hold the connection until the test has its answer."""
    assert done.wait(20)


def test_a_dripping_peer_is_a_timeout(folder: Path) -> None:
    """The deadline is for the whole answer, not for each byte of it."""
    done = threading.Event()

    def drip(connection: socket.socket) -> None:
        while not done.wait(0.01):
            try:
                connection.sendall(b"x")
            except OSError:
                return

    try:
        with peer(folder / "a", drip) as path:
            with pytest.raises(Unreachable) as caught:
                ask(path, "GET", "/x", timeout_seconds=0.2)
            done.set()
    finally:
        done.set()

    assert caught.value.cause is Cause.TIMEOUT


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("none", Cause.MISSING),
        ("file/none", Cause.MISSING),
        ("file", Cause.REFUSED),
        ("x" * 200, Cause.GARBLED),
    ],
)
def test_a_path_without_a_listener_has_its_cause(folder: Path, name: str, cause: Cause) -> None:
    """Absent, stale and impossible paths are told apart."""
    (folder / "file").touch()

    with pytest.raises(Unreachable) as caught:
        ask(str(folder / name), "GET", "/x")

    assert caught.value.cause is cause
