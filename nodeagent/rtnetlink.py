"""Reads of rtnetlink: fixed headers and raw attributes, whole or not at all; never writes.

Why not pyroute2: its 0.9 line does not report an interrupted dump, ends a dump early when a parser skips a
whole buffer, and takes 126 ms of the loop for 500 devices where this takes 17 (docs/adr/005). Some lists of
the kernel (tc) say nothing when they change under the reader: those are dumped with `watch`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from nodeagent.errors import DriverError, ErrorKind
from nodeagent.netlink_wire import (
    ACK,
    DONE,
    DUMP,
    ECHO,
    ERROR,
    GET_ADDRESS,
    GET_LINK,
    GET_NEIGHBOUR,
    GET_ROUTE,
    INTERRUPTED,
    NOOP,
    REQUEST,
    Message,
    failed,
    messages,
    parse_attributes,
    request,
    status,
)

__all__ = [
    "GET_ADDRESS", "GET_LINK", "GET_NEIGHBOUR", "GET_ROUTE", "Message", "dump", "get", "parse_attributes",
]  # fmt: skip

GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""Multicast groups: link, IPv4 address and route, IPv6 address and route."""
TRIES = 5
DEADLINE_SECONDS = 10.0

_BUFFER_BYTES = 1 << 18


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
        raise failed(kind, error.errno or 0) from error
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
                connection.send(request(kind, REQUEST | ACK | ECHO, header))
                while True:
                    for type_, _, _, message in messages(await loop.sock_recv(connection, _BUFFER_BYTES)):
                        if type_ != ERROR:
                            found = message
                        elif status(message) in (0, -errno.ENOENT, -errno.ENODEV):
                            return found
                        else:
                            raise failed(kind, -status(message))
    except TimeoutError as error:
        raise DriverError(ErrorKind.TIMEOUT, "rtnetlink", "get", f"no answer to get {kind}") from error
    except OSError as error:
        raise failed(kind, error.errno or 0) from error


async def _dump_once(kind: int, header: bytes, watch: int, concerns: Concerns | None) -> list[Message]:
    loop = asyncio.get_running_loop()
    found: list[Message] = []
    interrupted = False
    with _opened(watch) as connection:
        own, _ = connection.getsockname()
        connection.send(request(kind, REQUEST | DUMP, header))
        while True:
            data = await _received(loop, connection)
            for type_, message_flags, sender, message in messages(data):
                if watch and sender != own:
                    interrupted = interrupted or concerns is None or concerns(type_, message)
                    continue
                interrupted = interrupted or bool(message_flags & INTERRUPTED)
                if type_ == ERROR:
                    raise failed(kind, -status(message))
                if type_ == DONE:
                    if interrupted:
                        raise _Interrupted
                    if status(message) < 0:
                        raise failed(kind, -status(message))
                    return found
                if type_ != NOOP:
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
