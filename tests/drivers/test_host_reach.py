"""Configured TCP targets: each kind of answer, all of them in one deadline, and names that never resolve."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.drivers.host import reach
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.net_signals import TcpTarget

# a target, and its host and port; None: it is none
TARGETS = [
    ("10.0.0.1:443", ("10.0.0.1", 443)), ("[fd00::1]:443", ("fd00::1", 443)),
    ("db.example.com:5432", ("db.example.com", 5432)), ("10.0.0.1", None), ("10.0.0.1:0", None),
    ("10.0.0.1:65536", None), ("fd00::1:443", None), (":443", None), ("db:http", None), ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("target", "expected"), TARGETS)
def test_a_target_is_host_and_port(target: str, expected: tuple[str, int] | None) -> None:
    """Anything else is invalid, with what would be right."""
    if expected is not None:
        assert reach.parse_target(target) == expected
        return
    with pytest.raises(DriverError) as failed:
        reach.parse_target(target)
    assert failed.value.kind is ErrorKind.INVALID
    assert "10.0.0.1:443" in failed.value.detail


@pytest.fixture
def listener() -> Iterator[str]:
    """The address of one that accepts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def swallower() -> Iterator[str]:
    """The address of one whose queue is full, so that it answers nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"
        for filler in fillers:
            filler.close()


def closed_port() -> str:
    """The address of nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def outcomes(answers: dict[str, TcpTarget | DriverError]) -> dict[str, Any]:
    """Target -> outcome, or the kind of its error."""
    return {
        target: answer.kind if isinstance(answer, DriverError) else answer.outcome
        for target, answer in answers.items()
    }


def test_each_answer_has_its_word(listener: str, swallower: str) -> None:
    """Accepted, refused, silent, without a name: one read, each as it is."""
    refused = closed_port()
    targets = (listener, refused, swallower, "nobody.invalid:80", "nonsense")

    assert outcomes(reach.TargetReader().read(targets, 0.4)) == {
        listener: "accepted", refused: "refused", swallower: "silent", "nobody.invalid:80": "unnamed",
        "nonsense": ErrorKind.INVALID,
    }  # fmt: skip


def test_targets_beyond_the_limit_are_said_and_not_tried(listener: str) -> None:
    """A list without an end costs no more than one with."""
    others = [f"127.0.0.1:{port}" for port in range(1, reach.TARGET_LIMIT + 1)]
    targets = (*others, listener)
    answers = outcomes(reach.TargetReader().read(targets, 1.0))

    assert (len(answers), answers[listener]) == (reach.TARGET_LIMIT + 1, ErrorKind.INVALID)


def test_a_resolver_that_hangs_is_asked_by_one_thread_only(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    """The name is unnamed within the deadline, numbers are tried meanwhile, and threads do not pile up."""
    release, asked, real = threading.Event(), [], socket.getaddrinfo

    def hanging(host: str, port: int, **more: Any) -> Any:
        if host == "slow.test" and not more.get("flags"):
            asked.append(host)
            release.wait(30)
        return real(host, port, **more)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    reader, targets = reach.TargetReader(), ("slow.test:80", listener)
    try:
        answers = [outcomes(reader.read(targets, 0.2)) for _ in range(3)]
    finally:
        release.set()

    assert answers == [{"slow.test:80": "unnamed", listener: "accepted"}] * 3
    assert asked == ["slow.test"]
    for thread in [each for each in threading.enumerate() if each.name == "resolve slow.test:80"]:
        thread.join(10)
        assert not thread.is_alive()
