"""The container runtime at its CRI socket: does its gRPC server greet back, within a deadline?

The greeting of HTTP/2 is what every gRPC server answers before any call. No call is ever made: it would
need a library of its own, and the locks of the runtime.
"""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

from nodeagent.drivers.host.system import kubelet_installed, read_bounded
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.host_signals import RuntimeHealth
from nodeagent.model import NODE
from nodeagent.wire import HostArguments

SOCKETS = (
    "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock",
    "/run/cri-dockerd.sock",
)
"""Where runtimes listen by default."""
DEADLINE_SECONDS = 5.0
_KUBELET_CONFIG = "var/lib/kubelet/config.yaml"
_ENDPOINT = re.compile(rb"^containerRuntimeEndpoint: *[\"']?unix://(/[^\s\"']{1,200})", re.MULTILINE)
_SETTINGS, _FRAME_BYTES = 4, 9
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0))
"""HTTP/2's first words, and an empty frame of settings."""
_MAX_SOCKET_BYTES = 107


def runtime_health(arguments: HostArguments) -> RuntimeHealth:
    """Whether the runtime answers. No answer from one that belongs here is an answer: not healthy.

    Raises DriverError: absent where there is neither a socket nor a kubelet.
    """
    path = _socket_path(arguments)
    if path is None:
        if not kubelet_installed(arguments.host_root):
            detail = "no CRI socket, and no kubelet is installed"
            raise DriverError(ErrorKind.ABSENT, NODE, "greet the runtime", detail)
        detail = "no socket there nor at the other usual places"
        return RuntimeHealth(healthy=False, detail=detail, socket=SOCKETS[0])
    try:
        _greet(_under(arguments.host_root, path), time.monotonic() + DEADLINE_SECONDS)
    except TimeoutError:
        detail = f"no answer in {DEADLINE_SECONDS:g} s"
    except OSError as error:
        detail = (error.strerror or str(error)).lower()
    except ValueError as error:
        detail = f"no answer of a container runtime: {error}"
    else:
        return RuntimeHealth(healthy=True, detail="answers", socket=path)
    return RuntimeHealth(healthy=False, detail=detail, socket=path)


def _socket_path(arguments: HostArguments) -> str | None:
    """What is configured, else what the kubelet uses, else the first usual place where something is."""
    if arguments.runtime_socket:
        return arguments.runtime_socket
    try:
        found = _ENDPOINT.search(read_bounded(Path(arguments.host_root, _KUBELET_CONFIG)))
    except DriverError:
        found = None
    if found is not None:
        return os.fsdecode(found[1])
    there = (path for path in SOCKETS if os.path.lexists(_under(arguments.host_root, path)))
    return next(there, None)


def _under(host_root: str, path: str) -> str:
    return f"{host_root.rstrip('/')}{path}"


def _greet(path: str, until_seconds: float) -> None:
    """Raises OSError, TimeoutError; ValueError for an answer that is none of a gRPC server."""
    if len(os.fsencode(path)) > _MAX_SOCKET_BYTES:
        raise ValueError(f"the path of the socket has more than {_MAX_SOCKET_BYTES} bytes")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        _wait_at_most(connection, until_seconds)
        connection.connect(path)
        connection.sendall(_GREETING)
        answer = b""
        while len(answer) < _FRAME_BYTES:
            _wait_at_most(connection, until_seconds)
            piece = connection.recv(_FRAME_BYTES - len(answer))
            if not piece:
                raise ValueError("the connection was closed")
            answer += piece
    if answer[3] != _SETTINGS:
        raise ValueError("it speaks no HTTP/2")


def _wait_at_most(connection: socket.socket, until_seconds: float) -> None:
    left_seconds = until_seconds - time.monotonic()
    if left_seconds <= 0:
        raise TimeoutError
    connection.settimeout(left_seconds)
