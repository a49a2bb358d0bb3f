"""What tests of the workers share: a running loop with a worker in it, scripted children, leak checks."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.worker import Worker, python_module
from nodeagent.model import Instant
from nodeagent.signals import WorkerStatus
from tests import processes

NVML = python_module("nodeagent.drivers.nvml")
HOST = python_module("nodeagent.drivers.host")
QUICK: dict[str, Any] = {
    "call_deadline_seconds": 0.2, "stuck_seconds": 0.6, "kill_seconds": 1.2, "tick_seconds": 0.02,
    "entropy": lambda: 0.0,
}
"""Deadlines of a worker whose children misbehave on purpose, and no backoff."""


class HandClock:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.now_seconds = 1000.0

    def monotonic_seconds(self) -> float:
        """Seconds, as set."""
        return self.now_seconds

    def instant(self) -> Instant:
        """Both clocks alike."""
        return Instant(boot_id="hand", monotonic_seconds=self.now_seconds, wall_seconds=self.now_seconds)


def scripted(body: str) -> tuple[str, ...]:
    """Command line of a child that speaks the protocol as `body` says; `say(text)` writes a line."""
    head = (
        "import json, os, sys, time\n"
        "def say(text): os.write(1, text.encode() + b'\\n')\n"
        "def mark(call): say('{\"type\":\"mark\",\"call\":\"%s\"}' % call)\n"
        "def done(n): say('{\"type\":\"done\",\"id\":%d}' % n)\n"
    )
    return (sys.executable, "-S", "-c", head + body)


ECHO = "for line in sys.stdin:\n    mark('call')\n    done(json.loads(line)['id'])\n"
"""A child that answers every request at once."""


def worker(argv: Sequence[str], **options: Any) -> Worker:
    """A worker of kind "test" with quick deadlines on the system's clock."""
    clock = options.pop("clock", None) or SystemClock()
    return Worker("test", argv, clock, **{**QUICK, **options})


def run(main: Callable[[Worker], Awaitable[None]], under_test: Worker) -> None:
    """Run `main` in a loop of its own and stop the worker; then no process and no descriptor is left."""

    async def whole() -> None:
        try:
            await asyncio.wait_for(main(under_test), 60)
        finally:
            await under_test.stop()

    check_leaks(whole())


def check_leaks(whole: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; fail when it leaves descriptors or child processes behind."""
    descriptors, processes = open_descriptors(), child_processes()
    asyncio.run(whole)
    assert child_processes() <= processes
    assert open_descriptors() == descriptors


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait until a condition holds; fail loudly when it never does."""
    end_seconds = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_seconds, "the condition never held"
        await asyncio.sleep(0.01)


async def until_state(under_test: Worker, *states: str) -> WorkerStatus:
    """Wait for one of the states and return the status."""
    await until(lambda: under_test.status.state in states)
    return under_test.status


def alive(pid: int) -> bool:
    """True while a process of that id runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def child_processes() -> set[int]:
    """Process ids of this process's children."""
    return set(processes.children(os.getpid()))


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - iterdir would close its own one too late
