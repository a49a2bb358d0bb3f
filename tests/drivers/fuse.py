"""A mounted file system that never answers: /dev/fuse opened, mounted, and left alone.

Only tests use it. The mount is detached and its connection aborted at the end, which frees whoever
waits in it, also when the test failed; should the test process die, its descriptor dies with it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from pathlib import Path
from types import TracebackType

MNT_FORCE, MNT_DETACH = 1, 2
_FUSE_INIT = 26
_IN_HEADER = struct.Struct("<IIQQIIII")
_OUT_HEADER = struct.Struct("<IiQ")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
_REQUEST_BYTES = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def can_mount() -> bool:
    """True for root with a usable /dev/fuse."""
    return os.geteuid() == 0 and Path("/dev/fuse").exists()


class DeadMount:
    """Context manager: a FUSE file system at a directory.

    Without `takes_requests` nobody ever reads a request: who waits can still be killed. With it, the
    requests are taken and never answered: who waits sleeps uninterruptibly, SIGKILL or not.
    """

    def __init__(self, directory: Path, *, takes_requests: bool = False) -> None:
        self.directory = directory
        self._takes_requests = takes_requests
        self._descriptor = -1
        self._thread: threading.Thread | None = None

    def __enter__(self) -> DeadMount:
        """Mount; the directory is made."""
        self.directory.mkdir()
        self._descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._descriptor},rootmode=40000,user_id=0,group_id=0"
        target = os.fsencode(self.directory)
        if _libc.mount(b"nobody", target, b"fuse", 0, options.encode()) != 0:
            number = ctypes.get_errno()
            os.close(self._descriptor)
            raise OSError(number, os.strerror(number), str(self.directory))
        if self._takes_requests:
            self._thread = threading.Thread(target=self._take, daemon=True)
            self._thread.start()
        return self

    def _take(self) -> None:
        """Answer the handshake, take everything else for ever."""
        try:
            while request := os.read(self._descriptor, _REQUEST_BYTES):
                _, opcode, unique, *_ = _IN_HEADER.unpack_from(request)
                if opcode == _FUSE_INIT:
                    body = _INIT_OUT.pack(7, 31, 0, 0, 16, 12, 4096, 1, 1, 0, 0)
                    os.write(self._descriptor, _OUT_HEADER.pack(16 + len(body), 0, unique) + body)
        except OSError:
            return

    def end(self) -> None:
        """Abort the connection and detach; who waits gets an error. Once is enough, twice is harmless."""
        if self._descriptor < 0:
            return
        _libc.umount2(os.fsencode(self.directory), MNT_FORCE | MNT_DETACH)
        if self._thread is not None:
            self._thread.join(10)
        os.close(self._descriptor)
        self._descriptor = -1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unmount, whatever happened."""
        self.end()
