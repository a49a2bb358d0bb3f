"""What the service manager hears, on real datagram sockets."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.drivers.systemd import (
    NullNotifier,
    SystemdNotifier,
    from_environment,
    watchdog_timeout_seconds,
)
from nodeagent.errors import DriverError, ErrorKind

PID = str(os.getpid())


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A listening service manager and the NOTIFY_SOCKET it would set."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        path = str(tmp_path / "notify")
        address = path if request.param == "path" else f"@{path}"
        server.bind(address.replace("@", "\0"))
        server.settimeout(5)
        yield server, address


@pytest.fixture
def notifier(manager: tuple[socket.socket, str]) -> Iterator[SystemdNotifier]:
    """A notifier that speaks to `manager`."""
    made = from_environment({"NOTIFY_SOCKET": manager[1]})
    assert isinstance(made, SystemdNotifier)
    yield made
    made.close()


def test_messages_have_the_documented_form(
    manager: tuple[socket.socket, str], notifier: SystemdNotifier
) -> None:
    """Each call is one datagram in the words of sd_notify(3); a status is one line."""
    sent = [
        notifier.ready("OK for\n6 d"),
        notifier.status("a\tb"),
        notifier.watchdog(),
        notifier.stopping(),
    ]
    heard = [manager[0].recv(4096).decode() for _ in sent]

    assert sent == [True] * 4
    assert heard == ["READY=1\nSTATUS=OK for 6 d", "STATUS=a b", "WATCHDOG=1", "STOPPING=1"]


def test_reloading_carries_the_monotonic_time(
    manager: tuple[socket.socket, str], notifier: SystemdNotifier
) -> None:
    """The time is CLOCK_MONOTONIC in microseconds, taken when the reload began."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    first, _, microseconds = manager[0].recv(4096).decode().partition("\nMONOTONIC_USEC=")

    assert first == "RELOADING=1"
    assert before <= int(microseconds) <= after


def test_vanished_manager_is_survived(tmp_path: Path) -> None:
    """A socket that is not there answers False and raises nothing."""
    notifier = SystemdNotifier(str(tmp_path / "absent"))

    assert not notifier.watchdog()
    notifier.close()


def test_full_socket_does_not_block(manager: tuple[socket.socket, str], notifier: SystemdNotifier) -> None:
    """A manager that reads nothing makes the calls answer False at once."""
    assert not all(notifier.status("x" * 1000) for _ in range(5000))


def test_no_notify_socket_means_no_operation() -> None:
    """Outside a service manager every call answers False."""
    notifier = from_environment({})

    assert isinstance(notifier, NullNotifier)
    answers = [notifier.ready("a"), notifier.status("a"), notifier.reloading(), notifier.stopping()]
    assert answers == [False] * 4
    assert not notifier.watchdog()
    assert notifier.watchdog_timeout_seconds is None


@pytest.mark.parametrize("address", ["relative", "/", "@", "vsock:2:1234"])
def test_odd_notify_socket_is_refused(address: str) -> None:
    """An address that is neither a path nor abstract is a DriverError that names it."""
    with pytest.raises(DriverError) as raised:
        from_environment({"NOTIFY_SOCKET": address})

    assert (raised.value.kind, raised.value.target) == (ErrorKind.INVALID, address)


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": PID}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "\u0663"}, None),
    ],
)
def test_watchdog_timeout_is_read(environment: dict[str, str], seconds: float | None) -> None:
    """WATCHDOG_USEC counts only when it is a number and meant for this process."""
    assert watchdog_timeout_seconds(environment) == seconds
