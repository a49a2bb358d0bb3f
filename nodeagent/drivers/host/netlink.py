"""Asks rtnetlink without an event loop, because only the worker does it and its calls may block anyway.

A NIC driver that hangs under the kernel's lock of network devices blocks these calls for ever: the caller
names each before it is made.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

from nodeagent.errors import DriverError, ErrorKind
from nodeagent.net_signals import Gateway
from nodeagent.netlink_wire import (
    DONE,
    DUMP,
    ERROR,
    GET_NEIGHBOUR,
    GET_ROUTE,
    INTERRUPTED,
    NOOP,
    REQUEST,
    Message,
    failed,
    messages,
    request,
    status,
)

TRIES = 4
_DEADLINE_SECONDS = 5.0
_BUFFER_BYTES = 1 << 18
_CLOCK_TICKS_PER_SECOND = 100.0
"""USER_HZ, in which the kernel tells the ages of a neighbour."""
_ROUTE = struct.Struct("=BBBBBBBBI")
_NEXT_HOP = struct.Struct("=HBBi")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_CACHE = struct.Struct("=IIII")
_MAIN_TABLE, _UNICAST = 254, 1
_PERMANENT, _LEARNED = 0x80, 0x10
"""A state and a flag of entries that the table's limit does not count."""
_STATES = {
    0x01: "incomplete", 0x02: "reachable", 0x04: "stale", 0x08: "delay", 0x10: "probe", 0x20: "failed",
    0x40: "noarp", 0x80: "permanent",
}
_GATEWAY, _OUT_DEVICE, _TABLE, _MULTIPATH, _VIA = 5, 4, 15, 9, 18
FAMILIES = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}


class Hop(NamedTuple):
    """One way out of a default route."""

    device: int
    """Its index."""
    address: str
    """Of the gateway; empty where the route needs none."""


def default_hops() -> list[Hop]:
    """Every next hop of every default route of the main table. Raises DriverError."""
    found: dict[Hop, None] = {}
    for family in FAMILIES.values():
        try:
            answers = _dump(GET_ROUTE, _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0))
        except DriverError as error:
            if error.kind is ErrorKind.ABSENT:  # a kernel without IPv6
                continue
            raise
        for message in answers:
            _, length, _, _, table, _, _, type_, _ = _ROUTE.unpack_from(message.data, message.at)
            if type_ != _UNICAST or length:
                continue
            attributes = message.attributes(_ROUTE.size)
            if (_number(attributes.get(_TABLE, b"")) or table) == _MAIN_TABLE:
                found |= dict.fromkeys(_hops(attributes))
    return list(found)


def _hops(attributes: dict[int, bytes]) -> Iterator[Hop]:
    if _OUT_DEVICE in attributes:
        yield Hop(_number(attributes[_OUT_DEVICE]), _gateway(attributes))
    data, at = attributes.get(_MULTIPATH, b""), 0
    while at + _NEXT_HOP.size <= len(data):
        length, _, _, index = _NEXT_HOP.unpack_from(data, at)
        if not _NEXT_HOP.size <= length <= len(data) - at:
            return
        yield Hop(index, _gateway(Message(data, at, at + length).attributes(_NEXT_HOP.size)))
        at += (length + 3) & ~3


def _gateway(attributes: dict[int, bytes]) -> str:
    """A gateway of the route's own family, or one of another family."""
    raw = attributes.get(_GATEWAY) or attributes.get(_VIA, b"")[2:]
    return socket.inet_ntop(_family(raw), raw) if len(raw) in (4, 16) else ""


def _family(address: bytes) -> int:
    return socket.AF_INET if len(address) == 4 else socket.AF_INET6


def gateway(hop: Hop) -> Gateway:
    """The kernel's entry of a gateway; `none` where it has none. Raises DriverError."""
    family = socket.AF_INET6 if ":" in hop.address else socket.AF_INET
    raw = socket.inet_pton(family, hop.address)
    body = _NEIGHBOUR.pack(family, hop.device, 0, 0, 0) + struct.pack("=HH", 4 + len(raw), 1) + raw
    with _asked(GET_NEIGHBOUR, REQUEST, body) as connection:
        for type_, _, _, message in messages(connection.recv(_BUFFER_BYTES)):
            if type_ == ERROR and status(message) in (-errno.ENOENT, -errno.ENODEV):
                return Gateway(state="none")
            if type_ == ERROR:
                raise failed(GET_NEIGHBOUR, -status(message))
            return _entry(message)
    raise DriverError(ErrorKind.INVALID, hop.address, "get neighbour", "an empty answer")


def _entry(message: Message) -> Gateway:
    _, _, state, _, _ = _NEIGHBOUR.unpack_from(message.data, message.at)
    cache = message.attributes(_NEIGHBOUR.size).get(3, b"")
    ages = _CACHE.unpack_from(cache) if len(cache) >= _CACHE.size else None
    return Gateway(
        state=_STATES.get(state, "none"),
        confirmed_seconds=ages[0] / _CLOCK_TICKS_PER_SECOND if ages else None,
        used_seconds=ages[1] / _CLOCK_TICKS_PER_SECOND if ages else None,
    )


def exempt_count(family: int) -> int:
    """Neighbours of this namespace that the table's limit does not count. Raises DriverError."""
    found = 0
    for message in _dump(GET_NEIGHBOUR, _NEIGHBOUR.pack(family, 0, 0, 0, 0)):
        _, _, state, flags, _ = _NEIGHBOUR.unpack_from(message.data, message.at)
        found += bool(state & _PERMANENT or flags & _LEARNED)
    return found


def _dump(kind: int, header: bytes) -> list[Message]:
    """Every object of a kind, whole or not at all. Raises DriverError."""
    for _ in range(TRIES):
        with _asked(kind, REQUEST | DUMP, header) as connection:
            found = _dump_once(connection, kind)
        if found is not None:
            return found
    raise DriverError(ErrorKind.BUSY, "rtnetlink", "dump", f"dump {kind} was interrupted {TRIES} times")


def _dump_once(connection: socket.socket, kind: int) -> list[Message] | None:
    """None when the list changed while it was read."""
    found: list[Message] = []
    interrupted = False
    while True:
        for type_, flags, _, message in messages(connection.recv(_BUFFER_BYTES)):
            interrupted = interrupted or bool(flags & INTERRUPTED)
            if type_ in (ERROR, DONE) and status(message) < 0:
                raise failed(kind, -status(message))
            if type_ == DONE:
                return None if interrupted else found
            if type_ != NOOP:
                found.append(message)


@contextlib.contextmanager
def _asked(kind: int, flags: int, body: bytes) -> Iterator[socket.socket]:
    """A connection on which this was asked. Raises DriverError for whatever goes wrong within."""
    flavour = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    try:
        with socket.socket(socket.AF_NETLINK, flavour, socket.NETLINK_ROUTE) as connection:
            connection.settimeout(_DEADLINE_SECONDS)
            connection.send(request(kind, flags, body))
            yield connection
    except TimeoutError as error:
        raise DriverError(ErrorKind.TIMEOUT, "rtnetlink", "dump", f"no answer to {kind}") from error
    except OSError as error:
        raise failed(kind, error.errno or 0) from error


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, sys.byteorder)
