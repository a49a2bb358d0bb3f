"""A running status server on real sockets, and a client for it that can misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodeagent.report import schema, status
from nodeagent.report.given import ReportInput
from nodeagent.report.server import BadRequest, CommandAnswer, ListenProblem, ServerLimits, StatusServer
from nodeagent.signals import GpuCommand

QUICK = ServerLimits(request_seconds=0.3, answer_seconds=0.3, write_seconds=0.3, connections=4)


class FakeSurface:
    """Answers with plain texts and remembers what it was asked."""

    def __init__(self) -> None:
        """Be healthy, ready and obedient."""
        self.asked: list[Any] = []
        self.is_healthy = self.is_ready = True
        self.fails = self.hangs = False
        self.status = b'{"schema":"nodeagent/status/v1"}'

    def status_json(self) -> bytes:
        """Fail like a bug when told to."""
        if self.fails:
            raise ZeroDivisionError("a bug")
        return self.status

    def checks_json(self) -> bytes:
        """Any body."""
        return b'{"schema":"nodeagent/check/v1"}'

    def history_json(self, since_seconds: float | None) -> bytes:
        """Remember the window."""
        self.asked.append(since_seconds)
        return b'{"schema":"nodeagent/history/v1"}'

    def metrics_text(self) -> tuple[bytes, str]:
        """One metric."""
        return b"up 1\n", "text/plain; version=0.0.4"

    def healthy(self) -> bool:
        """As told."""
        return self.is_healthy

    def ready(self) -> bool:
        """As told."""
        return self.is_ready

    async def check_now(self, ids: tuple[str, ...]) -> bytes:
        """Refuse one id, hang when told to."""
        self.asked.append(ids)
        if self.hangs:
            await asyncio.sleep(3600)
        if "nope" in ids:
            raise BadRequest("no check nope")
        return b'{"schema":"nodeagent/check/v1","checks":[]}'

    async def command(self, command: GpuCommand) -> CommandAnswer:
        """Obey but for one target."""
        self.asked.append(command)
        return CommandAnswer(ok=command.target != "gone", sentence="done")

    async def net_top(self) -> bytes:
        """Any body."""
        return b'{"schema":"nodeagent/net-top/v1"}'

    async def net_show(self, pod: str) -> bytes:
        """Remember the pod, refuse one."""
        self.asked.append(pod)
        if pod == "no/such":
            raise BadRequest("no pod no/such on this node")
        return b'{"schema":"nodeagent/net-show/v1"}'

    async def net_diff(self) -> bytes:
        """Any body."""
        return b'{"schema":"nodeagent/net-diff/v1"}'


class SceneSurface(FakeSurface):
    """Answers with the real reports of a scripted node."""

    def __init__(self, scene: ReportInput) -> None:
        """Hold the scene."""
        super().__init__()
        self.scene = scene

    def status_json(self) -> bytes:
        """The scene's status report."""
        return schema.encode(status.build_status(self.scene))

    def history_json(self, since_seconds: float | None) -> bytes:
        """The scene's history."""
        self.asked.append(since_seconds)
        return schema.encode(status.build_history(self.scene, since_seconds=since_seconds))

    async def check_now(self, ids: tuple[str, ...]) -> bytes:
        """The scene's rows."""
        self.asked.append(ids)
        return schema.encode(status.build_check(self.scene, ids))


class Served:
    """A running server and its surface, seen from the test's thread."""

    def __init__(self, path: Path, surface: FakeSurface, server: StatusServer, bugs: list[str]) -> None:
        """Hold the parts."""
        self.path, self.surface, self.server, self.bugs = path, surface, server, bugs

    def connect(self) -> socket.socket:
        """A connected client that never blocks a test for ever."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20)
        client.connect(str(self.path))
        return client

    def raw(self, data: bytes) -> bytes:
        """Send bytes, then read to the end; a reset counts as the end."""
        with self.connect() as client:
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # answered and closed before everything was sent
            return read_all(client)

    def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, Any]:
        """One well-formed request; returns status and decoded body."""
        head = f"{method} {target} HTTP/1.1\r\nHost: nodeagent\r\nContent-Length: {len(body)}\r\n\r\n"
        return parse(self.raw(head.encode() + body))


def read_all(client: socket.socket) -> bytes:
    """Everything until the peer closes."""
    received = b""
    try:
        while piece := client.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def parse(answer: bytes) -> tuple[int, Any]:
    """Status and body, JSON decoded where it is JSON; checks the framing on the way."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    assert headers["connection"] == "close"
    assert int(headers["content-length"]) == len(body)
    is_json = headers["content-type"] == "application/json"
    return int(lines[0].split()[1]), json.loads(body) if is_json else body.decode()


@contextmanager
def running(server: StatusServer) -> Iterator[tuple[ListenProblem, ...]]:
    """The server on a loop in a thread of its own; stopped and joined at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(), loop).result(20)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
