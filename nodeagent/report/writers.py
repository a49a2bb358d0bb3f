"""The three looks of a log entry: native journal fields, a JSON object a line, a short line for a person.

A writer must never raise and never block: it answers False when the entry is lost. Text from outside
(a kernel line, a pod's name) reaches the output without control characters and with a bounded length.
"""

from __future__ import annotations

import io
import json
import os
import re
import select
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TextIO

from nodeagent.drivers.journal import JournalSocket
from nodeagent.errors import DriverError
from nodeagent.report.events import Priority

IDENTIFIER = "nodeagent"
PREFIX = "NODEAGENT_"
PIECE_BYTES = select.PIPE_BUF
MAXIMUM_CHARACTERS = 2000
"""Longest message or field, in characters."""

_JOURNAL_OWN = {"message", "priority", "message_id", "documentation"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_WHITESPACE = re.compile(r"\s+")
_NO_NAME = re.compile(r"[^A-Z0-9_]")
_WORDS = {
    Priority.CRITICAL: "CRITICAL",
    Priority.ERROR: "ERROR",
    Priority.WARNING: "WARNING",
    Priority.NOTICE: "notice",
    Priority.INFO: "info",
    Priority.DEBUG: "debug",
}


class Writer(Protocol):
    """Where a finished entry goes."""

    def write(self, entry: Mapping[str, Any]) -> bool:
        """Write one entry; False when it is lost."""

    def close(self) -> None:
        """Give back what the writer itself opened."""


class StreamWriter:
    """Writes one line an entry to a text stream, and skips the entry where that would block."""

    def __init__(self, stream: TextIO, line_of: Callable[[Mapping[str, Any]], str]) -> None:
        self._stream = stream
        self._line_of = line_of
        self._torn = False

    def write(self, entry: Mapping[str, Any]) -> bool:
        """Write and flush one line; False when the stream is full, closed or broken."""
        try:
            line = self._line_of(entry) + "\n"
            descriptor = _descriptor(self._stream)
            if descriptor is not None:
                return self._write_pieces(descriptor, line.encode("utf-8", "replace"))
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):
            return False
        return True

    def _write_pieces(self, descriptor: int, line: bytes) -> bool:
        """Write no more at once than a pipe that says it is writable has room for. Raises OSError."""
        left = b"\n" + line if self._torn else line
        while left:
            if not _takes_more(descriptor):
                return False
            self._torn = True
            left = left[os.write(descriptor, left[:PIECE_BYTES]) :]
        self._torn = False
        return True

    def close(self) -> None:
        """Do nothing: the stream is the caller's."""


class JournalWriter:
    """Writes to the journal with fields, and to `fallback` what the journal did not take."""

    def __init__(self, journal: JournalSocket, fallback: Writer) -> None:
        self._journal = journal
        self._fallback = fallback

    def write(self, entry: Mapping[str, Any]) -> bool:
        """Send one entry; when journald is away, full or refuses it, the fallback gets it."""
        try:
            self._journal.send({name: _as_string(value) for name, value in named(entry).items()})
        except DriverError:
            return self._fallback.write(entry)
        return True

    def close(self) -> None:
        """Close the socket; a later entry goes to the fallback."""
        self._journal.close()


def named(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry under its journal names: ours prefixed, journald's own and the identifier not."""
    fields: dict[str, Any] = {"SYSLOG_IDENTIFIER": IDENTIFIER}
    for key, value in entry.items():
        if value is None:
            continue
        name = _NO_NAME.sub("_", key.upper())
        name = name if key in _JOURNAL_OWN else (PREFIX + name)[:64]
        fields[name] = _clean(value) if isinstance(value, str) else value
    fields["MESSAGE"] = _WHITESPACE.sub(" ", str(fields.get("MESSAGE", "")))
    fields["PRIORITY"] = int(fields.get("PRIORITY", Priority.INFO))
    return fields


def as_json(entry: Mapping[str, Any]) -> str:
    """Return the entry as one JSON object with the journal's names in lower case and an RFC 3339 time."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields = {name.lower(): value for name, value in named(entry).items()}
    return json.dumps({"timestamp": now, **fields}, default=str)


def as_text(entry: Mapping[str, Any]) -> str:
    """Return the entry as one short line in local time; a traceback follows on lines of its own."""
    fields = named(entry)
    word = _WORDS.get(Priority(fields["PRIORITY"]), "info")
    line = f"{datetime.now().astimezone():%H:%M:%S} {word:<8} {fields['MESSAGE']}"
    traceback = fields.get(f"{PREFIX}TRACEBACK")
    return f"{line}\n{traceback}" if traceback else line


def _as_string(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _clean(text: str) -> str:
    text = _CONTROL.sub(" ", text.encode("utf-8", "replace").decode("utf-8"))
    return text if len(text) <= MAXIMUM_CHARACTERS else text[: MAXIMUM_CHARACTERS - 3] + "..."


def _descriptor(stream: TextIO) -> int | None:
    """The descriptor under a stream, None for one in memory. Raises ValueError for a closed one."""
    try:
        return stream.fileno()
    except io.UnsupportedOperation:
        return None


def _takes_more(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(state & (select.POLLOUT | select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))
