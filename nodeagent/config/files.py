"""The fragments of the configuration on disk: which ones there are, and their raw TOML tables.

It judges no key. A file that is odd in any way (a FIFO, a directory, huge, not UTF-8) becomes one
sentence; reading never blocks.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from nodeagent.config.values import Wrong

DEFAULT_PATH = "/etc/nodeagent/nodeagent.toml"
FILE_BYTES = 1024 * 1024
"""Largest configuration file that is read."""


def fragments(path: str | None, problems: list[str]) -> list[Path]:
    """Return the main file, if it is there, and `conf.d/*.toml` beside it in order of name.

    `path` None is the default path, which may be missing; any other must exist. Problems are added.
    """
    main = Path(DEFAULT_PATH if path is None else path)
    found = []
    try:
        main.stat()
        found.append(main)
    except (OSError, ValueError) as error:
        if path is not None or not isinstance(error, FileNotFoundError | NotADirectoryError):
            problems.append(f"{printable(main)}: cannot be read: {_reason(error)}")
    folder = main.parent / "conf.d"
    try:
        inside = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        inside = []
    except (OSError, ValueError) as error:
        problems.append(f"{printable(folder)}: cannot be listed: {_reason(error)}")
        inside = []
    return found + [file for file in inside if file.name.endswith(".toml") and not file.name.startswith(".")]


def parse(file: Path, problems: list[str]) -> dict[str, Any] | None:
    """Return the file's tables, or None after adding one problem that names the file."""
    import tomllib  # noqa: PLC0415  a command on a node without any file need not pay for it

    try:
        content = _read_bytes(file).decode("utf-8")
        if content.startswith("\N{ZERO WIDTH NO-BREAK SPACE}"):
            raise Wrong("begins with a byte order mark; save it as plain UTF-8")
        return tomllib.loads(content)
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text (byte {error.start + 1}); save it as UTF-8"
    except tomllib.TOMLDecodeError as error:
        problem = f"is not valid TOML: {_one_line(str(error))}"
    except Wrong as error:
        problem = str(error)
    except ValueError as error:
        problem = f"holds a value that cannot be read: {_one_line(str(error))}"
    except RecursionError:
        problem = "nests tables or lists too deeply"
    except OSError as error:
        problem = f"cannot be read: {_reason(error)}"
    problems.append(f"{printable(file)}: {problem}")
    return None


def _read_bytes(file: Path) -> bytes:
    """Read a regular file of at most 1 MiB; never wait for a FIFO. Raises Wrong, OSError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = "is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
            raise Wrong(f"{kind}; name a TOML file")
        content = b""
        while len(content) <= FILE_BYTES and (piece := os.read(descriptor, FILE_BYTES + 1)):
            content += piece
    finally:
        os.close(descriptor)
    if len(content) > FILE_BYTES:
        raise Wrong("is larger than 1 MiB; a configuration file is a few KiB")
    return content


def _reason(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "permission denied; run as root or give this user read permission"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return _one_line((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:200]


def printable(path: Path) -> str:
    """Return the path so that it cannot drive a terminal or break a line."""
    return "".join(c if c.isprintable() else "?" for c in str(path))
