"""The log on its three ways out, with real sockets, pipes and a terminal."""

import io
import json
import logging
import os
import pty
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from nodeagent.report import log
from nodeagent.report.events import CATALOGUE, Priority
from nodeagent.report.log import AgentLogger, emit

RAISED: dict[str, Any] = {
    "check": "disk.full",
    "target": "/var",
    "state": "critical",
    "previous": "ok",
    "reason": "3 % left",
    "cycle": 7,
}
_loggers: list[AgentLogger] = []


def configure(*arguments: Any, **options: Any) -> AgentLogger:
    """Configure the log as the daemon does; the logger is closed when the test ends."""
    _loggers.append(log.configure(*arguments, **options))
    return _loggers[-1]


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    while _loggers:
        _loggers.pop().close()


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket that takes what journald would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "journal"))
        server.settimeout(5)
        yield server


def _decode(message: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    while message:
        line, _, rest = message.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + size], rest[9 + size :]
        fields[name.decode()] = value.decode()
        message = rest
    return fields


def _lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_event_reaches_the_journal_with_its_fields(journald: socket.socket) -> None:
    """The native entry has sentence, priority, id, identifier and prefixed fields."""
    logger = configure("journal", stream=io.StringIO(), journal_path=journald.getsockname())

    emit(logger, "finding_raised", **RAISED)

    fields = _decode(journald.recv(65536))
    assert fields.pop("DOCUMENTATION").endswith("/nodeagent/runbooks/disk.full.md")
    assert fields == {
        "SYSLOG_IDENTIFIER": "nodeagent",
        "MESSAGE": "disk.full on /var is critical, was ok: 3 % left",
        "PRIORITY": "2",
        "MESSAGE_ID": CATALOGUE["finding_raised"].message_id,
        "NODEAGENT_EVENT": "finding_raised",
        "NODEAGENT_CHECK": "disk.full",
        "NODEAGENT_TARGET": "/var",
        "NODEAGENT_STATE": "critical",
        "NODEAGENT_PREVIOUS": "ok",
        "NODEAGENT_REASON": "3 % left",
        "NODEAGENT_CYCLE": "7",
    }


def test_json_has_the_same_names_in_lower_case(journald: socket.socket) -> None:
    """A field is found under one name, whatever the way out."""
    stream = io.StringIO()
    emit(configure("json", stream=stream), "finding_raised", **RAISED)
    emit(configure("journal", journal_path=journald.getsockname()), "finding_raised", **RAISED)

    (line,) = _lines(stream)
    assert set(line) - {"timestamp"} == {name.lower() for name in _decode(journald.recv(65536))}


def test_missing_journal_falls_back_to_stderr(tmp_path: Path) -> None:
    """Without journald the line is on stderr, and nothing is raised."""
    stream = io.StringIO()
    logger = configure("journal", stream=stream, journal_path=str(tmp_path / "absent"))

    emit(logger, "state_unwritable", reason="disk full", path="/x")

    assert [line["message"] for line in _lines(stream)] == ["State cannot be saved: disk full"]


