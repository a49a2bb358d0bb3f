"""Dumps of rtnetlink: fixed headers and raw attributes, whole or not at all.

Why not pyroute2: its 0.9 line does not report an interrupted dump, ends a dump early when a parser skips a
whole buffer, and takes 126 ms of the loop for 500 devices where this takes 17 (docs/adr/005).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from nodeagent.errors import DriverError, ErrorKind

GET_LINK, GET_ADDRESS, GET_ROUTE, GET_NEIGHBOUR = 18, 22, 26, 30
GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""Multicast groups: link, IPv4 address and route, IPv6 address and route."""
TRIES = 5
DEADLINE_SECONDS = 10.0

_REQUEST, _DUMP, _INTERRUPTED = 0x1, 0x300, 0x10
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


async def dump(kind: int, header: bytes) -> list[Message]:
    """Every object of a kind; `header` is the fixed header of the request.

    Raises DriverError: busy (interrupted `TRIES` times), timeout, denied, absent, invalid.
    """
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            for attempt in range(TRIES):
                await asyncio.sleep(0.01 * attempt)
                try:
                    return await _dump_once(kind, header)
                except _Interrupted:
                    continue
    except TimeoutError as error:
        raise DriverError(ErrorKind.TIMEOUT, "rtnetlink", "dump", f"no end of dump {kind}") from error
    except OSError as error:
        raise _failed(kind, error.errno or 0) from error
    raise DriverError(ErrorKind.BUSY, "rtnetlink", "dump", f"dump {kind} was interrupted {TRIES} times")


async def _dump_once(kind: int, header: bytes) -> list[Message]:
    loop = asyncio.get_running_loop()
    found: list[Message] = []
    interrupted = False
    flags = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, flags, socket.NETLINK_ROUTE) as connection:
        connection.bind((0, 0))
        connection.send(_HEADER.pack(_HEADER.size + len(header), kind, _REQUEST | _DUMP, 1, 0) + header)
        while True:
            data = await loop.sock_recv(connection, _BUFFER_BYTES)
            for type_, message_flags, message in _messages(data):
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


def _messages(data: bytes) -> Iterator[tuple[int, int, Message]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, type_, flags, _, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            raise DriverError(ErrorKind.INVALID, "rtnetlink", "dump", "a message is cut off")
        yield type_, flags, Message(data, at + _HEADER.size, at + length)
        at += (length + 3) & ~3


def _status(message: Message) -> int:
    if message.end - message.at < 4:
        return 0
    return int(struct.unpack_from("=i", message.data, message.at)[0])


def _failed(kind: int, number: int) -> DriverError:
    detail = f"dump {kind}: {os.strerror(number)}"
    return DriverError(_KINDS.get(number, ErrorKind.INVALID), "rtnetlink", "dump", detail)
