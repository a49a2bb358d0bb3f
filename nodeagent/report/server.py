"""The daemon's ears: a unix socket for people and tools, a TCP port for probes and metrics.

Listening problems are reported, never raised: an agent without a socket still judges the node. It
never removes a socket that another process answers on, and never a file that is no socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import grp
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from nodeagent.config.values import parse_listen
from nodeagent.report.exchange import Exchange, ServerLimits
from nodeagent.report.routes import Answer, BadRequest, CommandAnswer, Request, Surface, error, respond

__all__ = ["BadRequest", "CommandAnswer", "ListenProblem", "ServerLimits", "StatusServer", "Surface"]

SOCKET_GROUP = "nodeagent"
SOCKET_MODE = 0o660
BACKLOG = 64
REASONS = ("malformed", "too_large", "timeout", "too_many")
"""Why a request is not taken."""
BUG_GAP_SECONDS = 60.0
"""At most one sentence about a bug in this time."""
_CREDENTIALS = struct.Struct("iII")
_BUSY = error(503, "too many connections at once; try again in a few seconds")
_BUSY_BYTES = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BUSY.body), _BUSY.body)
)


class ListenProblem(Struct, frozen=True, kw_only=True):
    """One listener that could not be opened as configured."""

    listener: str
    """socket | metrics"""
    address: str
    sentence: str
    busy: bool = False
    """Another process answers there."""
    listens: bool = False
    """It is open all the same."""


class StatusServer:
    """Both listeners and their connections, on the loop that starts them."""

    def __init__(
        self,
        surface: Surface,
        *,
        socket_path: str,
        metrics_listen: str = "",
        group: str = SOCKET_GROUP,
        limits: ServerLimits | None = None,
        on_bug: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """Open nothing yet; `on_bug` gets one sentence a minute at most when a surface method raises."""
        self.rejected: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        """Requests refused since the start, by reason: malformed, too_large, timeout, too_many."""
        self._surface = surface
        self._socket_path = Path(socket_path)
        self._metrics_listen = metrics_listen
        self._group = group
        self._limits = limits or ServerLimits()
        self._on_bug = on_bug
        self._bug_told_at: float | None = None
        self._stopping = False
        self._servers: dict[str, asyncio.Server] = {}
        self._bound: tuple[int, int] | None = None
        """(device, inode) of the socket file that is ours."""
        self._exchanges: dict[str, set[asyncio.Task[None]]] = {"socket": set(), "metrics": set()}

    @property
    def connection_count(self) -> int:
        """Connections being served now, on both listeners."""
        return sum(len(tasks) for tasks in self._exchanges.values())

    async def start(self) -> tuple[ListenProblem, ...]:
        """Open what is not open, or has lost its file; call it again to retry. Returns what is wrong."""
        self._stopping = False
        problems: list[ListenProblem] = []
        if "socket" in self._servers and not self._has_its_file():
            self._servers.pop("socket").close()
            self._bound = None
        if "socket" not in self._servers:
            await self._start_socket(problems)
        if "metrics" not in self._servers and self._metrics_listen:
            await self._start_metrics(problems)
        return tuple(problems)

    async def stop(self) -> None:
        """Close listeners and connections; remove the socket file if it is still ours."""
        self._stopping = True
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        tasks = [task for group in self._exchanges.values() for task in group]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(OSError):
            if self._has_its_file():
                self._socket_path.unlink()
        self._bound = None

    def _has_its_file(self) -> bool:
        try:
            return self._bound is not None and _identity(self._socket_path) == self._bound
        except OSError:
            return False

    # ----------------------------------------------------------------------- listeners

    async def _start_socket(self, problems: list[ListenProblem]) -> None:
        problem = functools.partial(ListenProblem, listener="socket", address=str(self._socket_path))
        try:
            self._socket_path.parent.mkdir(mode=0o755, exist_ok=True)
            if _is_answered(self._socket_path):
                sentence = "another process answers on it; is a second agent running?"
                problems.append(problem(sentence=sentence, busy=True))
                return
            listener = self._bind(problems)
        except OSError as failure:
            problems.append(problem(sentence=f"cannot listen: {failure.strerror or failure}"))
            return
        self._servers["socket"] = await asyncio.start_unix_server(
            functools.partial(self._accept, "socket"), sock=listener, backlog=BACKLOG,
            limit=self._limits.head_bytes,
        )

    def _bind(self, problems: list[ListenProblem]) -> socket.socket:
        """Bind and set mode and group before anybody can connect, which takes listen(). Raises OSError."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setblocking(False)
            listener.bind(str(self._socket_path))
            self._bound = _identity(self._socket_path)
            self._socket_path.chmod(SOCKET_MODE)
        except OSError:
            listener.close()
            raise
        try:
            os.chown(self._socket_path, -1, grp.getgrnam(self._group).gr_gid)
        except KeyError:
            pass  # no such group: root alone may connect
        except OSError as failure:
            sentence = f"group {self._group} cannot be set, so only the agent's own user can connect: "
            sentence += failure.strerror or str(failure)
            address = str(self._socket_path)
            problems.append(
                ListenProblem(listener="socket", address=address, sentence=sentence, listens=True)
            )
        return listener

    async def _start_metrics(self, problems: list[ListenProblem]) -> None:
        problem = functools.partial(ListenProblem, listener="metrics", address=self._metrics_listen)
        address = parse_listen(self._metrics_listen)
        if address is None:
            problems.append(problem(sentence="metrics_listen must be address:port"))
            return
        try:
            self._servers["metrics"] = await asyncio.start_server(
                functools.partial(self._accept, "metrics"), *address, backlog=BACKLOG,
                limit=self._limits.head_bytes,
            )
        except (OSError, UnicodeError) as failure:
            busy = isinstance(failure, OSError) and failure.errno == errno.EADDRINUSE
            reason = "the port is taken by another process" if busy else _reason(failure)
            sentence = f"cannot listen: {reason}; metrics, health and ready are on the unix socket only"
            problems.append(problem(sentence=sentence, busy=busy))

    # ----------------------------------------------------------------------- connections

    async def _accept(
        self, listener: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection; asyncio has made a task of this."""
        task = asyncio.current_task()
        assert task is not None
        active = self._exchanges[listener]
        # drain() then waits until the kernel has taken everything, so that close() has nothing to wait for.
        writer.transport.set_write_buffer_limits(high=0)
        if self._stopping:  # accepted while stop() was running
            writer.close()
            return
        if len(active) >= self._limits.connections:
            self._count_refused("too_many")
            writer.write(_BUSY_BYTES)
            writer.close()
            return
        active.add(task)
        try:
            exchange = Exchange(reader, writer, self._limits)
            respond_to = functools.partial(self._respond, listener == "metrics")
            await exchange.run(respond_to, _peer_user_id(writer), self._count_refused)
        except asyncio.CancelledError:
            pass  # stop(): asyncio would print a traceback of a cancelled connection
        except Exception as bug:  # a connection must never end the agent
            self._tell_bug(f"a connection failed: {type(bug).__name__}: {bug}")
        finally:
            active.discard(task)
            # What the peer has not taken within its time is thrown away with the connection.
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            writer.close()

    def _count_refused(self, reason: str) -> None:
        self.rejected[reason] += 1

    async def _respond(self, probes_only: bool, request: Request) -> Answer:
        try:
            return await respond(self._surface, request, probes_only=probes_only)
        except TimeoutError:
            raise
        except Exception as bug:  # one wrong answer must not take the others along
            self._tell_bug(f"{request.path} could not be answered: {type(bug).__name__}: {bug}")
            return error(500, f"{request.path} could not be answered; see journalctl -t nodeagent")

    def _tell_bug(self, sentence: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._bug_told_at is None or now - self._bug_told_at >= BUG_GAP_SECONDS:
            self._bug_told_at = now
            self._on_bug(sentence)


def _reason(failure: Exception) -> str:
    return (failure.strerror if isinstance(failure, OSError) else None) or str(failure)


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _is_answered(path: Path) -> bool:
    """Say whether somebody answers on the socket at `path`; remove a stale one. Raises OSError."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "the path exists and is no socket; move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return False
        except BlockingIOError:
            return True  # its backlog is full: there is somebody, only slow
    return True


def _peer_user_id(writer: asyncio.StreamWriter) -> int | None:
    peer = writer.get_extra_info("socket")
    if peer is None or peer.family != socket.AF_UNIX:
        return None
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
