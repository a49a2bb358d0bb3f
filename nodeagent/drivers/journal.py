"""Writes to the systemd journal in its native protocol, so that an event keeps its fields.

It must never block and never decide what is worth logging: it encodes what it is given and reports a
failure as DriverError. A message too large for a datagram travels in a sealed memfd, as journald expects.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import re
import socket
import struct
from collections.abc import Mapping

from nodeagent.errors import DriverError, ErrorKind

SOCKET_PATH = "/run/systemd/journal/socket"
FIELD_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}\Z")
"""What journald accepts from a client: it drops other names, and keeps a leading underscore for itself."""

_NAME_RULE = "a field name is A-Z, 0-9 and _, at most 64 characters, and starts with a letter"
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_TOO_LARGE = {errno.EMSGSIZE, errno.ENOBUFS}
_KINDS = {
    errno.ENOENT: ErrorKind.ABSENT,
    errno.ECONNREFUSED: ErrorKind.LOST,
    errno.EACCES: ErrorKind.DENIED,
    errno.EPERM: ErrorKind.DENIED,
    errno.EAGAIN: ErrorKind.BUSY,
}


class JournalSocket:
    """A datagram socket to journald, addressed anew with each message: its restart goes unnoticed."""

    def __init__(self, path: str = SOCKET_PATH) -> None:
        """Open the client end; nothing is sent. DriverError when the process may not have a socket."""
        self._path = path
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            raise _driver_error(path, error) from error

    def send(self, fields: Mapping[str, str | bytes]) -> None:
        """Send one entry.

        Raises DriverError: invalid for a field name journald would drop, absent, lost, denied or busy
        when the socket does not take the message.
        """
        message = encode(fields)
        try:
            self._socket.sendto(message, self._path)
        except OSError as error:
            if error.errno not in _TOO_LARGE:
                raise _driver_error(self._path, error) from error
            self._send_by_descriptor(message)

    def close(self) -> None:
        """Close the client end."""
        self._socket.close()

    def _send_by_descriptor(self, message: bytes) -> None:
        try:
            descriptor = os.memfd_create("nodeagent-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            raise _driver_error(self._path, error) from error
        try:
            remaining = memoryview(message)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
            self._socket.sendmsg([], [rights], 0, self._path)
        except OSError as error:
            raise _driver_error(self._path, error) from error
        finally:
            os.close(descriptor)


def encode(fields: Mapping[str, str | bytes]) -> bytes:
    """Return the native form of one entry.

    A field is a NAME=value line, or name, length and bytes where the value has a newline.
    Raises DriverError(invalid) for a field name journald would drop.
    """
    parts: list[bytes] = []
    for name, value in fields.items():
        if not FIELD_NAME.match(name):
            raise DriverError(ErrorKind.INVALID, name, "journal.encode", _NAME_RULE)
        raw = value.encode("utf-8", "replace") if isinstance(value, str) else value
        if b"\n" in raw:
            parts += [name.encode("ascii"), b"\n", struct.pack("<Q", len(raw)), raw, b"\n"]
        else:
            parts += [name.encode("ascii"), b"=", raw, b"\n"]
    return b"".join(parts)


def stream_is_journal(descriptor: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the descriptor is the stream that JOURNAL_STREAM (device:inode) names."""
    device, _, inode = environment.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


def _driver_error(path: str, error: OSError) -> DriverError:
    return DriverError(_KINDS.get(error.errno or 0, ErrorKind.INVALID), path, "journal.send", str(error))
