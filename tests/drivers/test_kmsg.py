"""The record source and its prefix: against descriptors that the kernel really serves record by record."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.drivers.kmsg import DescriptorSource, KernelRecord, open_kmsg, parse_record
from nodeagent.errors import DriverError, ErrorKind

RECORDS = (
    ("kernel record", b"4,12,1500000,-;NVRM: hello\n", KernelRecord(
        facility=0, sequence=12, at_seconds=1.5, text="NVRM: hello")),
    ("user record", b"12,13,2000000,-;NVRM: hello\n", KernelRecord(
        facility=1, sequence=13, at_seconds=2.0, text="NVRM: hello")),
    ("dictionary", b"6,1,5,-;x\n SUBSYSTEM=pci\n DEVICE=+pci:0000:4e:00.0\n", KernelRecord(
        facility=0, sequence=1, at_seconds=5e-6, text="x",
        fields={"SUBSYSTEM": "pci", "DEVICE": "+pci:0000:4e:00.0"})),
    ("more prefix fields, as a kernel with callers has", b"6,7,8,-,caller=T1;a;b,c\n", KernelRecord(
        facility=0, sequence=7, at_seconds=8e-6, text="a;b,c")),
    ("continuation flag", b"6,7,8,c;more\n", KernelRecord(
        facility=0, sequence=7, at_seconds=8e-6, text="more")),
    ("escapes", b"6,7,8,-;a\\x0ab\\x5cx41 \\xc3\\xa9\n", KernelRecord(
        facility=0, sequence=7, at_seconds=8e-6, text="a\nb\\x41 é")),
    ("bytes that are no UTF-8", b"6,7,8,-;a\\xffb\n", KernelRecord(
        facility=0, sequence=7, at_seconds=8e-6, text="a\ufffdb")),
    ("a forged dictionary is in the text", b"6,7,8,-;a\\x0a SUBSYSTEM=pci\n", KernelRecord(
        facility=0, sequence=7, at_seconds=8e-6, text="a\n SUBSYSTEM=pci")),
    ("no text", b"6,7,8,-;", KernelRecord(facility=0, sequence=7, at_seconds=8e-6, text="")),
    ("no line end", b"6,7,8;x", KernelRecord(facility=0, sequence=7, at_seconds=8e-6, text="x")),
)


@pytest.mark.parametrize(("raw", "record"), [r[1:] for r in RECORDS], ids=[r[0] for r in RECORDS])
def test_record_is_taken_apart(raw: bytes, record: KernelRecord) -> None:
    """Priority, sequence, time, text and dictionary come out as the kernel put them in."""
    assert parse_record(raw) == record


@pytest.mark.parametrize(
    "raw",
    [b"", b";", b"NVRM: x\n", b"6,7;x\n", b"6,7,-;x\n", b"a,b,c,-;x\n", b"-6,7,8,-;x\n", b"6,7,8,-",
     b"\n6,7,8,-;x", b"6,7," + b"9" * 30 + b",-;x\n", b" 6,7,8,-;x"],
)
def test_record_without_a_prefix_is_none(raw: bytes) -> None:
    """What cannot be read is skipped by the reader, never half believed."""
    assert parse_record(raw) is None


@given(st.binary(max_size=200))
def test_any_bytes_end_without_an_exception(raw: bytes) -> None:
    """A reader of the kernel log must survive every record."""
    record = parse_record(b"4,1,1,-;" + raw)

    assert record is not None
    assert (record.facility, record.sequence) == (0, 1)
    assert parse_record(raw) is None or b";" in raw


# --------------------------------------------------------------------- sources


@pytest.fixture
def packets() -> Iterator[tuple[DescriptorSource, int]]:
    """A pipe in packet mode: each write is one record, as a read of /dev/kmsg gives one."""
    reader, writer = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
    source = DescriptorSource(reader)
    yield source, writer
    source.close()
    os.close(writer)


def test_each_read_gives_one_record(packets: tuple[DescriptorSource, int]) -> None:
    """Two writes are two records, then the source says that none waits instead of blocking."""
    source, writer = packets
    os.write(writer, b"one")
    os.write(writer, b"two")

    assert (source.read(), source.read()) == (b"one", b"two")
    with pytest.raises(BlockingIOError):
        source.read()


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_datagram_sockets_are_sources(kind: socket.SocketKind) -> None:
    """A socket keeps records apart as well."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    source = DescriptorSource(ours.detach())
    with theirs:
        theirs.send(b"one")
        theirs.send(b"two")

        assert (source.read(), source.read()) == (b"one", b"two")
    source.close()


def test_record_that_does_not_fit_makes_room_for_the_next() -> None:
    """EINVAL is what /dev/kmsg and an eventfd answer to a buffer that is too small."""
    source = DescriptorSource(os.eventfd(1), record_bytes=4)
    with pytest.raises(OSError) as raised:
        source.read()

    assert raised.value.errno == errno.EINVAL
    assert len(source.read()) == 8
    source.close()


def test_closed_source_says_so_and_closes_once(packets: tuple[DescriptorSource, int]) -> None:
    """Closing twice closes no other file; reading after it is EBADF."""
    source, _ = packets
    source.close()
    stranger = os.open(os.devnull, os.O_RDONLY)
    source.close()

    os.fstat(stranger)
    os.close(stranger)
    with pytest.raises(OSError) as raised:
        source.read()
    assert raised.value.errno == errno.EBADF


def test_named_socket_and_pipe_are_opened_as_sources(tmp_path: Path) -> None:
    """The path of the kernel log may be a SEQPACKET socket or a FIFO."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        source = open_kmsg(str(tmp_path / "socket"))
        connection, _ = server.accept()
        with connection:
            connection.send(b"by socket")
            assert source.read() == b"by socket"
        source.close()
    os.mkfifo(tmp_path / "fifo")
    source = open_kmsg(str(tmp_path / "fifo"))
    with pytest.raises(BlockingIOError):
        source.read()
    source.close()


def test_source_that_cannot_be_opened_is_a_driver_error(tmp_path: Path) -> None:
    """Absent, not a record source, nobody listening: kind and path are named."""
    (tmp_path / "file").write_text("4,1,1,-;not records\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(tmp_path / "socket"))
    wanted = {"nothing": ErrorKind.ABSENT, "file": ErrorKind.INVALID, "socket": ErrorKind.LOST}
    for name, kind in wanted.items():
        with pytest.raises(DriverError) as raised:
            open_kmsg(str(tmp_path / name))
        assert (raised.value.kind, raised.value.target) == (kind, str(tmp_path / name))


def test_descriptors_are_not_leaked_by_failures(tmp_path: Path) -> None:
    """An agent that tries again for weeks must not run out of descriptors."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(tmp_path / "socket"))
    for _ in range(20):
        with pytest.raises(DriverError):
            open_kmsg(str(tmp_path / "socket"))

    assert len(list(Path("/proc/self/fd").iterdir())) == before
