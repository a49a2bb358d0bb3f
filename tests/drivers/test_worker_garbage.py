"""Whatever a child writes is either a message or one clear error; the daemon goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent import wire
from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.worker import Worker
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.worker_readings import WorkerReadings
from tests.drivers.rig import alive, run, worker

DONE = b'{"type":"done","id":1}\n'
VALUE = b'{"type":"value","signal":"%s","target":"a","value":%s}\n'
MARK = b'{"type":"mark","call":"nvmlInit"}\n'

# what the child says, and the kind of error that comes of it
GARBAGE: list[tuple[str, bytes, ErrorKind]] = [
    ("no JSON", b"Segmentation fault\n", ErrorKind.INVALID),
    ("empty line", b"\n", ErrorKind.INVALID),
    ("no UTF-8", b'{"type":"mark","call":"\xff\xfe"}\n', ErrorKind.INVALID),
    ("no object", b"[1, 2]\n", ErrorKind.INVALID),
    ("unknown type", b'{"type":"shutdown"}\n', ErrorKind.INVALID),
    ("no type", b'{"call":"nvmlInit"}\n', ErrorKind.INVALID),
    ("wrong field", b'{"type":"mark","call":7}\n', ErrorKind.INVALID),
    ("answer not asked for", b'{"type":"done","id":7}\n', ErrorKind.INVALID),
    ("oversized line", MARK + b'"' + b"x" * (wire.LINE_LIMIT_BYTES + 1) + b'"\n', ErrorKind.INVALID),
    ("endless line", b"x" * (2 * wire.LINE_LIMIT_BYTES), ErrorKind.INVALID),
    ("foreign signal", VALUE % (b"clock.sync", b"{}"), ErrorKind.INVALID),
    ("odd value", VALUE % (b"gpu.ecc", b"[]"), ErrorKind.INVALID),
    ("deep nesting", b"[" * 100_000 + b"\n", ErrorKind.INVALID),
    ("torn message", MARK + b'{"type":"done","i', ErrorKind.LOST),
    ("nothing", b"", ErrorKind.LOST),
]


def saying(path: Path, *, then_wait: bool) -> Worker:
    """A worker whose child answers with the file's bytes, and then waits or ends."""
    end = "exec cat >/dev/null" if then_wait else "exit 0"
    it = worker(("/bin/sh", "-c", f"read request; cat '{path}'; {end}"), stuck_seconds=1.0)
    clock = SystemClock()
    readings = WorkerReadings(Board(clock), Inbox(), clock, ("gpu.ecc",), 15.0)

    def take(message: wire.Message) -> None:
        if isinstance(message, wire.Value | wire.Missing):
            readings.take(message)

    it.on_message = take
    return it


@pytest.mark.parametrize(("words", "kind"), [row[1:] for row in GARBAGE], ids=[row[0] for row in GARBAGE])
def test_garbage_is_one_error_and_a_new_child(tmp_path: Path, words: bytes, kind: ErrorKind) -> None:
    """The read fails with that kind, the process is gone and counted as replaced."""
    (tmp_path / "words").write_bytes(words)

    async def main(it: Worker) -> None:
        with pytest.raises(DriverError) as failed:
            await it.read()
        assert failed.value.kind is kind
        assert (it.status.pid, it.status.restarts) == (None, 1)
        assert it.status.error_detail

    run(main, saying(tmp_path / "words", then_wait=kind is ErrorKind.INVALID))


def test_garbage_after_a_good_answer_keeps_the_answer(tmp_path: Path) -> None:
    """What was complete before the garbage counts; the child is replaced for the next read."""
    (tmp_path / "words").write_bytes(DONE + b"garbage\n")

    async def main(it: Worker) -> None:
        assert (await it.read()).error_kind is None
        with pytest.raises(DriverError):
            for _ in range(3):  # the old one may not have left yet
                await it.read()

    run(main, saying(tmp_path / "words", then_wait=True))


PIECES = [DONE, MARK, MARK[:9], VALUE % (b"gpu.ecc", b"1e999"), b"{", b"\n", b"\xff"]


@given(words=st.lists(st.sampled_from(PIECES) | st.binary(), max_size=6))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_crash_the_reader(tmp_path: Path, words: list[bytes]) -> None:
    """A read of any bytes returns or raises a DriverError, and the child can be ended."""
    (tmp_path / "words").write_bytes(b"".join(words))
    pids: list[int] = []

    async def main(it: Worker) -> None:
        try:
            await it.read()
        except DriverError as error:
            assert error.kind in (ErrorKind.INVALID, ErrorKind.LOST)
        if it.status.pid is not None:
            pids.append(it.status.pid)

    run(main, saying(tmp_path / "words", then_wait=False))
    assert not any(map(alive, pids))
