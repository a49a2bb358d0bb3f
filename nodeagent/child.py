"""The worker's side of the pipe: answers requests until the daemon closes it.

It runs in a process that may hang in a driver call or be killed at any time, so it holds nothing
worth keeping. It leaves only at the end of its input: SIGTERM and SIGINT are ignored, because a
process that dies inside a driver call can wedge the GPU. Should the daemon die, the kernel kills it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator

from nodeagent import wire

PARENT_PID_VARIABLE = "NODEAGENT_PARENT_PID"
"""Environment variable in which the daemon tells its pid."""

_PR_SET_PDEATHSIG = 1
_READ_BYTES = 65536


class Channel:
    """Writes whole messages from any thread. A daemon that no longer reads ends the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, message: wire.Message) -> None:
        """Write one line; it blocks while the daemon does not read."""
        line = memoryview(wire.encode(message))
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                os._exit(0)

    def mark(self, call: str, target: str = "") -> None:
        """Tell which call comes next, so that one that hangs has a name."""
        self.send(wire.Mark(call=call, target=target))


ReadAll = Callable[[wire.Request], wire.Done]
"""Sends values and marks on its channel, returns the end of the read-all."""


def serve(reader: Callable[[Channel], ReadAll], before_exit: Callable[[], None] = lambda: None) -> None:
    """Answer every request on standard input, then leave; never returns.

    `reader` is called once with the channel and returns what answers the requests.
    """
    follow_parent()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(_take_standard_output())
    answer = reader(channel)
    for line in _lines(0):
        channel.send(answer(wire.decode_request(line)))
    before_exit()
    os._exit(0)


def follow_parent() -> None:
    """Have the kernel kill this process when the daemon dies, however the daemon dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    expected = os.environ.get(PARENT_PID_VARIABLE, "")
    if expected and expected != str(os.getppid()):
        os._exit(0)


def _take_standard_output() -> int:
    """Keep the pipe for messages alone: what a library prints goes to standard error."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return descriptor


def _lines(descriptor: int) -> Iterator[bytes]:
    buffer = b""
    while chunk := os.read(descriptor, _READ_BYTES):
        buffer += chunk
        while (end := buffer.find(b"\n")) >= 0:
            line, buffer = buffer[:end], buffer[end + 1 :]
            yield line
