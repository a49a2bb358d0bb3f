"""The kernel log as records: /dev/kmsg, and whatever else hands over one record per read.

It must never block, and never judge a record: who wrote it (the facility) is data for others. Nobody but
the kernel can write facility 0: the kernel gives records from user space another one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from nodeagent.errors import DriverError, ErrorKind, kind_of

KMSG = "/dev/kmsg"
RECORD_BYTES = 8192
"""Enough for any record of current kernels; it grows when a read says that it was not."""
MAX_RECORD_BYTES = 65536

_PREFIX = re.compile(rb"(\d{1,10}),(\d{1,19}),(\d{1,19})(?:,[^;\n]*)?;")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_KINDS = {
    errno.ENXIO: ErrorKind.ABSENT,
    errno.EBUSY: ErrorKind.BUSY,
    errno.EAGAIN: ErrorKind.BUSY,
    errno.ECONNREFUSED: ErrorKind.LOST,
}


class RecordSource(Protocol):
    """A non-blocking stream of records."""

    def fileno(self) -> int:
        """Descriptor that becomes readable when a record waits."""

    def read(self) -> bytes:
        """One record. Raises OSError: BlockingIOError (none waits), BrokenPipeError (the ring overran
        this reader, which goes on with the oldest record left), EINVAL (the record did not fit and is
        skipped), anything else (the source is broken). Empty: the other end has closed."""

    def close(self) -> None:
        """Let the descriptor go; further calls do nothing."""


class KernelRecord(Struct, frozen=True, kw_only=True):
    """One record, taken apart."""

    facility: int
    """0: the kernel itself. Anything else was written from user space."""
    sequence: int
    at_seconds: float
    """The printk clock, seconds since boot; close to CLOCK_MONOTONIC."""
    text: str
    """The message with escapes undone; bytes that are no UTF-8 are replaced."""
    fields: dict[str, str] = {}
    """Dictionary lines such as SUBSYSTEM and DEVICE."""


class DescriptorSource:
    """Records from an open descriptor, one per read: /dev/kmsg, a datagram socket, a packet pipe."""

    def __init__(self, descriptor: int, record_bytes: int = RECORD_BYTES) -> None:
        """Take the descriptor over. `record_bytes` is the room for one record at first."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._record_bytes = record_bytes

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def read(self) -> bytes:
        """One record; after an EINVAL the next read has room for twice as much."""
        try:
            return os.read(self._descriptor, self._record_bytes)
        except OSError as error:
            if error.errno == errno.EINVAL:
                self._record_bytes = min(MAX_RECORD_BYTES, self._record_bytes * 2)
            raise

    def close(self) -> None:
        """Close the descriptor once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def open_kmsg(path: str = KMSG) -> DescriptorSource:
    """The kernel log from its oldest record on; also a SOCK_SEQPACKET socket or a named packet pipe.

    Raises DriverError: absent, denied (needs CAP_SYSLOG, and the device in a container), invalid.
    """
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISSOCK(mode):
            return DescriptorSource(_connected(path))
        if stat.S_ISFIFO(mode):
            # Write access keeps the pipe open while nobody writes.
            return DescriptorSource(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        if stat.S_ISCHR(mode):
            return DescriptorSource(_rewound(path))
    except OSError as error:
        kind = kind_of(error, _KINDS)
        raise DriverError(kind, path, "open kernel log", error.strerror or str(error)) from error
    detail = "neither a character device nor a socket or pipe, so it has no records"
    raise DriverError(ErrorKind.INVALID, path, "open kernel log", detail)


def _rewound(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _connected(path: str) -> int:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(path)
        return connection.detach()
    finally:
        connection.close()


def parse_record(raw: bytes) -> KernelRecord | None:
    """The record of `priority,sequence,microseconds,flags[,more];text`, continued by ` KEY=value` lines.

    None when the prefix cannot be read.
    """
    prefix = _PREFIX.match(raw)
    if prefix is None:
        return None
    priority, sequence, microseconds = prefix.groups()
    text, newline, dictionary = raw[prefix.end():].partition(b"\n")
    return KernelRecord(
        facility=int(priority) >> 3,
        sequence=int(sequence),
        at_seconds=int(microseconds) / 1e6,
        text=_decoded(text),
        fields=_fields(dictionary) if newline and dictionary else {},
    )


def _fields(dictionary: bytes) -> dict[str, str]:
    lines = [line[1:] for line in dictionary.split(b"\n") if line[:1] == b" "]
    pairs = (line.partition(b"=") for line in lines)
    return {_decoded(name): _decoded(value) for name, equals, value in pairs if equals}


def _decoded(text: bytes) -> str:
    if b"\\x" in text:
        text = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text)
    return text.decode("utf-8", "replace")
