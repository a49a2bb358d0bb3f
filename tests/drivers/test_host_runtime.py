"""The container runtime is as alive as its answer to the first words of a call."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.drivers.host import runtime
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.wire import HostArguments

SETTINGS = bytes((0, 0, 6, 4, 0, 0, 0, 0, 0)) + b"\0\3\0\0\0\x64"
"""What a gRPC server says first."""


@contextlib.contextmanager
def listening(path: Path, answer: bytes | None) -> Iterator[None]:
    """A socket that answers every connection so; None: never."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(20)

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    assert connection.recv(4096).startswith(b"PRI * HTTP/2.0")
                    if answer is None:
                        done.wait(20)
                    else:
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


ANSWERS = (
    # what it is, its answer, healthy, what is told
    ("well", SETTINGS, True, "answers"),
    ("a web server of the old kind", b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "it speaks no HTTP/2"),
    ("one that hangs up", b"", False, "the connection was closed"),
    ("half a word", SETTINGS[:5], False, "the connection was closed"),
    ("one that takes connections and says nothing", None, False, "no answer in 0.3 s"),
)


@pytest.mark.parametrize(("name", "answer", "healthy", "said"), ANSWERS, ids=[row[0] for row in ANSWERS])
def test_a_runtime_is_judged_by_its_greeting(
    name: str, answer: bytes | None, healthy: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings are an answer; silence, a hang-up and another protocol are none, and say which."""
    monkeypatch.setattr(runtime, "DEADLINE_SECONDS", 0.3 if answer is None else 5.0)
    with listening(tmp_path / "run/crio/crio.sock", answer):
        health = runtime.runtime_health(HostArguments(host_root=str(tmp_path)))

    assert (health.healthy, health.socket) == (healthy, "/run/crio/crio.sock"), name
    assert health.detail.endswith(said)


def test_a_dead_socket_is_a_runtime_that_is_down(tmp_path: Path) -> None:
    """The file is left behind, nobody listens."""
    path = tmp_path / "run/containerd/containerd.sock"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    health = runtime.runtime_health(HostArguments(host_root=str(tmp_path)))

    assert (health.healthy, health.detail) == (False, "connection refused")


def test_the_socket_is_the_operators_then_the_kubelets_then_a_usual_one(tmp_path: Path) -> None:
    """A named one is asked though another is there."""
    config = tmp_path / "var/lib/kubelet/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text('kind: KubeletConfiguration\ncontainerRuntimeEndpoint: "unix:///run/own/cri.sock"\n')
    with listening(tmp_path / "run/own/cri.sock", SETTINGS):
        assert runtime.runtime_health(HostArguments(host_root=str(tmp_path))).socket == "/run/own/cri.sock"
    named = HostArguments(host_root=str(tmp_path), runtime_socket="/run/other.sock")
    health = runtime.runtime_health(named)

    assert (health.healthy, health.socket, health.detail) == (
        False, "/run/other.sock", "no such file or directory")


def test_no_runtime_and_no_kubelet_is_no_fault(tmp_path: Path) -> None:
    """With a kubelet it is one: where a kubelet is, a runtime belongs."""
    with pytest.raises(DriverError) as raised:
        runtime.runtime_health(HostArguments(host_root=str(tmp_path)))
    assert raised.value.kind is ErrorKind.ABSENT
    config = tmp_path / "var/lib/kubelet/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("kind: KubeletConfiguration\n")
    health = runtime.runtime_health(HostArguments(host_root=str(tmp_path)))

    assert (health.healthy, health.detail) == (False, "no socket there nor at the other usual places")
