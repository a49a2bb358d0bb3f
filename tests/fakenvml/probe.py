"""Runs the real pynvml in a child process, one expression at a time.

A fault can hang or kill the process that meets it, so no test may load the
library itself. Each request runs in its own thread of the child, as a worker
that reads and waits at once would; the child never outlives the test.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any


class Refused(Exception):
    """A call returned an NVML error code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"NVML code {code}")


class Pending:
    """An answer that may still be on its way."""

    def __init__(self) -> None:
        self._answered = threading.Event()
        self._answer: dict[str, Any] = {}

    def settle(self, answer: dict[str, Any]) -> None:
        """Store the child's answer; called by the reader alone."""
        self._answer = answer
        self._answered.set()

    def done(self, within_seconds: float = 0) -> bool:
        """Say whether the call has returned."""
        return self._answered.wait(within_seconds)

    def result(self, within_seconds: float = 20) -> Any:
        """Return the value. Raises Refused, or TimeoutError when the call still hangs."""
        if not self._answered.wait(within_seconds):
            raise TimeoutError("the call has not returned")
        if "code" in self._answer:
            raise Refused(self._answer["code"])
        if "failure" in self._answer:
            raise RuntimeError(self._answer["failure"])
        return self._answer["value"]

    def code(self, within_seconds: float = 20) -> int:
        """Return the NVML code: 0 where the call succeeded. Raises as `result` otherwise."""
        try:
            self.result(within_seconds)
        except Refused as refusal:
            return refusal.code
        return 0


class Probe:
    """A child with pynvml imported as `n`; use as a context manager."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(Path(__file__).resolve())],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stderr = ""
        self._pending: dict[int, Pending] = {}
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._read, self._read_stderr)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, code: str) -> Pending:
        """Begin a request and return at once."""
        number = len(self._pending)
        self._pending[number] = pending = Pending()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([number, code]) + "\n")
        self.process.stdin.flush()
        return pending

    def do(self, code: str) -> Any:
        """Evaluate an expression, or run statements, and return the value."""
        return self.start(code).result()

    def code(self, code: str) -> int:
        """Return the NVML code of a request: 0 where it succeeds."""
        return self.start(code).code()

    def wait_for_death(self) -> int:
        """Return the exit status of a child that a fault has ended."""
        status = self.process.wait(20)
        for thread in self._threads:
            thread.join(20)
        return status

    def kill(self) -> None:
        """End the child, whatever it hangs in."""
        self.process.kill()
        self.wait_for_death()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            number, answer = json.loads(line)
            self._pending[number].settle(answer)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line


class Probes(ExitStack):
    """Starts children and ends them all on leaving, whatever state they are in."""

    def __init__(self, environment: Callable[[], Mapping[str, str]]) -> None:
        super().__init__()
        self._environment = environment

    def __call__(self, initialise: bool = True) -> Probe:
        """Start a child; initialised, it holds GPU 0 as `h`."""
        child = self.enter_context(Probe(self._environment()))
        if initialise:
            child.do("n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)")
        return child


def _plain(value: Any) -> Any:
    """Turn what pynvml returns into JSON; a handle becomes its address."""
    if isinstance(value, ctypes._Pointer):
        return ctypes.cast(value, ctypes.c_void_p).value
    if isinstance(value, (ctypes.Structure, ctypes.Union)):
        return {name: _plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Array):
        return [_plain(item) for item in value]
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "__dict__"):
        return {name: _plain(item) for name, item in vars(value).items()}
    return value


def _answer(code: str, names: dict[str, Any]) -> dict[str, Any]:
    import pynvml

    try:
        try:
            compiled = compile(code, "request", "eval")
        except SyntaxError:
            exec(code, names)
            return {"value": None}
        return {"value": _plain(eval(compiled, names))}
    except pynvml.NVMLError as refusal:
        return {"code": refusal.value}
    except Exception as failure:  # the parent tells it apart from an NVML code
        return {"failure": f"{type(failure).__name__}: {failure}"}


def _serve() -> None:
    import pynvml

    names: dict[str, Any] = {"n": pynvml}
    lock = threading.Lock()

    def work(number: int, code: str) -> None:
        answer = json.dumps([number, _answer(code, names)])
        with lock:
            sys.stdout.write(answer + "\n")
            sys.stdout.flush()

    for line in sys.stdin:
        number, code = json.loads(line)
        threading.Thread(target=work, args=(number, code), daemon=True).start()


if __name__ == "__main__":
    _serve()
