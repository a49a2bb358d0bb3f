"""Hears that links, addresses or routes changed; says no more than that."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from nodeagent.drivers.links.netlink import GROUPS
from nodeagent.errors import DriverError, ErrorKind

_BUFFER_BYTES = 1 << 18
_READS_A_TURN = 16
"""A flood of events must not keep the loop to itself."""


class LinkEvents:
    """Calls `on_event` in the running loop, once for all events that wait; lost ones count as one."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        self._on_event = on_event
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Begin to listen; raises DriverError(denied or absent) where rtnetlink cannot be had."""
        flags = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        try:
            self._socket = socket.socket(socket.AF_NETLINK, flags, socket.NETLINK_ROUTE)
            self._socket.bind((0, GROUPS))
        except OSError as error:
            self.close()
            kind = ErrorKind.DENIED if isinstance(error, PermissionError) else ErrorKind.ABSENT
            raise DriverError(kind, "rtnetlink", "listen", error.strerror or str(error)) from error
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_readable)

    def close(self) -> None:
        """End; further calls do nothing."""
        if self._socket is not None:
            if self._socket.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _on_readable(self) -> None:
        assert self._socket is not None
        for _ in range(_READS_A_TURN):
            try:
                self._socket.recv(_BUFFER_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue  # ENOBUFS: the kernel dropped events; that something changed is all we say
        self._on_event()
