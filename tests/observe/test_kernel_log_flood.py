"""A3: 800,000 Xid lines, 29 of them distinct, cost a bounded amount of everything."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator

import pytest

from nodeagent.decide.xid_class import MAX_EPISODES
from nodeagent.observe.coalesce import Coalescer
from nodeagent.observe.kernel_log import BATCH_RECORDS
from nodeagent.signals import SxidEvent, XidEvent
from tests.observe.kernel_log_rig import Rig, Scripted, raw, reported, xid

LINES, DISTINCT = 800_000, 29
KIB = 1024


def flood(lines: int) -> Iterator[bytes]:
    """Lines of 29 GPUs within one minute, as fast as they are asked for."""
    texts = [xid(95, f"0000:{gpu:02x}:00", "Uncontained error").encode() for gpu in range(DISTINCT)]
    for n in range(lines):
        yield b"4,%d,%d,-;%b\n" % (n, 30_000_000 + n, texts[n % DISTINCT])


def test_flood_is_counted_in_bounded_events() -> None:
    """Every line is counted, and the events and what waits for the cycle stay few."""
    rig = Rig(Scripted(flood(LINES)))
    turns, most, count = 0, 0, 0

    async def beside() -> None:
        """Another task of the loop: it must get its turns, and takes the events as the cycle would."""
        nonlocal turns, most, count
        task = asyncio.create_task(rig.reader.run())
        while not (rig.value is not None and rig.status.backfilled):
            await asyncio.sleep(0)
            turns += 1
            if turns % 20 == 0:
                events = reported(rig.events())
                most, count = max(most, len(events)), count + sum(e[2] for e in events)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(beside())

    assert count + sum(e[2] for e in reported(rig.events())) == LINES
    assert turns >= LINES // BATCH_RECORDS
    assert most <= DISTINCT * 21
    assert (rig.inbox.dropped, rig.status.records, rig.status.lost_records) == (0, LINES, 0)


def test_flood_that_nobody_drains_is_bounded_too() -> None:
    """A cycle that is stuck finds a full inbox and a count of what did not fit, not a full memory."""
    rig = Rig(Scripted(flood(40_000)), capacity=DISTINCT * 2)
    tracemalloc.start()
    try:
        rig.play()
        grown_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(rig.inbox.drain()) <= DISTINCT * 2
    assert rig.status.records == 40_000
    assert peak_bytes < 4096 * KIB
    assert grown_bytes < 2048 * KIB


def test_flood_of_ever_new_lines_is_bounded() -> None:
    """Process names and ids make every line another one; they are still one event of one GPU."""
    lines = (raw(n, xid(31, rest=f"pid={n}, name=job{n}"), at_seconds=30.0 + n / 1e5) for n in range(20_000))
    rig = Rig(Scripted(lines))
    tracemalloc.start()
    try:
        rig.play()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    events = reported(rig.events())
    assert sum(count for _, _, count in events) == 20_000
    assert {(pci, number) for pci, number, _ in events} == {("0000:4e:00.0", 31)}
    assert peak_bytes < 4096 * KIB


def event(number: int = 79, **more: object) -> XidEvent:
    """One occurrence."""
    return XidEvent(source="kernel", pci_address="0000:4e:00.0", number=number, at_seconds=0.0, **more)  # type: ignore[arg-type]


def test_equal_events_of_a_minute_become_one() -> None:
    """Count, newest time and newest number of all; text of the first."""
    coalescer = Coalescer()
    for n in range(5):
        coalescer.add(event(text=f"line {n}"), 10.0 + n, 100 + n)

    (one,) = coalescer.drain()
    assert (one.text, one.count, one.at_seconds, one.kernel_sequence) == ("line 0", 5, 14.0, 104)
    assert not coalescer


@pytest.mark.parametrize(
    "other",
    [event(48), event(node_class="reset"), event(injected=True), event(recovery_text="None"),
     event(caused_by=13), event(detail="GPC 1"),
     SxidEvent(pci_address="0000:4e:00.0", number=79, at_seconds=0.0, fatal=True)],
)
def test_events_that_differ_in_what_they_mean_stay_apart(other: XidEvent | SxidEvent) -> None:
    """Whatever a class or a link depends on is never merged away."""
    coalescer = Coalescer()
    coalescer.add(event(), 10.0, 1)
    coalescer.add(other, 10.0, 2)

    assert len(coalescer.drain()) == 2


def test_occurrences_a_minute_apart_stay_apart_up_to_a_bound() -> None:
    """The repeat rule needs them; a back-filled day of them still ends as a few events."""
    coalescer = Coalescer()
    for n in range(100):
        coalescer.add(event(), 61.0 * n, n)

    events = coalescer.drain()
    assert (len(events), sum(e.count for e in events)) == (MAX_EPISODES, 100)
    assert events[-1].at_seconds == 61.0 * 99
