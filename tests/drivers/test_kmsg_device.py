"""The real /dev/kmsg: what a process writes there is never taken for the kernel's own word."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.kmsg import KMSG, KernelRecord, open_kmsg, parse_record
from nodeagent.errors import DriverError
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.kernel_log import KernelLog
from nodeagent.signals import KernelLogStatus, SignalKey
from nodeagent.xid_data import load_xid_table

WAIT_SECONDS = 30.0
"""The kernel lets user space write ten records in five seconds, so a write may have to be repeated."""


def _why_not() -> str:
    try:
        open_kmsg().close()
        os.close(os.open(KMSG, os.O_WRONLY))
    except (DriverError, OSError) as error:
        return f"{KMSG} cannot be read and written ({error}): sudo make test"
    return ""


pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "it can")]


def _all_records() -> list[KernelRecord]:
    source = open_kmsg()
    records = []
    try:
        while True:
            record = parse_record(source.read())
            assert record is not None
            records.append(record)
    except BlockingIOError:
        return records
    finally:
        source.close()


def test_every_record_of_this_boot_can_be_read() -> None:
    """From the oldest on, in order, with times that do not lie in the future."""
    records = _all_records()

    assert records
    sequences = [record.sequence for record in records]
    assert sequences == sorted(set(sequences))
    assert 0 <= max(record.at_seconds for record in records) < SystemClock().monotonic_seconds() + 60


@pytest.mark.parametrize("level", ["", "<0>", "<2>", "<11>"])
def test_forged_xid_is_refused_and_counted(level: str) -> None:
    """A line written by a process looks like the driver's in every letter but has another facility."""
    mark = uuid.uuid4().hex
    forged = f"{level}NVRM: Xid (PCI:0000:4e:00): 79, pid=1, name={mark}, GPU has fallen off the bus.\n"
    board, inbox, status = asyncio.run(_followed_while_forging(forged, mark))

    written = [record for record in _all_records() if mark in record.text]
    assert written
    assert all(record.facility != 0 and record.text.startswith("NVRM: Xid") for record in written)
    assert status.refused_records >= 1
    assert all(mark not in event.text for event in inbox.drain() if hasattr(event, "text"))
    assert board.targets("kernel_log") == {"node"}


async def _followed_while_forging(forged: str, mark: str) -> tuple[Board, Inbox, KernelLogStatus]:
    """Follow the real log; write the forged line until it is in the log, and wait until it was refused."""
    clock = SystemClock()
    board, inbox = Board(clock), Inbox()
    reader = KernelLog(open_kmsg, board, inbox, clock, load_xid_table())
    task = asyncio.create_task(reader.run())
    try:
        before = (await _until(board, lambda status: status.backfilled)).refused_records
        end_seconds = clock.monotonic_seconds() + WAIT_SECONDS
        while clock.monotonic_seconds() < end_seconds:
            Path(KMSG).write_text(forged)
            await asyncio.sleep(0.2)
            if any(mark in record.text for record in _all_records()):
                break
        return board, inbox, await _until(board, lambda status: status.refused_records > before)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _until(board: Board, wanted: Callable[[KernelLogStatus], bool]) -> KernelLogStatus:
    end_seconds = asyncio.get_running_loop().time() + WAIT_SECONDS
    while asyncio.get_running_loop().time() < end_seconds:
        reading = board.readings().get(SignalKey("kernel_log", "node"))
        if reading is not None and isinstance(reading.value, KernelLogStatus) and wanted(reading.value):
            return reading.value
        await asyncio.sleep(0.02)
    raise AssertionError(f"not seen in {WAIT_SECONDS} s: {board.readings()}")
