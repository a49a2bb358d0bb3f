"""The native journal protocol, on real sockets and sealed memory files."""

import array
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.drivers.journal import JournalSocket, encode, stream_is_journal
from nodeagent.errors import DriverError, ErrorKind


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket that takes what journald would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "journal"))
        server.settimeout(5)
        yield server


@pytest.fixture
def client(tmp_path: Path) -> Iterator[JournalSocket]:
    """A client of `journald`."""
    made = JournalSocket(str(tmp_path / "journal"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("plain", b"A=plain\n"),
        ("", b"A=\n"),
        ("a=b", b"A=a=b\n"),
        ("two\nlines", b"A\n" + struct.pack("<Q", 9) + b"two\nlines\n"),
        (b"\x00\xff\n", b"A\n" + struct.pack("<Q", 3) + b"\x00\xff\n\n"),
        ("\ud800", b"A=?\n"),
    ],
    ids=["plain", "empty", "equals", "newline", "binary", "surrogate"],
)
def test_value_is_encoded_binary_safe(value: str | bytes, encoded: bytes) -> None:
    """A value with a newline takes the form with a length, so it cannot forge a field."""
    assert encode({"A": value}) == encoded


@pytest.mark.parametrize("name", ["", "lower", "_PID", "1A", "A-B", "A\n", "A" * 65, "\u00c4"], ids=ascii)
def test_field_name_journald_would_drop_is_refused(name: str) -> None:
    """A bad name is a DriverError, not a field that vanishes."""
    with pytest.raises(DriverError) as raised:
        encode({name: "x"})

    assert raised.value.kind == ErrorKind.INVALID


def test_entry_is_one_datagram(journald: socket.socket, client: JournalSocket) -> None:
    """All fields of an entry arrive together."""
    client.send({"MESSAGE": "hello", "PRIORITY": "5"})

    assert journald.recv(4096) == b"MESSAGE=hello\nPRIORITY=5\n"


def test_large_entry_travels_in_a_sealed_file(journald: socket.socket, client: JournalSocket) -> None:
    """What no datagram holds arrives as a descriptor that nobody can change any more."""
    value = "x" * 4_000_000
    client.send({"MESSAGE": value})
    data, ancillary, _flags, _address = journald.recvmsg(4096, socket.CMSG_SPACE(4))
    descriptor = array.array("i", ancillary[0][2])[0]

    with os.fdopen(descriptor, "rb") as file:
        assert (data, os.pread(descriptor, 5_000_000, 0)) == (b"", encode({"MESSAGE": value}))
        with pytest.raises(PermissionError):
            os.ftruncate(file.fileno(), 0)


def test_missing_journald_is_absent(client: JournalSocket) -> None:
    """Without a socket there is the kind absent, and the target is its path."""
    with pytest.raises(DriverError) as raised:
        client.send({"MESSAGE": "x"})

    assert raised.value.kind == ErrorKind.ABSENT
    assert raised.value.target.endswith("/journal")


def test_dead_journald_is_lost(journald: socket.socket, client: JournalSocket) -> None:
    """A socket file without a listener is the kind lost."""
    journald.close()
    with pytest.raises(DriverError) as raised:
        client.send({"MESSAGE": "x"})

    assert raised.value.kind == ErrorKind.LOST


def test_hung_journald_does_not_block(journald: socket.socket, client: JournalSocket) -> None:
    """A journald that reads nothing makes send fail at once with the kind busy."""
    with pytest.raises(DriverError) as raised:
        for _ in range(10_000):
            client.send({"MESSAGE": "x" * 1000})

    assert raised.value.kind == ErrorKind.BUSY


@pytest.mark.parametrize("stream", ["", "1", ":", "1:2", "a:b", "\ud800"])
def test_foreign_journal_stream_is_not_ours(stream: str) -> None:
    """Anything but the exact device and inode of the descriptor is not the journal's stream."""
    with Path(os.devnull).open("rb") as file:
        assert not stream_is_journal(file.fileno(), {"JOURNAL_STREAM": stream})


def test_own_journal_stream_is_known() -> None:
    """Device and inode of the descriptor itself are the journal's stream."""
    with Path(os.devnull).open("rb") as file:
        status = os.fstat(file.fileno())
        environment = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}

        assert stream_is_journal(file.fileno(), environment)


def test_closed_descriptor_is_not_the_journal() -> None:
    """A closed stderr is answered, not raised."""
    assert not stream_is_journal(-1, {"JOURNAL_STREAM": "1:2"})
