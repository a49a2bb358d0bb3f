"""A network and a process namespace of their own, and a thread of this process that stands in the first.

All that runs in them ends with their first process, and that one ends when this process does, in any way.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tests import processes

START_SECONDS = 10.0
STOP_SECONDS = 20.0
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_FIRST_PROCESS = "ip link set lo up && echo ready && exec cat"
_here = threading.local()

Result = TypeVar("Result")


class Program:
    """One program in the capsule; ended by its pid."""

    def __init__(self, name: str, starter: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self._starter = starter
        self._log = log
        self.pid = self._find()

    def _find(self) -> int:
        end_seconds = time.monotonic() + START_SECONDS
        while self._starter.poll() is None and time.monotonic() < end_seconds:
            with contextlib.suppress(OSError):
                for pid in processes.children(self._starter.pid):
                    return pid
            time.sleep(0.002)
        raise AssertionError(f"{self.name} did not start:\n{self.log()}")

    @property
    def runs(self) -> bool:
        """True while it has not ended."""
        return self._starter.poll() is None

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal it and return when it is gone; what does not go by itself is killed."""
        self.send_signal(number)
        try:
            self._starter.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self._starter.wait(STOP_SECONDS)

    def send_signal(self, number: int) -> None:
        """Signal it when it still runs."""
        if self.runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def log(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(errors="replace")[-6000:] if self._log.exists() else ""


class Capsule:
    """The namespaces from `with Capsule(folder) as c:` until its end; `folder` takes the programs' output."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs: list[Program] = []
        self.pid = 0
        """First process of the namespaces, as this process sees it."""

    def __enter__(self) -> Capsule:
        words = ["unshare", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", _FIRST_PROCESS]
        # It waits for the end of its input, which comes with the end of this process.
        self._first = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._first.stdout is not None
        try:
            if self._first.stdout.readline() != b"ready\n":
                raise AssertionError("no network namespace could be made")
            self.pid = processes.children(self._first.pid)[0]
            self._thread = ThreadPoolExecutor(1, "capsule", self._enter)
        except BaseException:
            self._end_first()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)
        for program in reversed(self._programs):
            program.send_signal(signal.SIGKILL)
        self._end_first()
        for program in self._programs:
            program.stop(signal.SIGKILL)

    def _end_first(self) -> None:
        assert self._first.stdin is not None and self._first.stdout is not None
        self._first.stdin.close()
        self._first.wait(STOP_SECONDS)
        self._first.stdout.close()

    def _enter(self) -> None:
        descriptor = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"setns: {os.strerror(number)}")
        finally:
            os.close(descriptor)
        _here.capsule = self

    # ------------------------------------------------------------------ use

    def inside(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Call `function` where its sockets belong to the capsule; it may itself call this."""
        if getattr(_here, "capsule", None) is self:
            return function(*arguments, **options)
        return self._thread.submit(function, *arguments, **options).result()

    def run(self, main: Coroutine[Any, Any, Result], seconds: float = 60.0) -> Result:
        """Run a coroutine to its end in a loop whose sockets belong to the capsule."""
        return self.inside(_run, main, seconds)

    def prefix(self) -> list[str]:
        """Words before a command that is to run in the capsule's network, as a process of the outside."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]

    def start(self, name: str, *words: str) -> Program:
        """Start a program in both namespaces; it writes to NAME.log in the folder."""
        log = self._folder / f"{name}.log"
        enter = ["nsenter", "-t", str(self.pid), "--net", "--pid", "--"]
        with log.open("ab") as output:
            starter = subprocess.Popen(
                [*enter, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )
        program = Program(name, starter, log)
        self._programs.append(program)
        return program


def _run(main: Coroutine[Any, Any, Result], seconds: float) -> Result:
    return asyncio.run(asyncio.wait_for(main, seconds))
