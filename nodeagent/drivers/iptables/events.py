"""Hears that somebody changed a mangle table of nftables; says no more than that.

Legacy tables and ipsets tell nobody of a change: only comparing finds those.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from nodeagent.errors import DriverError, ErrorKind

_NETFILTER, _SOL_NETLINK, _ADD_MEMBERSHIP, _NFTABLES_GROUP = 12, 270, 1, 7
_BUFFER_BYTES = 1 << 18
_READS_A_TURN = 16
_TABLE = b"mangle\0"
"""Name of the table, in every message on one of its rules or chains, or on itself."""


class RuleEvents:
    """Calls `on_event` in the running loop, once for all events that wait; lost ones count as one."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        self._on_event = on_event
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Begin to listen; raises DriverError(denied or absent) where nftables cannot be heard."""
        flags = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        try:
            self._socket = socket.socket(socket.AF_NETLINK, flags, _NETFILTER)
            self._socket.bind((0, 0))
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _NFTABLES_GROUP)
        except OSError as error:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            kind = ErrorKind.DENIED if isinstance(error, PermissionError) else ErrorKind.ABSENT
            raise DriverError(kind, "nftables", "listen", error.strerror or str(error)) from error
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_readable)

    def close(self) -> None:
        """End; further calls do nothing."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _on_readable(self) -> None:
        assert self._socket is not None
        is_ours = False
        for _ in range(_READS_A_TURN):
            try:
                is_ours |= _TABLE in self._socket.recv(_BUFFER_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                is_ours = True  # ENOBUFS: the kernel dropped events, perhaps one on this table
        if is_ours:
            self._on_event()
