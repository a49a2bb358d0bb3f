"""One child process of a worker: its pipes, and what is known of the call it is in.

It decides nothing; `Worker` does. No method blocks.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence

from nodeagent import wire
from nodeagent.child import PARENT_PID_VARIABLE
from nodeagent.errors import DriverError, ErrorKind

_READ_BYTES = 65536
_NOT_FOR_CHILDREN = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID")
_START = "start of the worker"


class Child:
    """A running child and its bookkeeping, in seconds of CLOCK_MONOTONIC."""

    def __init__(self, argv: Sequence[str], now_seconds: float) -> None:
        """Start it in a session of its own, with nothing of ours open but the two pipes. Raises OSError."""
        environment = {key: text for key, text in os.environ.items() if key not in _NOT_FOR_CHILDREN}
        environment[PARENT_PID_VARIABLE] = str(os.getpid())
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment,
            start_new_session=True, cwd="/",
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self._buffer = bytearray()
        self.pending_call: str | None = _START
        self.progress_seconds = now_seconds
        """When it last made progress; the pending call began then."""
        self.misses = 0
        self.stuck = False
        self.started = False
        self.error: DriverError | None = None
        """Why it is condemned: nothing it says is believed any more."""
        self.leaving = False
        """Its end was asked for, so it is no fault."""
        self.killed = False

    @property
    def pid(self) -> int:
        """Process id, also session id."""
        return self._process.pid

    @property
    def gone(self) -> bool:
        """True once the process has ended, with every thread of it."""
        return self._process.poll() is not None

    @property
    def in_call(self) -> bool:
        """True while a kill could strike inside a call; starting up is none."""
        return self.started and self.pending_call is not None

    @property
    def end(self) -> str:
        """How it ended, and during which call."""
        code = self._process.returncode
        how = "still running" if code is None else f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"{how} during {self.pending_call}" if self.pending_call else how

    @property
    def output(self) -> int | None:
        """Descriptor to wait on for messages, None after the end of the output."""
        return None if self._stdout.closed else self._stdout.fileno()

    def progress(self, now_seconds: float) -> None:
        """It said something in time, or was asked something new."""
        self.progress_seconds = now_seconds
        self.misses = 0
        self.stuck = False

    def send(self, line: bytes) -> None:
        """Write one request. Raises DriverError: lost when it no longer listens, invalid on a full pipe."""
        try:
            written = self._stdin.write(line)
        except (OSError, ValueError) as error:
            raise DriverError(ErrorKind.LOST, "worker", "request", str(error)) from error
        if written != len(line):
            raise DriverError(ErrorKind.INVALID, "worker", "request", "the pipe is full")

    def read_lines(self) -> list[bytes] | None:
        """Whole lines that have arrived since the last call; None at the end of the output.

        Raises DriverError(invalid) for a line beyond the limit, finished or not.
        """
        try:
            chunk = os.read(self._stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not chunk:
            return None
        *lines, rest = (self._buffer + chunk).split(b"\n")
        self._buffer = rest
        if max(map(len, (rest, *lines))) > wire.LINE_LIMIT_BYTES:
            detail = f"a line of more than {wire.LINE_LIMIT_BYTES} bytes"
            raise DriverError(ErrorKind.INVALID, "worker", "message", detail)
        return [bytes(line) for line in lines]

    def close_input(self) -> None:
        """Ask it politely to leave."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    def close_output(self) -> None:
        """Hear no more of it."""
        self._stdout.close()

    def kill(self) -> None:
        """SIGKILL; the caller has made sure that it may be."""
        self.killed = True
        self._process.kill()
