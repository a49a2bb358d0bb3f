"""The file of pods, and the watch that tells when it may have changed.

Reading is bounded and never blocks on a pipe. The watch says "look again", never what changed: it follows
every symlink on the way, so that a swapped ConfigMap mount or a file that comes later is heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from nodeagent import pod_parse
from nodeagent.errors import DriverError, ErrorKind, kind_of
from nodeagent.traffic import PodList

MAX_LINKS = 40
"""Symlinks followed on one path, as in the kernel."""
SETTLE_SECONDS = 0.05
"""A burst of events is one change."""

_KINDS = {
    errno.ENOTDIR: ErrorKind.ABSENT,
}
_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF, _ATTRIBUTES = 0x100, 0x200, 0x400, 0x800, 0x4
_ONLY_DIRECTORY = 0x01000000
_MASK = (
    _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
    | _ATTRIBUTES | _ONLY_DIRECTORY
)  # fmt: skip


class PodFile:
    """A `v1.PodList` in JSON; `prefix` is the domain of our own annotations."""

    def __init__(self, path: str, prefix: str = "nodeagent.io") -> None:
        self._path = path
        self._prefix = prefix

    def read(self) -> PodList:
        """The pods in the file now. Raises DriverError: absent, denied, invalid."""
        return pod_parse.parse_pod_list(self._bytes(), "file", self._prefix)

    def exists(self) -> bool:
        """True when something stands at the path."""
        return Path(self._path).exists()

    def _bytes(self) -> bytes:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise DriverError(ErrorKind.INVALID, self._path, "read pods", "it is no regular file")
                return file.read(pod_parse.MAX_BYTES + 1)
        except OSError as error:
            kind = kind_of(error, _KINDS)
            raise DriverError(kind, self._path, "read pods", error.strerror or str(error)) from error


class FileWatch:
    """Calls `on_change` in the running loop after whatever may have changed the file behind `path`."""

    def __init__(self, path: str, on_change: Callable[[], None]) -> None:
        self._path = path
        self._on_change = on_change
        self._descriptor = -1
        self._watched: dict[str, int] = {}
        """Directory -> watch descriptor."""
        self._settling: asyncio.TimerHandle | None = None
        self._seen = _identity(path)

    def start(self) -> None:
        """Begin to watch; raises DriverError(busy) when the kernel has no inotify instance left."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._add_watch, self._remove_watch = libc.inotify_add_watch, libc.inotify_rm_watch
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            detail = os.strerror(ctypes.get_errno())
            raise DriverError(ErrorKind.BUSY, self._path, "inotify", detail)
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_readable)
        self._follow()

    def close(self) -> None:
        """End the watch; further calls do nothing."""
        if self._settling is not None:
            self._settling.cancel()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            os.read(self._descriptor, 1 << 16)
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._settled)

    def _settled(self) -> None:
        self._settling = None
        self._follow()
        seen, self._seen = self._seen, _identity(self._path)
        if seen != self._seen:
            self._on_change()

    def _follow(self) -> None:
        """Watch the directories on the way as it is now, and no others.

        A directory that goes while it is looked at is heard by the watch on the one above.
        """
        wanted = directories(self._path)
        for directory in set(self._watched) - wanted:
            self._remove_watch(self._descriptor, self._watched.pop(directory))
        for directory in wanted:
            # Again also where it is watched: a directory that was replaced is another one.
            watch = self._add_watch(self._descriptor, os.fsencode(directory), _MASK)
            if watch >= 0:
                self._watched[directory] = watch
            else:
                self._watched.pop(directory, None)


def _identity(path: str) -> tuple[int, ...] | None:
    """What differs when the file was changed or replaced; neighbours in its directory do not count."""
    try:
        seen = Path(path).stat()
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def directories(path: str) -> set[str]:
    """Directories in which a change can change what `path` leads to.

    Those of the file, of each symlink on the way, and of what does not exist yet: its nearest ancestor.
    """
    found: set[str] = set()
    left = [part for part in path.split("/") if part]
    at = "/"
    links = 0
    while left:
        part = left.pop(0)
        if part in (".", ".."):
            at = str(Path(at).parent) if part == ".." else at
            continue
        here = str(Path(at, part))
        try:
            target = str(Path(here).readlink())
        except OSError:
            if not left or not Path(here).is_dir():
                found.add(at)
                break
            at = here
            continue
        found.add(at)
        links += 1
        if links > MAX_LINKS:
            break
        left = [piece for piece in target.split("/") if piece] + left
        at = "/" if target.startswith("/") else at
    return found
