"""One agent a node: an flock beside the socket, which the kernel drops with the process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from nodeagent.errors import DriverError, ErrorKind


class InstanceLock:
    """Held from construction until close or the end of the process."""

    def __init__(self, path: str) -> None:
        """Take the lock; DriverError(busy) names the pid of the holder, denied and absent the path."""
        self._path = Path(path)
        self._descriptor = self._opened()
        while not self._is_current():
            os.close(self._descriptor)
            self._descriptor = self._opened()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)

    def _opened(self) -> int:
        try:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            kind = ErrorKind.DENIED if isinstance(error, PermissionError) else ErrorKind.INVALID
            raise DriverError(kind, str(self._path), "lock", error.strerror or "") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            detail = f"another nodeagent runs on this node, pid {holder or 'unknown'}"
            raise DriverError(ErrorKind.BUSY, str(self._path), "lock", detail) from error
        return descriptor

    def _is_current(self) -> bool:
        """False when the file was removed by an ending agent between our open and our lock."""
        with contextlib.suppress(OSError):
            return self._path.stat().st_ino == os.fstat(self._descriptor).st_ino
        return False

    def close(self) -> None:
        """Remove the file and drop the lock."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
