"""The state file: what the agent remembers, written atomically, set aside when it cannot be used.

A torn, foreign or newer file is never deleted and never believed: it is renamed beside itself and
the agent starts with an empty memory. A file that cannot be written is a finding, not a crash.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

import msgspec

from nodeagent.errors import DriverError, ErrorKind, kind_of
from nodeagent.memory import MEMORY_SCHEMA, Memory

MAX_BYTES = 16 * 1024 * 1024
SET_ASIDE_KEPT = 3
"""Set-aside files kept, so that a crash loop cannot fill the disk."""

_KINDS = {
    errno.EROFS: ErrorKind.DENIED,
    errno.ENOSPC: ErrorKind.BUSY,
    errno.EDQUOT: ErrorKind.BUSY,
}


class Store:
    """One state file."""

    def __init__(self, path: str, *, keep_unread: bool = False, look_only: bool = False) -> None:
        """`keep_unread`: a file is there that could not be read; the first save sets it aside.
        `look_only`: nothing is renamed, an unusable file stays where it is."""
        self._path = Path(path)
        self._keep_unread = keep_unread
        self._look_only = look_only

    def load(self, node_name: str) -> tuple[Memory, str]:
        """The saved memory, and the path under which an unusable file is kept ("" = there was none).

        Raises DriverError when the file exists but cannot be read or set aside, or is no regular file.
        """
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                _refuse_special(os.fstat(descriptor).st_mode)
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return Memory(node_name=node_name), ""
        except OSError as error:
            raise _driver_error(self._path, "read", error) from error
        try:
            return _decode(data, node_name), ""
        except ValueError as error:
            kept = str(self._path) if self._look_only else self._set_aside()
            return Memory(node_name=node_name), f"{kept} ({error})"

    def save(self, memory: Memory) -> None:
        """Replace the file in one step: write beside it, fsync, rename, fsync the directory.

        Raises DriverError: denied (EROFS, EACCES), busy (ENOSPC), absent (no directory), invalid where
        something else than a file is in its place, which is left alone.
        """
        beside = self._path.with_name(self._path.name + ".new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room()
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(memory))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            _sync_directory(self._path.parent)
        except OSError as error:
            raise _driver_error(self._path, "write", error) from error

    def _make_room(self) -> None:
        """Keep what must not be overwritten. Raises OSError, DriverError."""
        with contextlib.suppress(FileNotFoundError):
            mode = self._path.lstat().st_mode
            if not stat.S_ISLNK(mode):
                _refuse_special(mode)
            if self._keep_unread:
                self._set_aside()
        self._keep_unread = False

    def _set_aside(self) -> str:
        """Rename the unusable file to `<name>.bad-<n>`; the oldest of the kept ones is overwritten."""
        candidates = [self._path.with_name(f"{self._path.name}.bad-{n}") for n in range(SET_ASIDE_KEPT)]
        free = [path for path in candidates if not path.exists()]
        target = free[0] if free else min(candidates, key=lambda path: path.stat().st_mtime)
        try:
            self._path.replace(target)
        except OSError as error:
            raise _driver_error(self._path, "set aside", error) from error
        return str(target)


def _decode(data: bytes, node_name: str) -> Memory:
    """Memory of this node; ValueError with one reason when the bytes are anything else."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.schema > MEMORY_SCHEMA:
            raise ValueError(f"schema {head.schema} is newer than {MEMORY_SCHEMA}")
        memory = msgspec.json.decode(data, type=Memory)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a state file: {error}") from error
    if memory.node_name and memory.node_name != node_name:
        raise ValueError(f"it belongs to node {memory.node_name!r}, this is {node_name!r}")
    return memory


class _Head(msgspec.Struct):
    schema: int


def _refuse_special(mode: int) -> None:
    """Raise OSError for a directory, a device or a pipe: it is none of ours to read, rename or replace."""
    if not stat.S_ISREG(mode):
        reason = "no regular file; move it away or name another in node.state_file"
        raise OSError(errno.EINVAL, reason)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _driver_error(path: Path, op: str, error: OSError) -> DriverError:
    kind = kind_of(error, _KINDS)
    return DriverError(kind, str(path), op, f"{error.strerror or error}")
