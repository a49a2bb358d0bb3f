"""Messages of rtnetlink as bytes: built and taken apart, never sent. Pure.

The daemon's reader (`rtnetlink.py`) and the host worker's (`drivers/host/netlink.py`) share it: the worker
must not import asyncio, which would cost it 6 MiB.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from nodeagent.errors import DriverError, ErrorKind

GET_LINK, GET_ADDRESS, GET_ROUTE, GET_NEIGHBOUR = 18, 22, 26, 30
REQUEST, ACK, ECHO, DUMP, INTERRUPTED = 0x1, 0x4, 0x8, 0x300, 0x10
NOOP, ERROR, DONE = 1, 2, 3

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_TYPE_MASK = 0x3FFF
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


def request(kind: int, flags: int, body: bytes) -> bytes:
    """One request; `body` is its fixed header and the attributes behind it."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def messages(data: bytes) -> Iterator[tuple[int, int, int, Message]]:
    """Type, flags, port of the sender, object. Raises DriverError(invalid) for a message that is cut off."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, type_, flags, _, port = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            raise DriverError(ErrorKind.INVALID, "rtnetlink", "dump", "a message is cut off")
        yield type_, flags, port, Message(data, at + _HEADER.size, at + length)
        at += (length + 3) & ~3


def status(message: Message) -> int:
    """The error number of an error message, negative; 0: none."""
    if message.end - message.at < 4:
        return 0
    return int(struct.unpack_from("=i", message.data, message.at)[0])


def failed(kind: int, number: int) -> DriverError:
    """The DriverError of a dump that the kernel refused with this number."""
    detail = f"dump {kind}: {os.strerror(number)}"
    return DriverError(_KINDS.get(number, ErrorKind.INVALID), "rtnetlink", "dump", detail)