def test_journal_is_used_again_after_its_restart(tmp_path: Path) -> None:
    """A journald that comes back under the same path gets the next entry."""
    path = str(tmp_path / "journal")
    logger = configure("journal", stream=io.StringIO(), journal_path=path)
    emit(logger, "started", version="1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.settimeout(5)
        emit(logger, "stopping", reason="signal")

        assert _decode(server.recv(65536))["MESSAGE"] == "Stopping: signal"


def test_stderr_of_journald_means_the_journal(journald: socket.socket) -> None:
    """JOURNAL_STREAM that names stderr's device and inode selects the native protocol."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end), os.fdopen(write_end, "w") as stream:
        status = os.fstat(stream.fileno())
        environment = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        logger = configure(stream=stream, environment=environment, journal_path=journald.getsockname())
        emit(logger, "started", version="1", node="n")

        assert _decode(journald.recv(65536))["MESSAGE"] == "nodeagent 1 started on n."


def test_foreign_journal_stream_means_json() -> None:
    """An inherited JOURNAL_STREAM of another descriptor does not send a redirected log to the journal."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as reader, os.fdopen(write_end, "w") as stream:
        emit(
            configure(stream=stream, environment={"JOURNAL_STREAM": "1:2"}), "started", version="1", node="n"
        )

        assert json.loads(reader.readline())["nodeagent_event"] == "started"


def test_terminal_gets_a_short_line() -> None:
    """On a terminal the line is time, word and sentence, no JSON."""
    controller, terminal = pty.openpty()
    with os.fdopen(controller, "rb", buffering=0) as reader, os.fdopen(terminal, "w") as stream:
        emit(configure(stream=stream, environment={}), "finding_raised", **RAISED)
        line = reader.read(4096).decode().rstrip()

    assert line[8:] == " CRITICAL disk.full on /var is critical, was ok: 3 % left"


def _full_pipe() -> tuple[int, TextIO]:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write_end, b"x" * 4096)
    os.set_blocking(write_end, True)
    return read_end, os.fdopen(write_end, "w")


def test_full_stream_neither_blocks_nor_hides_the_loss() -> None:
    """A reader that stopped costs lines, which the next line that passes counts."""
    read_end, stream = _full_pipe()
    with os.fdopen(read_end, "rb") as reader, stream:
        logger = configure("json", stream=stream)
        emit(logger, "started", version="1")
        emit(logger, "ready", state="ok")
        while reader.read1(65536)[-1:] == b"x" and _has_data(reader.fileno()):
            pass
        emit(logger, "stopping", reason="signal")

        assert json.loads(reader.readline())["nodeagent_lost_lines"] == 2


def test_a_long_line_does_not_block_on_a_pipe_with_little_room() -> None:
    """A pipe with one free page takes the beginning; the next line stands on a line of its own."""
    read_end, stream = _full_pipe()
    with os.fdopen(read_end, "rb", buffering=0) as reader, stream:
        logger = configure("json", stream=stream)
        reader.read(4096)  # room for one page, less than the line takes
        logger.error("\N{BULLET}" * 1900, traceback="\N{BULLET}" * 1900)
        while _has_data(reader.fileno()):
            last = reader.read(65536)
        emit(logger, "stopping", reason="signal")
        torn, _, whole = reader.read(65536).partition(b"\n")

    assert last.endswith(b"\\u2022"[: len(last)][-1:])
    assert (torn, json.loads(whole)["nodeagent_lost_lines"]) == (b"", 1)


