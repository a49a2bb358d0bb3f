"""The way from an event to one line of the journal, of JSON on stderr, or of text on a terminal.

Logging must never raise, block or flood: a broken journal falls back to stderr, a stream that takes no
more is skipped and the loss counted, and a repeated event is folded to a count. What is worth an event,
and in which words, is for `events.py` and for decide.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from nodeagent.drivers import journal
from nodeagent.errors import DriverError
from nodeagent.report.events import CATALOGUE, Priority
from nodeagent.report.fold import Entry, Fold
from nodeagent.report.writers import JournalWriter, StreamWriter, Writer, as_json, as_text

MODE_VARIABLE = "NODEAGENT_LOG"
"""Environment variable: auto, journal, json or text. A pod with journald's socket mounted sets journal."""
MODES = ("auto", "journal", "json", "text")


class Sink:
    """What structlog hands finished entries to: level, fold, writer."""

    def __init__(self, writer: Writer, level: Priority, monotonic: Callable[[], float]) -> None:
        self._writer = writer
        self._level = level
        self._monotonic = monotonic
        self._fold = Fold()
        self._lost = 0

    def write(self, entry: Entry) -> None:
        """Write the entry and every count that is due; the last event of a run leaves no count behind."""
        if entry["priority"] > self._level:
            self.flush()
            return
        now_seconds = self._monotonic()
        if entry.get("event") == "stopping":
            self._write_all(self._fold.due(now_seconds, everything=True))
        self._write_all(self._fold.admit(entry, now_seconds))

    def flush(self) -> None:
        """Write the counts that are due."""
        self._write_all(self._fold.due(self._monotonic()))

    def close(self) -> None:
        """Write every count and close what the writer opened."""
        self._write_all(self._fold.due(self._monotonic(), everything=True))
        self._writer.close()

    def _write_all(self, entries: list[Entry]) -> None:
        for entry in entries:
            told = {**entry, "lost_lines": self._lost} if self._lost else entry
            self._lost = 0 if self._writer.write(told) else self._lost + 1


class AgentLogger(structlog.BoundLoggerBase):
    """The logger that `configure` returns; beside catalogued events it takes plain sentences."""

    _logger: Sink

    def emit(self, event: str, /, **fields: Any) -> None:
        """Log one event of the catalogue; a name that is not in it is logged as it is, at warning."""
        self._proxy_to_logger("write", event, name=event, fields=fields)

    def debug(self, sentence: str, /, **fields: Any) -> None:
        """Log a sentence that only a developer asks for."""
        self._proxy_to_logger("write", sentence, priority=Priority.DEBUG, fields=fields)

    def info(self, sentence: str, /, **fields: Any) -> None:
        """Log a sentence outside the catalogue."""
        self._proxy_to_logger("write", sentence, priority=Priority.INFO, fields=fields)

    def warning(self, sentence: str, /, **fields: Any) -> None:
        """Log something odd outside the catalogue."""
        self._proxy_to_logger("write", sentence, priority=Priority.WARNING, fields=fields)

    def error(self, sentence: str, /, **fields: Any) -> None:
        """Log a failure outside the catalogue."""
        self._proxy_to_logger("write", sentence, priority=Priority.ERROR, fields=fields)

    def flush(self) -> None:
        """Write the counts of folded repeats that are due; meant to be called once a cycle."""
        self._logger.flush()

    def close(self) -> None:
        """End logging: write the counts and close the journal's socket."""
        self._logger.close()


def configure(
    mode: str = "",
    *,
    level: Priority = Priority.INFO,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
    journal_path: str = journal.SOCKET_PATH,
    monotonic: Callable[[], float] = time.monotonic,
) -> AgentLogger:
    """Return the agent's logger, and send what libraries log at warning or worse through it too.

    `mode` is auto, journal, json or text; empty: the variable NODEAGENT_LOG, then auto. Auto is the
    journal when stderr is journald's own stream, text on a terminal, JSON otherwise. Entries less
    urgent than `level` are not written. Never raises; an unknown mode is auto.
    """
    stream = stream if stream is not None else sys.stderr
    chosen = _choose(mode or environment.get(MODE_VARIABLE, ""), stream, environment)
    sink = Sink(_writer(chosen, stream, journal_path), level, monotonic)
    logger = AgentLogger(sink, [describe], {})
    logging.basicConfig(handlers=[_Forward(logger)], level=logging.WARNING, force=True)
    return logger


def emit(logger: AgentLogger, event_name: str, /, **fields: Any) -> None:
    """Log one event of the catalogue; never raises."""
    logger.emit(event_name, **fields)


def describe(_logger: WrappedLogger, _method: str, event: EventDict) -> tuple[tuple[Entry], dict[str, Any]]:
    """Turn an event into an entry: sentence, priority and ids from the catalogue, fields as they came."""
    fields = {**event.get("fields", {})}
    fields |= {
        key: value for key, value in event.items() if key not in {"event", "name", "priority", "fields"}
    }
    name = event.get("name", "")
    kind = CATALOGUE.get(name)
    entry: Entry = {"message": str(event["event"]), "priority": event.get("priority", Priority.WARNING)}
    if kind is not None:
        entry["message"] = kind.sentence.format_map(_Shown(fields))
        entry["priority"] = kind.priority_of(fields)
        entry["message_id"] = kind.message_id
    if name:
        entry["event"] = name
    page = _runbook(str(fields.get("check") or (kind.runbook if kind is not None else "")))
    if page:
        entry["documentation"] = page
    return ({**entry, **{key: value for key, value in fields.items() if key not in entry}},), {}


class _Shown(dict[str, Any]):
    """Fields for a sentence: a missing one reads as a dash, so that a sentence is always complete."""

    def __missing__(self, _key: str) -> str:
        return "-"


class _Forward(logging.Handler):
    """Sends records of the standard library's logging (asyncio, h11) the same way as our own."""

    def __init__(self, logger: AgentLogger) -> None:
        super().__init__()
        self._agent_logger = logger
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record; a traceback travels as a field."""
        try:
            sentence = record.getMessage()
            traceback = self._formatter.formatException(record.exc_info) if record.exc_info else None
        except Exception as error:  # a library's bad format string must not end the agent
            sentence, traceback = f"{record.msg!r} could not be formatted: {error}", None
        worse = record.levelno >= logging.ERROR
        log = self._agent_logger.error if worse else self._agent_logger.warning
        log(sentence, logger=record.name, traceback=traceback)


def _choose(mode: str, stream: TextIO, environment: Mapping[str, str]) -> str:
    if mode in MODES and mode != "auto":
        return mode
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return "json"
    if journal.stream_is_journal(descriptor, environment):
        return "journal"
    return "text" if os.isatty(descriptor) else "json"


def _writer(mode: str, stream: TextIO, journal_path: str) -> Writer:
    if mode == "text":
        return StreamWriter(stream, as_text)
    to_stream = StreamWriter(stream, as_json)
    if mode != "journal":
        return to_stream
    try:
        return JournalWriter(journal.JournalSocket(journal_path), to_stream)
    except DriverError:
        return to_stream


@lru_cache(maxsize=256)
def _runbook(check: str) -> str:
    """Return the address of a check's page on this host, empty when it has none."""
    if not check.replace(".", "").replace("_", "").isalnum():
        return ""
    page = resources.files("nodeagent").joinpath("runbooks", f"{check}.md")
    return f"file://{page}" if page.is_file() else ""
