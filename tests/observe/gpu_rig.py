"""What tests of the GPU sampler share: scripted GPUs, the real worker on them, and its board and inbox."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.worker import Worker
from nodeagent.errors import ErrorKind
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.gpus import SIGNALS, GpuSampler
from nodeagent.observe.inbox import Inbox
from nodeagent.signals import Event, SignalKey, Unread, WorkerStatus, XidEvent
from tests.drivers.rig import NVML, QUICK, check_leaks, until
from tests.fakenvml.control import FakeNvml

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing: apt-get install gcc")
ADDRESSES = [
    f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
]
"""The eight GPUs of profile H100."""


H100_LACKS = frozenset({"gpu.retired_pages"})
"""Signals that this product does not have."""


class GpuRig:
    """A GPU sampler at work on a scripted node."""

    def __init__(self, fake: FakeNvml, poll_seconds: float, options: dict[str, Any]) -> None:
        clock = SystemClock()
        self.fake = fake
        self.board, self.inbox = Board(clock), Inbox()
        self.worker = Worker("nvml", NVML, clock, **{**QUICK, **options})
        self.sampler = GpuSampler(self.worker, self.board, self.inbox, clock, poll_seconds=poll_seconds)
        self.events: list[Event] = []

    def value(self, signal_name: str, target: str | int = NODE) -> Any:
        """What the board has of a signal; a number is the index of a GPU. None when there is nothing."""
        target = ADDRESSES[target] if isinstance(target, int) else target
        reading = self.board.readings().get(SignalKey(signal_name, target))
        return None if reading is None else reading.value

    def values(self) -> dict[SignalKey, Any]:
        """Everything that comes from NVML."""
        readings = self.board.readings()
        return {key: reading.value for key, reading in readings.items() if key.signal in SIGNALS}

    def failing(self) -> dict[SignalKey, Unread]:
        """What could not be read, apart from what an H100 does not have."""
        return {
            key: value for key, value in self.values().items()
            if isinstance(value, Unread) and not (key.signal in H100_LACKS and value.kind is ErrorKind.ABSENT)
        }

    @property
    def shown(self) -> WorkerStatus:
        """Status of the worker as the board has it."""
        status = self.value("worker.nvml")
        assert isinstance(status, WorkerStatus)
        return status

    def xids(self) -> list[XidEvent]:
        """Every Xid event that the inbox was given so far."""
        self.events.extend(self.inbox.drain())
        return [event for event in self.events if isinstance(event, XidEvent)]

    async def good_read(self) -> None:
        """Have one whole read-all done from now on, without an error."""
        before = self._reads()
        self.sampler.request_now()
        await until(lambda: self._reads() > before and self.shown.state == "idle")
        assert self.shown.error_kind is None

    def _reads(self) -> int:
        reading = self.board.readings().get(SignalKey("gpu.devices", NODE))
        return 0 if reading is None else reading.sequence

    async def first_read(self) -> None:
        """Wait until the GPUs were read well for the first time."""
        await until(lambda: self.shown.state == "idle" and self.value("gpu.devices") is not None)


def sampling(
    fake: FakeNvml, main: Callable[[GpuRig], Awaitable[None]], *, poll_seconds: float = 0.2, **options: Any
) -> None:
    """Run `main` beside a sampler that wants GPUs; nothing is left behind."""

    async def whole() -> None:
        rig = GpuRig(fake, poll_seconds, options)
        task = asyncio.create_task(rig.sampler.run())
        await until(lambda: rig.value("worker.nvml"))
        rig.sampler.set_wanted(True)
        try:
            await asyncio.wait_for(main(rig), 90)
        finally:
            task.cancel()
            fake.clear_rules()
            await rig.worker.stop()

    check_leaks(whole())


def all_unread(rig: GpuRig) -> bool:
    """True when nothing from NVML on the board is a value."""
    values = rig.values()
    return bool(values) and all(isinstance(value, Unread) for value in values.values())
