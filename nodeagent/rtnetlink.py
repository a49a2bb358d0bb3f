"""Reads of rtnetlink: fixed headers and raw attributes, whole or not at all; never writes.

Why not pyroute2: its 0.9 line does not report an interrupted dump, ends a dump early when a parser skips a
whole buffer, and takes 126 ms of the loop for 500 devices where this takes 17 (docs/adr/005). Some lists of
the kernel (tc) say nothing when they change under the reader: those are dumped with `watch`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nodeagent.errors import DriverError, ErrorKind

GET_LINK, GET_ADDRESS, GET_ROUTE, GET_NEIGHBOUR = 18, 22, 26, 30
GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""Multicast groups: link, IPv4 address and route, IPv6 address and route."""
TRIES = 5
DEADLINE_SECONDS = 10.0

_REQUEST, _ACK, _ECHO, _DUMP, _INTERRUPTED = 0x1, 0x4, 0x8, 0x300, 0x10
_NOOP, _ERROR, _DONE = 1, 2, 3
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_TYPE_MASK = 0x3FFF
_BUFFER_BYTES = 1 << 18
_KINDS = {errno.EPERM: ErrorKind.DENIED, errno.EACCES: ErrorKind.DENIED, errno.EBUSY: ErrorKind.BUSY,
          errno.EOPNOTSUPP: ErrorKind.ABSENT, errno.EAFNOSUPPORT: ErrorKind.ABSENT}  # fmt: skip


class Message(NamedTuple):
    """One object of a dump."""

    data: bytes
    at: int
    """Where its fixed header begins in `data`."""
    end: int

    def attributes(self, header_bytes: int) -> dict[int, bytes]:
        """Type -> value of the attributes behind a fixed header of that many bytes."""
        return parse_attributes(self.data, self.at + header_bytes, self.end)


def parse_attributes(data: bytes, at: int, end: int) -> dict[int, bytes]:
    """Type -> value; what does not fit into the message is left out."""
    found: dict[int, bytes] = {}
    while at + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < 4 or at + length > end:
            break
        found[kind & _TYPE_MASK] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return found


class _Interrupted(Exception):
    """The kernel's list changed while it was read."""


Concerns = Callable[[int, Message], bool]
"""Whether a notification (its type, its message) is of something that a dump lists."""


async def dump(
    kind: int, header: bytes, *, watch: int = 0, concerns: Concerns | None = None
) -> list[Message]:
    """Every object of a kind; `header` is the fixed header of the request.

    `watch`: multicast groups as a mask; a notification that `concerns` says of them during the dump makes it
    interrupted. Raises DriverError: busy (interrupted `TRIES` times), timeout, denied, absent, invalid.
    """
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            for attempt in range(TRIES):
                await asyncio.sleep(0.01 * attempt)
                try:
                    return await _dump_once(kind, header, watch, concerns)
                except _Interrupted:
                    continue
    except TimeoutError as error:
        raise DriverError(ErrorKind.TIMEOUT, "rtnetlink", "dump", f"no end of dump {kind}") from error
    except OSError as error:
        raise _failed(kind, error.errno or 0) from error
    raise DriverError(ErrorKind.BUSY, "rtnetlink", "dump", f"dump {kind} was interrupted {TRIES} times")


async def get(kind: int, header: bytes) -> Message | None:
    """One object (`header` as in the request, attributes behind it); None when there is no such object.

    Raises DriverError: timeout, denied, invalid.
    """
    loop = asyncio.get_running_loop()
    found: Message | None = None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            with _opened(0) as connection:
                # tc answers the one who asked only when told to echo, else no more than its listeners.
                connection.send(_request(kind, _REQUEST | _ACK | _ECHO, header))
                while True:
                    for type_, _, _, message in _messages(await loop.sock_recv(connection, _BUFFER_BYTES)):
                        if type_ != _ERROR:
                            found = message
                        elif _status(message) in (0, -errno.ENOENT, -errno.ENODEV):
                            return found
                        else:
                            raise _failed(kind, -_status(message))
    except TimeoutError as error:
        raise DriverError(ErrorKind.TIMEOUT, "rtnetlink", "get", f"no answer to get {kind}") from error
    except OSError as error:
        raise _failed(kind, error.errno or 0) from error


async def _dump_once(kind: int, header: bytes, watch: int, concerns: Concerns | None) -> list[Message]:
    loop = asyncio.get_running_loop()
    found: list[Message] = []
    interrupted = False
    with _opened(watch) as connection:
        own, _ = connection.getsockname()
        connection.send(_request(kind, _REQUEST | _DUMP, header))
        while True:
            data = await _received(loop, connection)
            for type_, message_flags, sender, message in _messages(data):
                if watch and sender != own:
                    interrupted = interrupted or concerns is None or concerns(type_, message)
                    continue
                interrupted = interrupted or bool(message_flags & _INTERRUPTED)
                if type_ == _ERROR:
                    raise _failed(kind, -_status(message))
                if type_ == _DONE:
                    if interrupted:
                        raise _Interrupted
                    if _status(message) < 0:
                        raise _failed(kind, -_status(message))
                    return found
                if type_ != _NOOP:
                    found.append(message)
            await asyncio.sleep(0)  # the answer is always there: let others have the loop in between


async def _received(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    try:
        return await loop.sock_recv(connection, _BUFFER_BYTES)
    except OSError as error:
        if error.errno == errno.ENOBUFS:  # notifications were lost, perhaps one that concerns the dump
            raise _Interrupted from error
        raise


def _opened(groups: int) -> socket.socket:
    flags = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    connection = socket.socket(socket.AF_NETLINK, flags, socket.NETLINK_ROUTE)
    try:
        connection.bind((0, groups))
    except OSError:
        connection.close()
        raise
    return connection


def _request(kind: int, flags: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def _messages(data: bytes) -> Iterator[tuple[int, int, int, Message]]:
    """Type, flags, port of the sender, object."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, type_, flags, _, port = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            raise DriverError(ErrorKind.INVALID, "rtnetlink", "dump", "a message is cut off")
        yield type_, flags, port, Message(data, at + _HEADER.size, at + length)
        at += (length + 3) & ~3


def _status(message: Message) -> int:
    if message.end - message.at < 4:
        return 0
    return int(struct.unpack_from("=i", message.data, message.at)[0])


def _failed(kind: int, number: int) -> DriverError:
    detail = f"dump {kind}: {os.strerror(number)}"
    return DriverError(_KINDS.get(number, ErrorKind.INVALID), "rtnetlink", "dump", detail)
