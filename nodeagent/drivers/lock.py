"""One agent a node: an flock beside the socket, which the kernel drops with the process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from pathlib import Path

from nodeagent.errors import DriverError, ErrorKind

_KINDS = {
    errno.EACCES: ErrorKind.DENIED,
    errno.EPERM: ErrorKind.DENIED,
    errno.EROFS: ErrorKind.DENIED,
}
_HOLDER_SECONDS = 0.5
"""A holder has written its pid by then."""


class InstanceLock:
    """Held from construction until close or the end of the process."""

    def __init__(self, path: str) -> None:
        """Take the lock. Raises DriverError: busy names the pid of the holder, denied and invalid why."""
        self._path = Path(path)
        self._descriptor = self._opened()
        while not self._is_current():
            os.close(self._descriptor)
            self._descriptor = self._opened()
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its pid
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)

    def _opened(self) -> int:
        try:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise self._failure(error) from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileExistsError(errno.EEXIST, "the path is no regular file; move it away")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            detail = f"another nodeagent runs on this node, pid {holder or 'unknown'}"
            raise DriverError(ErrorKind.BUSY, str(self._path), "lock", detail) from error
        except OSError as error:
            os.close(descriptor)
            raise self._failure(error) from error
        return descriptor

    def _failure(self, error: OSError) -> DriverError:
        kind = _KINDS.get(error.errno or 0, ErrorKind.INVALID)
        detail = f"the lock file cannot be opened: {(error.strerror or str(error)).lower()}"
        return DriverError(kind, str(self._path), "lock", detail)

    def _is_current(self) -> bool:
        """False when the file was removed by an ending agent between our open and our lock."""
        with contextlib.suppress(OSError):
            return self._path.stat().st_ino == os.fstat(self._descriptor).st_ino
        return False

    def close(self) -> None:
        """Remove the file, if it is still the one that is locked, and drop the lock."""
        if self._is_current():
            with contextlib.suppress(OSError):
                self._path.unlink()
        os.close(self._descriptor)


def _holder(descriptor: int) -> str:
    """Pid that the holder has written; empty when it has not within its time."""
    until_seconds = time.monotonic() + _HOLDER_SECONDS
    while True:
        pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        if pid or time.monotonic() > until_seconds:
            return pid
        time.sleep(0.01)
