"""A kernel log to write to, where a real /dev/kmsg would be: a FIFO in packet mode.

Each write is one record, as a read of the device gives one. Like the kernel's ring it outlives its
reader: `replay` hands every record out again. Records carry the facility of the kernel, which no
process can write to the real device; that is why tests need another source.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

PIPE_BYTES = 1 << 20
KERNEL, USER = 0, 1
_WARNING = 4


class KernelLog:
    """The FIFO at `path`; open for as long as this object lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[bytes] = []
        os.mkfifo(path, 0o600)
        # Read-write, so that neither opening nor a reader's end ever blocks or breaks the writer.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        # Named FIFOs refuse O_DIRECT at open and take it afterwards.
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def write(self, text: str, *, facility: int = KERNEL, skipped: int = 0) -> None:
        """Log one line now; `skipped` sequence numbers before it look like records the ring dropped."""
        sequence = len(self.records) + skipped
        self.records += [b""] * skipped
        stamp_microseconds = int(time.monotonic() * 1e6)
        record = f"{facility * 8 + _WARNING},{sequence},{stamp_microseconds},-;{text}\n".encode()
        self.records.append(record)
        os.write(self._descriptor, record)

    def xid(self, pci_address: str, number: int, rest: str = "") -> None:
        """Log an Xid as the driver writes it, at address `0000:4e:00.0`."""
        device = pci_address.rpartition(".")[0]
        self.write(f"NVRM: Xid (PCI:{device}): {number}, {rest or 'pid=4242, name=python3'}")

    def replay(self) -> None:
        """Let the next reader find every record, as the kernel's ring does."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._descriptor, 65536):
                pass
        for record in filter(None, self.records):
            os.write(self._descriptor, record)

    def close(self) -> None:
        """Close the FIFO; a reader finds the end of it."""
        os.close(self._descriptor)
