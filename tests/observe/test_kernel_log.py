"""The kernel log reader: what it reports, what it refuses, and that it never dies quietly."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from nodeagent.drivers.kmsg import DescriptorSource
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.memory import KernelLogCursor
from nodeagent.observe import kernel_log
from nodeagent.signals import SxidEvent, Unread, XidEvent
from tests.observe.kernel_log_rig import CLOCK, Rig, Scripted, failure, gaps, raw, reported, xid

BOOT = CLOCK.instant().boot_id
GPU = "0000:4e:00.0"


# --------------------------------------------------------------------- back-fill (A2) and cursor


def test_xid_from_before_the_start_is_reported_with_its_own_time() -> None:
    """A2: what the kernel logged at 30 s of uptime is a fault for an agent that starts later."""
    rig = Rig(Scripted([raw(0, "Linux version 6"), raw(1, xid(79), at_seconds=30.0), raw(2, "usb 1-1: new")]))
    rig.play()

    (event,) = rig.events()
    assert isinstance(event, XidEvent)
    assert (event.pci_address, event.number, event.at_seconds, event.kernel_sequence) == (GPU, 79, 30.0, 1)
    assert (rig.status.records, rig.status.sequence, rig.status.first_sequence) == (3, 2, 0)


def test_restart_neither_misses_nor_repeats() -> None:
    """The cursor of the same boot skips what was taken in, and nothing after it."""
    records = [raw(n, xid(n), at_seconds=float(n)) for n in range(60, 70)]
    rig = Rig(Scripted(records), cursor=KernelLogCursor(boot_id=BOOT, sequence=64))
    rig.play()

    assert [number for _, number, _ in reported(rig.events())] == [65, 66, 67, 68, 69]
    assert rig.status.records == 5


def test_cursor_of_another_boot_says_nothing() -> None:
    """Sequence numbers start at 0 with each boot."""
    rig = Rig(Scripted([raw(3, xid(79))]), cursor=KernelLogCursor(boot_id="another", sequence=64))
    rig.play()

    assert reported(rig.events()) == [(GPU, 79, 1)]
    assert rig.status.lost_records == 0


def test_records_dropped_while_the_agent_was_away_are_a_gap() -> None:
    """The ring no longer reaches back to the cursor: that is said, not passed over."""
    rig = Rig(Scripted([raw(71, "x"), raw(72, "x")]), cursor=KernelLogCursor(boot_id=BOOT, sequence=64))
    rig.play()

    assert gaps(rig.events()) == [6]
    assert rig.status.lost_records == 6


def test_without_a_cursor_the_oldest_record_is_the_beginning() -> None:
    """A ring that has wrapped before the first start lost nothing of ours; how far it reaches is shown."""
    rig = Rig(Scripted([raw(5000, "x")]))
    rig.play()

    assert (gaps(rig.events()), rig.status.first_sequence) == ([], 5000)


# --------------------------------------------------------------------- forged and odd records


@pytest.mark.parametrize("facility", [1, 3, 16, 23])
def test_line_from_user_space_is_refused_and_counted(facility: int) -> None:
    """Only the kernel writes facility 0; whoever else writes like the driver is not believed."""
    texts = [xid(79), "nvidia-nvswitch0: SXid (PCI:0000:87:00.0): 24007, Fatal, Link 1 x"]
    script = [raw(n, text, facility=facility) for n, text in enumerate(texts)]
    rig = Rig(Scripted([*script, raw(2, "systemd: hello", facility=facility)]))
    rig.play()

    assert rig.events() == []
    assert (rig.status.refused_records, rig.status.records) == (2, 3)


def test_unreadable_record_is_skipped_and_counted() -> None:
    """One malformed record ends nothing."""
    rig = Rig(Scripted([raw(0, "x"), b"\xff\xfe garbage", b"6,x,1;", raw(1, xid(31))]))
    rig.play()

    assert reported(rig.events()) == [(GPU, 31, 1)]
    assert rig.status.malformed_records == 2


def test_second_line_of_a_switch_error_counts_once() -> None:
    """The driver repeats the number with data words."""
    head = "nvidia-nvswitch0: SXid (PCI:0000:87:00.0): 28006, "
    texts = [head + "Non-fatal, Link 46 MC TS (First)", head + "Severity 0 Engine instance 46",
             head + "Data {0x00140004, 0x0}"]
    rig = Rig(Scripted([raw(n, text) for n, text in enumerate(texts)]))
    rig.play()

    (event,) = rig.events()
    assert isinstance(event, SxidEvent)
    assert (event.number, event.count, event.link) == (28006, 1, 46)


def test_driver_version_chooses_the_layout() -> None:
    """The same info word means something to an old driver and nothing to a new one."""
    text = xid(149, rest="NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004001c6 0x0)")
    classes = []
    for version in ("570.1", "575.1"):
        rig = Rig(Scripted([raw(0, text)]), driver_version=version)
        rig.play()
        (event,) = rig.events()
        assert isinstance(event, XidEvent)
        classes.append(event.node_class)

    assert classes == ["reset", "check"]


# --------------------------------------------------------------------- the reader lives (A7)


def test_overrun_is_a_gap_and_reading_goes_on() -> None:
    """A7: EPIPE means that the ring overran the reader; what was lost is counted by the sequence."""
    rig = Rig(Scripted([raw(0, "x"), failure(errno.EPIPE), raw(11, xid(79))]))
    rig.play()

    events = rig.events()
    assert (reported(events), gaps(events)) == ([(GPU, 79, 1)], [10])
    assert (rig.status.lost_records, rig.status.reopened, rig.opened) == (10, 0, 1)


def test_overrun_before_the_first_record_is_a_gap_too() -> None:
    """How many were lost is not known, but some were."""
    rig = Rig(Scripted([failure(errno.EPIPE), raw(11, "x")]))
    rig.play()

    assert gaps(rig.events()) == [1]


def test_record_that_does_not_fit_is_skipped() -> None:
    """EINVAL: the kernel has moved past a record that was larger than the buffer."""
    rig = Rig(Scripted([raw(0, "x"), failure(errno.EINVAL), raw(2, xid(31))]))
    rig.play()

    events = rig.events()
    assert (reported(events), gaps(events), rig.opened) == ([(GPU, 31, 1)], [1], 1)


@pytest.mark.parametrize("number", [errno.EBADF, errno.EIO, errno.ENODEV, errno.EFAULT])
def test_broken_source_is_opened_again_without_loss_or_repeat(number: int) -> None:
    """A7: the new descriptor starts at the oldest record, and what was read is skipped."""
    first = Scripted([raw(0, xid(31)), raw(1, "x"), failure(number)])
    second = Scripted([raw(0, xid(31)), raw(1, "x"), raw(2, xid(79))])
    rig = Rig(first, second)
    rig.play(until=lambda: rig.opened >= 2 and not isinstance(rig.value, Unread) and rig.status.records == 3)

    assert reported(rig.events()) == [(GPU, 31, 1), (GPU, 79, 1)]
    assert (rig.status.reopened, rig.status.lost_records, first.closed, second.closed) == (1, 0, 1, 1)


def test_source_that_closes_is_opened_again() -> None:
    """An empty read is an end, not a record."""
    rig = Rig(Scripted([raw(0, "x"), b""]), Scripted([raw(0, "x"), raw(1, xid(79))]))
    rig.play(until=lambda: rig.opened >= 2 and not isinstance(rig.value, Unread) and rig.status.records == 2)

    assert reported(rig.events()) == [(GPU, 79, 1)]


def test_reader_says_that_it_is_blind_while_it_is() -> None:
    """A source that cannot be opened makes the signal unread with kind and reason; then it is tried again."""
    error = DriverError(ErrorKind.DENIED, "/dev/kmsg", "open kernel log", "Operation not permitted")
    seen: list[object] = []
    rig = Rig(error, error, Scripted([raw(0, xid(79))]))

    def recovered() -> bool:
        if isinstance(rig.value, Unread):
            seen.append(rig.value)
        return bool(seen) and not isinstance(rig.value, Unread) and rig.status.backfilled

    rig.play(until=recovered)

    assert seen[0] == Unread(kind=ErrorKind.DENIED, reason="Operation not permitted")
    assert (rig.opened, reported(rig.events())) == (3, [(GPU, 79, 1)])


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EINVAL])
def test_endless_overruns_are_a_broken_source(number: int) -> None:
    """A source that only fails must not spin the loop for ever."""
    endless = Scripted(failure(number) for _ in iter(int, 1))
    rig = Rig(endless, Scripted([raw(7, xid(31))]))
    rig.play(until=lambda: rig.opened >= 2 and not isinstance(rig.value, Unread) and rig.status.records == 1)

    assert endless.closed == 1


# --------------------------------------------------------------------- live, on real descriptors


@pytest.mark.parametrize("kind", ["pipe", "seqpacket", "datagram"])
def test_live_record_is_reported_from_a_real_descriptor(kind: str) -> None:
    """The loop watches the descriptor: nothing is asked for again and again."""
    if kind == "pipe":
        reader, writer = os.pipe2(os.O_DIRECT)
    else:
        socket_kind = socket.SOCK_SEQPACKET if kind == "seqpacket" else socket.SOCK_DGRAM
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket_kind)
        reader, writer = ours.detach(), theirs.detach()
    rig = Rig(DescriptorSource(reader))
    try:
        rig.play(
            lambda: [os.write(writer, raw(n, xid(79 if n == 2 else 31))) for n in range(3)],
            until=lambda: rig.status.records == 3,
        )
    finally:
        os.close(writer)

    assert rig.inbox.urgent.is_set()
    assert sorted(reported(rig.events())) == [(GPU, 31, 2), (GPU, 79, 1)]


def test_writer_that_goes_away_while_the_loop_waits_is_noticed() -> None:
    """The end of a real descriptor wakes the reader, which opens the log anew."""
    reader, writer = os.pipe2(os.O_DIRECT)
    rig = Rig(DescriptorSource(reader), Scripted([raw(0, xid(79))]))
    rig.play(
        lambda: os.close(writer),
        until=lambda: rig.opened >= 2 and not isinstance(rig.value, Unread) and rig.status.records == 1,
    )

    assert reported(rig.events()) == [(GPU, 79, 1)]


def test_live_record_of_a_drifted_clock_has_the_time_it_was_read() -> None:
    """The printk clock may be minutes off after months; a fresh record is from now."""
    reader, writer = os.pipe2(os.O_DIRECT)
    rig = Rig(DescriptorSource(reader))
    before_seconds = CLOCK.monotonic_seconds()
    try:
        rig.play(
            lambda: os.write(writer, raw(0, xid(79), at_seconds=1.0)), until=lambda: rig.status.records == 1
        )
    finally:
        os.close(writer)

    (event,) = rig.events()
    assert isinstance(event, XidEvent)
    assert before_seconds <= event.at_seconds <= CLOCK.monotonic_seconds()


def test_silence_is_proven_by_a_fresh_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet log and a dead reader look different: the status is renewed though nothing is read."""
    monkeypatch.setattr(kernel_log, "HEARTBEAT_SECONDS", 0.01)
    reader, writer = os.pipe2(os.O_DIRECT)
    rig = Rig(DescriptorSource(reader))
    try:
        rig.play(until=lambda: any(reading.sequence >= 5 for reading in rig.board.readings().values()))
    finally:
        os.close(writer)

    assert (rig.status.records, rig.events()) == (0, [])
