"""One HTTP request and its answer on one connection, within limits; h11 does the parsing.

Every connection carries exactly one request and ends within bounded time, whatever the peer does or
leaves undone. It logs nothing: a peer must not be able to fill the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import h11
from msgspec import Struct

from nodeagent.report.routes import Answer, Request, error

LINGER_BYTES = 256 * 1024
LINGER_SECONDS = 1.0
SENTENCE_CHARACTERS = 200
_CHUNK_BYTES = 4096


class ServerLimits(Struct, frozen=True, kw_only=True):
    """What one peer may take."""

    head_bytes: int = 16 * 1024
    """Request line and headers together."""
    body_bytes: int = 64 * 1024
    request_seconds: float = 5.0
    """From accept to the end of the request; a slow sender is cut off."""
    answer_seconds: float = 60.0
    """For the daemon to find the answer."""
    write_seconds: float = 10.0
    """For the peer to take the answer."""
    connections: int = 32
    """At once, for each listener."""


class _Refused(Exception):
    """The request cannot be taken; `reason` is the counter's label."""

    def __init__(self, reason: str, answer: Answer) -> None:
        self.reason = reason
        self.answer = answer
        super().__init__(reason)


class Exchange:
    """One connection from accept to close."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ServerLimits
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._is_head_method = False

    async def run(
        self,
        respond: Callable[[Request], Awaitable[Answer]],
        user_id: int | None,
        on_refused: Callable[[str], None],
    ) -> None:
        """Read and answer; `on_refused` gets malformed, too_large or timeout when there is no request."""
        refused = False
        try:
            request = await self._read(user_id)
            if request is None:
                return
            answer = await self._answer(respond, request)
        except _Refused as problem:
            refused, answer = True, problem.answer
            on_refused(problem.reason)
        except OSError:
            return  # the peer is gone; nobody is left to tell
        with contextlib.suppress(OSError, TimeoutError, h11.LocalProtocolError):
            async with asyncio.timeout(self._limits.write_seconds):
                await self._send(answer)
        if refused:
            await self._linger()

    async def _answer(self, respond: Callable[[Request], Awaitable[Answer]], request: Request) -> Answer:
        try:
            async with asyncio.timeout(self._limits.answer_seconds):
                return await respond(request)
        except TimeoutError:
            seconds = f"{self._limits.answer_seconds:g}"
            return error(504, f"no answer within {seconds} s; the agent goes on reading")

    async def _read(self, user_id: int | None) -> Request | None:
        """The complete request, None when the peer left without one. Raises _Refused, OSError."""
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                head = await self._next_event()
                if not isinstance(head, h11.Request):
                    return None
                self._is_head_method = head.method == b"HEAD"
                return self._request(head, await self._read_body(head), user_id)
        except TimeoutError:
            sentence = f"the request was not complete within {self._limits.request_seconds:g} s"
            raise _Refused("timeout", error(408, sentence)) from None
        except h11.RemoteProtocolError as problem:
            too_large = problem.error_status_hint == 431
            reason = "too_large" if too_large else "malformed"
            sentence = f"this is no valid HTTP request: {str(problem)[:SENTENCE_CHARACTERS]}"
            raise _Refused(reason, error(problem.error_status_hint, sentence)) from None

    async def _read_body(self, head: h11.Request) -> bytes:
        # h11 has made sure that there is at most one length and that it is a number.
        declared = next((int(value) for name, value in head.headers if name == b"content-length"), 0)
        body = bytearray()
        while declared <= self._limits.body_bytes and len(body) <= self._limits.body_bytes:
            if self._http.they_are_waiting_for_100_continue:
                self._write(h11.InformationalResponse(status_code=100, headers=[]))
            event = await self._next_event()
            if isinstance(event, h11.EndOfMessage):
                return bytes(body)
            if isinstance(event, h11.Data):
                body += event.data
        sentence = f"the body is larger than {self._limits.body_bytes} bytes"
        raise _Refused("too_large", error(413, sentence))

    def _request(self, head: h11.Request, body: bytes, user_id: int | None) -> Request:
        target, _, query = head.target.decode("latin-1").partition("?")
        method = head.method.decode("latin-1")
        if self._is_head_method:
            method = "HEAD"
        return Request(method=method, path=target, query=query, body=body, user_id=user_id)

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if not isinstance(event, type) or event is h11.PAUSED:
                return event
            self._http.receive_data(await self._reader.read(_CHUNK_BYTES))

    def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)

    async def _send(self, answer: Answer) -> None:
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "close"),
        ]
        if answer.allow:
            headers.append(("Allow", answer.allow))
        self._write(h11.Response(status_code=answer.status, headers=headers))
        if not self._is_head_method:
            self._write(h11.Data(data=answer.body))
        self._write(h11.EndOfMessage())
        await self._writer.drain()

    async def _linger(self) -> None:
        """Take in the rest of a refused request, for unread data would destroy the answer in flight."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                taken = 0
                while taken < LINGER_BYTES and (data := await self._reader.read(_CHUNK_BYTES)):
                    taken += len(data)
