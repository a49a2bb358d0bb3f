"""Can the node reach what the operator named? One TCP connection to each, closed as soon as it stands.

All are tried at once and share a deadline, so that ten dead targets cost no more than one. A name is
resolved in a thread of its own, because the resolver knows no deadline; never in two at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time
from typing import Any

from nodeagent.drivers.host.system import driver_error
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.net_signals import TcpTarget

TARGET_LIMIT = 32
"""Further targets are not tried, and that is said."""
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EHOSTDOWN)
_Address = tuple[int, Any]
"""Family and socket address."""


class TargetReader:
    """Lives as long as the worker, because a resolver may outlive a read-all."""

    def __init__(self) -> None:
        self._resolving: dict[str, threading.Thread] = {}

    def read(
        self, targets: tuple[str, ...], deadline_seconds: float
    ) -> dict[str, TcpTarget | DriverError]:
        """What each target did within the deadline; DriverError(invalid) for text that is no target.

        Names have a deadline of the same length before, so that a resolver that hangs blames no other target.
        """
        found: dict[str, TcpTarget | DriverError] = {}
        asked: dict[str, tuple[str, int]] = {}
        for number, target in enumerate(dict.fromkeys(targets)):
            try:
                asked[target] = parse_target(target)
                if number >= TARGET_LIMIT:
                    detail = f"more than {TARGET_LIMIT} targets: not tried"
                    raise DriverError(ErrorKind.INVALID, target, "connect", detail)
            except DriverError as error:
                asked.pop(target, None)
                found[target] = error
        addresses = self._resolved(asked, time.monotonic() + deadline_seconds)
        for target, outcome in addresses.items():
            if isinstance(outcome, TcpTarget):
                found[target] = outcome
        wanted = {target: each for target, each in addresses.items() if not isinstance(each, TcpTarget)}
        return found | _connected(wanted, deadline_seconds)

    def _resolved(
        self, asked: dict[str, tuple[str, int]], until_seconds: float
    ) -> dict[str, _Address | TcpTarget]:
        found: dict[str, _Address | TcpTarget] = {}
        begun: list[threading.Thread] = []
        for target, (host, port) in asked.items():
            with contextlib.suppress(socket.gaierror, UnicodeError):
                found[target] = _address(host, port, socket.AI_NUMERICHOST)
                continue
            thread = self._resolving.get(target)
            if thread is not None and thread.is_alive():
                continue
            thread = threading.Thread(
                target=_resolve, args=(target, host, port, found), daemon=True, name=f"resolve {target}"
            )
            self._resolving[target] = thread
            begun.append(thread)
            thread.start()
        for thread in begun:
            thread.join(max(0.0, until_seconds - time.monotonic()))
        self._resolving = {name: thread for name, thread in self._resolving.items() if thread.is_alive()}
        silent = TcpTarget(outcome="unnamed", detail="the resolver does not answer")
        return {target: found.get(target, silent) for target in asked}


def parse_target(target: str) -> tuple[str, int]:
    """Host and port of `10.0.0.1:443`, `[fd00::1]:443`, `db.example.com:5432`. Raises DriverError."""
    host, colon, port = target.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    good = colon and bare and port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535
    if not good or (":" in bare and bare == host):
        detail = f"{target[:80]!r} is not HOST:PORT like 10.0.0.1:443 or [fd00::1]:443"
        raise DriverError(ErrorKind.INVALID, target, "connect", detail)
    return bare, int(port)


def _address(host: str, port: int, flags: int = 0) -> _Address:
    """The first address. Raises socket.gaierror, UnicodeError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)[0]
    return family, address


def _resolve(target: str, host: str, port: int, found: dict[str, _Address | TcpTarget]) -> None:
    try:
        found[target] = _address(host, port)
    except (OSError, UnicodeError) as error:
        found[target] = TcpTarget(outcome="unnamed", detail=getattr(error, "strerror", None) or str(error))


def _connected(
    wanted: dict[str, _Address], deadline_seconds: float
) -> dict[str, TcpTarget | DriverError]:
    began_seconds = time.monotonic()
    until_seconds = began_seconds + deadline_seconds
    found: dict[str, TcpTarget | DriverError] = {}
    waiting: dict[int, tuple[str, socket.socket]] = {}
    poller = select.poll()
    with contextlib.ExitStack() as opened:
        for target, (family, address) in wanted.items():
            try:
                flavour = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
                connection = opened.enter_context(socket.socket(family, flavour))
                number = connection.connect_ex(address)
            except OSError as error:  # no descriptor left, or a kernel without that family
                found[target] = driver_error(error, target, "connect")
                continue
            if number != errno.EINPROGRESS:
                found[target] = _outcome(number, time.monotonic() - began_seconds)
                continue
            waiting[connection.fileno()] = (target, connection)
            poller.register(connection, select.POLLOUT)
        while waiting and (left_seconds := until_seconds - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(1000 * left_seconds):
                poller.unregister(descriptor)
                target, connection = waiting.pop(descriptor)
                number = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                found[target] = _outcome(number, time.monotonic() - began_seconds)
    silent = TcpTarget(outcome="silent", detail=f"no answer in {deadline_seconds:g} s")
    return found | {target: silent for target, _ in waiting.values()}


def _outcome(number: int, seconds: float) -> TcpTarget:
    if number == 0:
        return TcpTarget(outcome="accepted", answered_seconds=seconds)
    detail = os.strerror(number).lower()
    if number == errno.ECONNREFUSED:
        return TcpTarget(outcome="refused", detail=detail, answered_seconds=seconds)
    return TcpTarget(outcome="unreachable" if number in _UNREACHABLE else "silent", detail=detail)
