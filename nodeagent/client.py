"""Asks the daemon over its unix socket: the smallest HTTP client that serves, for a quick start.

Only the standard library, and of it only what loads in a few milliseconds. It never waits longer than
its deadline and never believes an answer that is cut short.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import socket
import time
from typing import NamedTuple

ANSWER_BYTES = 64 * 1024 * 1024
"""More than any answer of ours; a wrong peer must not fill the memory."""
_PIECE_BYTES = 65536


class Cause(enum.Enum):
    """Why there is no answer."""

    MISSING = "missing"
    """No socket there: the agent does not run, or elsewhere."""
    REFUSED = "refused"
    """A socket file that nobody answers on: the agent was killed."""
    DENIED = "denied"
    """This user may not connect."""
    TIMEOUT = "timeout"
    """Somebody is there and does not answer in time."""
    GARBLED = "garbled"
    """What answers is no agent, or broke off."""


class Unreachable(Exception):
    """The daemon did not answer; `detail` is a half sentence for a person."""

    def __init__(self, socket_path: str, cause: Cause, detail: str) -> None:
        self.socket_path = socket_path
        self.cause = cause
        self.detail = detail
        super().__init__(f"{socket_path}: {detail}")


class Response(NamedTuple):
    """One complete answer."""

    status: int
    body: bytes


def ask(
    socket_path: str, method: str, target: str, body: bytes = b"", *, timeout_seconds: float = 10.0
) -> Response:
    """Send one request and return the complete answer. Raises Unreachable."""
    head = f"{method} {target} HTTP/1.1\r\nHost: nodeagent\r\nContent-Length: {len(body)}\r\n\r\n"
    deadline_seconds = time.monotonic() + timeout_seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(socket_path)
            _send(connection, head.encode("ascii") + body)
            return _parse(_receive(connection, deadline_seconds), socket_path)
    except (OSError, ValueError) as error:
        raise _unreachable(socket_path, error, timeout_seconds) from None


def _send(connection: socket.socket, data: bytes) -> None:
    # A request that is refused before it was read whole has its answer already.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(data)


def _receive(connection: socket.socket, deadline_seconds: float) -> bytes:
    received = bytearray()
    while len(received) <= ANSWER_BYTES:
        left_seconds = deadline_seconds - time.monotonic()
        if left_seconds <= 0:
            raise TimeoutError
        connection.settimeout(left_seconds)
        try:
            piece = connection.recv(_PIECE_BYTES)
        except ConnectionResetError:
            break  # what came before it is judged by its length
        if not piece:
            break
        received += piece
    return bytes(received)


def _parse(answer: bytes, socket_path: str) -> Response:
    head, separator, body = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    words = lines[0].split(b" ")
    length = next((line[15:].strip() for line in lines if line.lower().startswith(b"content-length:")), b"")
    is_http = separator and words[0].startswith(b"HTTP/1.") and len(words) > 1 and words[1].isdigit()
    if not is_http or not length.isdigit():
        detail = "the answer is not from nodeagent" if answer else "it closed without an answer"
        raise Unreachable(socket_path, Cause.GARBLED, detail)
    if len(body) != int(length):
        raise Unreachable(socket_path, Cause.GARBLED, "the answer was cut short")
    return Response(int(words[1]), body)


_CAUSES = {
    errno.ENOENT: (Cause.MISSING, "no such socket"),
    errno.ENOTDIR: (Cause.MISSING, "no such socket"),
    errno.ECONNREFUSED: (Cause.REFUSED, "nobody answers on it"),
    errno.EACCES: (Cause.DENIED, "permission denied"),
    errno.EPERM: (Cause.DENIED, "permission denied"),
}


def _unreachable(socket_path: str, error: Exception, timeout_seconds: float) -> Unreachable:
    if isinstance(error, TimeoutError | BlockingIOError):
        return Unreachable(socket_path, Cause.TIMEOUT, f"no answer within {timeout_seconds:g} s")
    number = error.errno if isinstance(error, OSError) else None
    cause, detail = _CAUSES.get(number or 0, (Cause.GARBLED, str(error)))
    return Unreachable(socket_path, cause, detail)