def _has_data(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_closed_stream_is_survived() -> None:
    """A closed stderr loses the line and raises nothing; the logger works on."""
    stream = io.StringIO()
    logger = configure("json", stream=stream)
    stream.close()

    emit(logger, "started", version="1")

    assert logger._logger._lost == 1


HOSTILE_NAMES = ["newline", "escape", "braces", "surrogate", "long", "separators"]
HOSTILE = ["a\nPRIORITY=0", "\x1b[2J\x07", "{check}{0}", "\ud800", "x" * 100_000, "\u2028\x00"]


@pytest.mark.parametrize(
    "text", HOSTILE, ids=["newline", "escape", "braces", "surrogate", "long", "separators"]
)
def test_hostile_text_stays_inside_its_field(journald: socket.socket, text: str) -> None:
    """Text from a kernel line or a pod cannot forge a field, a line or a terminal command, nor be endless."""
    stream = io.StringIO()
    emit(configure("text", stream=stream), "config_rejected", reason=text)
    emit(configure("journal", journal_path=journald.getsockname()), "config_rejected", reason=text)

    fields = _decode(journald.recv(65536))
    assert set(fields) == {
        "SYSLOG_IDENTIFIER",
        "MESSAGE",
        "PRIORITY",
        "MESSAGE_ID",
        "NODEAGENT_EVENT",
        "NODEAGENT_REASON",
    }
    assert stream.getvalue()[:-1].isprintable()
    assert len(fields["MESSAGE"]) <= 2000
    assert fields["PRIORITY"] == "3"


@pytest.mark.parametrize(
    "name", ["event", "self", "name", "fields", "priority", "message", "message_id", "method_name"]
)
def test_any_field_name_is_taken(name: str) -> None:
    """A field named like one of ours neither raises nor replaces what the catalogue says."""
    stream = io.StringIO()
    emit(configure("json", stream=stream), "stopping", **{"reason": "signal", name: "forged"})

    (line,) = _lines(stream)
    assert (line["message"], line["priority"]) == ("Stopping: signal", Priority.INFO)
    assert (line["nodeagent_event"], line["message_id"]) == ("stopping", CATALOGUE["stopping"].message_id)


@pytest.mark.parametrize("check", ["../../etc/passwd", "no.such.check", "", 7])
def test_only_a_real_page_is_documentation(check: object) -> None:
    """A check without a page, or a name that would leave the folder, gives no DOCUMENTATION."""
    stream = io.StringIO()
    emit(configure("json", stream=stream), "finding_raised", check=check)

    assert "documentation" not in _lines(stream)[0]


def test_missing_field_reads_as_a_dash() -> None:
    """A sentence stays a sentence when a field was left out."""
    stream = io.StringIO()
    emit(configure("json", stream=stream), "verdict_changed", state="ok")

    assert [line["message"] for line in _lines(stream)] == ["Node is ok, was -: -"]


def test_unknown_event_is_logged_as_it_is() -> None:
    """A name that is not in the catalogue is a line at warning, not an error."""
    stream = io.StringIO()
    emit(configure("json", stream=stream), "no_such_event", value=3)

    (line,) = _lines(stream)
    assert (line["message"], line["priority"], line["nodeagent_value"]) == ("no_such_event", 4, 3)


def test_level_keeps_debug_lines_out() -> None:
    """One line a cycle at debug costs nothing in the journal by default."""
    stream = io.StringIO()
    logger = configure("json", stream=stream)
    logger.debug("cycle done", cycle=1)
    logger.info("kept")

    assert [line["message"] for line in _lines(stream)] == ["kept"]


def _repeat(logger: AgentLogger, times: int) -> None:
    for cycle in range(times):
        emit(logger, "xid_seen", xid=31, target="0000:4e:00.0", reason="MMU fault", cycle=cycle)


def test_storm_is_folded_and_told_by_flush() -> None:
    """1,000 equal events are one line, and one more with their number when the window is over."""
    stream, now = io.StringIO(), [0.0]
    logger = configure("json", stream=stream, monotonic=lambda: now[0])
    _repeat(logger, 1000)
    now[0] = 31.0
    logger.flush()

    assert [line.get("nodeagent_repeats") for line in _lines(stream)] == [None, 999]


def test_stop_leaves_no_count_behind() -> None:
    """The counts come before the line that ends the run."""
    stream = io.StringIO()
    logger = configure("json", stream=stream)
    _repeat(logger, 3)
    emit(logger, "stopping", reason="signal")

    assert [line.get("nodeagent_repeats") for line in _lines(stream)] == [None, 2, None]


def test_library_log_takes_the_same_way() -> None:
    """What asyncio logs is an entry with its traceback as a field; a bad format string is survived."""
    stream = io.StringIO()
    configure("json", stream=stream)
    library = logging.getLogger("asyncio")
    try:
        raise ValueError("boom")
    except ValueError:
        library.exception("task failed")
    library.warning("%d", "no number")

    first, second = _lines(stream)
    assert first["message"] == "task failed"
    assert first["priority"] == Priority.ERROR
    assert first["nodeagent_traceback"].endswith("ValueError: boom")
    assert "could not be formatted" in second["message"]
