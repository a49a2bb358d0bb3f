"""Talks to the service manager: readiness, status text, watchdog pings (sd_notify(3)), as datagrams.

It must never stop or slow the loop that calls it: the socket does not block, and a full or vanished
one only answers False. Outside a service manager every call is the same no-op.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Protocol

from nodeagent.errors import DriverError, ErrorKind


class Notifier(Protocol):
    """What the daemon tells its service manager; each call returns whether the message was handed over."""

    listens: bool
    """False where nobody is told, so that nothing need be worded."""
    watchdog_timeout_seconds: float | None
    """The manager kills the service after this long without a ping (WATCHDOG_USEC); None: no watchdog."""

    def ready(self, status: str) -> bool:
        """Tell that start or reload is complete, with the status line."""

    def reloading(self) -> bool:
        """Tell that a reload begins; `ready` ends it."""

    def stopping(self) -> bool:
        """Tell that the service is on its way out."""

    def status(self, text: str) -> bool:
        """Set the line that `systemctl status` shows."""

    def watchdog(self) -> bool:
        """Ping the watchdog; call it from the loop itself, never from a side thread."""

    def close(self) -> None:
        """Give back the socket."""


class NullNotifier:
    """The notifier where no service manager listens: every call answers False and does nothing."""

    listens = False
    watchdog_timeout_seconds: float | None = None

    def ready(self, status: str) -> bool:
        """Do nothing."""
        return False

    def reloading(self) -> bool:
        """Do nothing."""
        return False

    def stopping(self) -> bool:
        """Do nothing."""
        return False

    def status(self, text: str) -> bool:
        """Do nothing."""
        return False

    def watchdog(self) -> bool:
        """Do nothing."""
        return False

    def close(self) -> None:
        """Do nothing."""


class SystemdNotifier:
    """The notifier on a NOTIFY_SOCKET: a path, or an abstract name when it starts with '@'."""

    listens = True

    def __init__(self, address: str, watchdog_timeout_seconds: float | None = None) -> None:
        """Open an own datagram socket; DriverError(invalid) for an address that is neither kind."""
        if address[:1] not in ("/", "@") or len(address) < 2:
            detail = "NOTIFY_SOCKET must start with '/' or '@'"
            raise DriverError(ErrorKind.INVALID, address, "sd_notify", detail)
        self.watchdog_timeout_seconds = watchdog_timeout_seconds
        self._address = "\0" + address[1:] if address.startswith("@") else address
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            raise DriverError(ErrorKind.ABSENT, address, "sd_notify", str(error)) from error

    def ready(self, status: str) -> bool:
        """Send READY=1 with the status line."""
        return self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def reloading(self) -> bool:
        """Send RELOADING=1 with the monotonic time that Type=notify-reload asks for."""
        now_microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        return self._send(f"RELOADING=1\nMONOTONIC_USEC={now_microseconds}")

    def stopping(self) -> bool:
        """Send STOPPING=1."""
        return self._send("STOPPING=1")

    def status(self, text: str) -> bool:
        """Send the status line."""
        return self._send(f"STATUS={_one_line(text)}")

    def watchdog(self) -> bool:
        """Send WATCHDOG=1."""
        return self._send("WATCHDOG=1")

    def close(self) -> None:
        """Close the socket; later calls answer False."""
        self._socket.close()

    def _send(self, message: str) -> bool:
        try:
            self._socket.sendto(message.encode("utf-8", "replace"), self._address)
        except OSError:
            return False
        return True


def from_environment(environment: Mapping[str, str] = os.environ) -> Notifier:
    """Return the notifier that NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID ask for.

    Raises DriverError(invalid) when NOTIFY_SOCKET is set to something that is no socket address.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return NullNotifier()
    return SystemdNotifier(address, watchdog_timeout_seconds(environment))


def watchdog_timeout_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the watchdog's timeout in seconds; None without one, or when it is another process's."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    pid = environment.get("WATCHDOG_PID", "")
    if not microseconds.isascii() or not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    if pid and pid != str(os.getpid()):
        return None
    return int(microseconds) / 1e6


def _one_line(text: str) -> str:
    return " ".join(text.split())
