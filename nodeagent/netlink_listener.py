"""Hears netlink notifications without blocking the loop; says no more than that something changed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from nodeagent.errors import DriverError, ErrorKind

_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_BUFFER_BYTES = 1 << 18
_READS_A_TURN = 16
"""A flood of events must not keep the loop to itself."""


class NetlinkListener:
    """Calls `on_event` in the running loop, once for all events that wait; lost ones count as one."""

    def __init__(
        self, protocol: int, target: str, on_event: Callable[[], None], *, groups: int = 0,
        membership: int = 0, concerns: Callable[[bytes], bool] = lambda _: True,
    ) -> None:
        """`groups`: multicast groups as a mask; `membership`: one group by number, for those a mask
        cannot name; `concerns`: whether a message is worth an event; `target` names the world in errors."""
        self._protocol = protocol
        self._target = target
        self._on_event = on_event
        self._groups = groups
        self._membership = membership
        self._concerns = concerns
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Begin to listen; raises DriverError(denied or absent) where that cannot be had."""
        flags = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        try:
            self._socket = socket.socket(socket.AF_NETLINK, flags, self._protocol)
            self._socket.bind((0, self._groups))
            if self._membership:
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, self._membership)
        except OSError as error:
            self.close()
            kind = ErrorKind.DENIED if isinstance(error, PermissionError) else ErrorKind.ABSENT
            raise DriverError(kind, self._target, "listen", error.strerror or str(error)) from error
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
        concerned = False
        for _ in range(_READS_A_TURN):
            try:
                concerned |= self._concerns(self._socket.recv(_BUFFER_BYTES))
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                concerned = True  # ENOBUFS: the kernel dropped events, perhaps one that concerns us
        if concerned:
            self._on_event()
