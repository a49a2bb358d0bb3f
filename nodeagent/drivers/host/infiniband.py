"""Ports of RDMA adapters and how often their links went down, from sysfs.

Each of these files makes the adapter answer, and one in trouble answers late, wrongly or not at all: each
port is named before it is read, and one that fails is left alone for longer and longer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nodeagent import wire
from nodeagent.child import Channel
from nodeagent.drivers.host.devices import pci_address
from nodeagent.drivers.host.system import driver_error, read_bounded
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.net_signals import IbCounters, IbPort
from nodeagent.signals import Unread

PORT, COUNTERS = "ib.port", "ib.counters"
PORT_LIMIT = 128
PORT_CALL, COUNTERS_CALL = "read RDMA port", "read RDMA counters"
FIRST_WAIT_SECONDS = 60.0
LONGEST_WAIT_SECONDS = 3600.0
_ETHERNET = "Ethernet"


class PortReader:
    """Lives as long as the worker, because it remembers which ports are left alone."""

    def __init__(self, channel: Channel, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`monotonic`: seconds of CLOCK_MONOTONIC."""
        self._channel = channel
        self._monotonic = monotonic
        self._left_alone: dict[str, tuple[float, float, DriverError]] = {}
        """Port -> CLOCK_MONOTONIC until which its counters are not read, that wait, and why."""

    def read(self, arguments: wire.HostArguments) -> None:
        """Send `ib.port` and `ib.counters` of each port; one of the node where there is none."""
        root = Path(arguments.sys_root, "class/infiniband")
        try:
            ports = list(_ports(root))
            unread = Unread(kind=ErrorKind.ABSENT, reason="no RDMA adapter on this node")
        except DriverError as error:
            ports, unread = [], wire.missing(PORT, NODE, error).unread
        if not ports:
            for signal in (PORT, COUNTERS):
                self._channel.send(wire.Missing(signal=signal, target=NODE, unread=unread))
        for name, folder in ports[:PORT_LIMIT]:
            self._read_port(arguments, name, folder)

    def _read_port(self, arguments: wire.HostArguments, name: str, folder: Path) -> None:
        if self._is_skipped(arguments, PORT, PORT_CALL, name):
            self._is_skipped(arguments, COUNTERS, PORT_CALL, name)
            return
        self._channel.mark(PORT_CALL, name)
        try:
            port = _port(folder)
        except DriverError as error:
            for signal in (PORT, COUNTERS):
                self._channel.send(wire.missing(signal, name, error))
            return
        self._channel.send(wire.value(PORT, name, port))
        if port.link_layer == _ETHERNET and port.net_device:
            detail = f"Ethernet: {port.net_device} is judged by link.flaps"
            unread = Unread(kind=ErrorKind.ABSENT, reason=detail)
            self._channel.send(wire.Missing(signal=COUNTERS, target=name, unread=unread))
        elif not self._is_skipped(arguments, COUNTERS, COUNTERS_CALL, name):
            self._read_counters(name, folder)

    def _is_skipped(self, arguments: wire.HostArguments, signal: str, call: str, name: str) -> bool:
        """True, and said, when that call did not return the last time."""
        if f"{call} {name}" not in arguments.skip:
            return False
        reason = "the last attempt did not return; it is tried again later"
        unread = Unread(kind=ErrorKind.TIMEOUT, reason=reason)
        self._channel.send(wire.Missing(signal=signal, target=name, unread=unread))
        return True

    def _read_counters(self, name: str, folder: Path) -> None:
        until_seconds, waited_seconds, known = self._left_alone.get(name, (0.0, 0.0, None))
        if known is not None and self._monotonic() < until_seconds:
            self._channel.send(wire.missing(COUNTERS, name, known))
            return
        self._channel.mark(COUNTERS_CALL, name)
        try:
            counters = IbCounters(link_downed_count=_number(folder / "counters/link_downed"))
        except DriverError as error:
            wait_seconds = min(LONGEST_WAIT_SECONDS, 2 * waited_seconds or FIRST_WAIT_SECONDS)
            self._left_alone[name] = (self._monotonic() + wait_seconds, wait_seconds, error)
            self._channel.send(wire.missing(COUNTERS, name, error))
            return
        self._left_alone.pop(name, None)
        self._channel.send(wire.value(COUNTERS, name, counters))


def _ports(root: Path) -> Iterator[tuple[str, Path]]:
    """Name and folder of each port; nothing where there is no RDMA at all. Raises DriverError."""
    try:
        for device in sorted(root.iterdir()) if root.exists() else ():
            for port in sorted((device / "ports").iterdir()):
                yield f"{device.name}/{port.name}", port
    except OSError as error:
        raise driver_error(error, NODE, "list RDMA ports") from error


def _port(folder: Path) -> IbPort:
    device = folder.parent.parent
    link_layer = _text(folder / "link_layer")
    return IbPort(
        state=_word(_text(folder / "state")), phys_state=_word(_text(folder / "phys_state")),
        link_layer=link_layer, pci_address=pci_address(str(device.resolve())),
        net_device=_net_device(folder) if link_layer == _ETHERNET else "",
        is_virtual_function=os.path.lexists(device / "device/physfn"),
    )


def _net_device(folder: Path) -> str:
    """Name of the network device of an Ethernet port, where this namespace has it."""
    device = folder.parent.parent / "device/net"
    try:
        names = sorted(each.name for each in device.iterdir())
    except OSError:
        return ""
    return names[min(int(folder.name) - 1, len(names) - 1)] if names and folder.name.isdecimal() else ""


def _word(text: str) -> str:
    """`ACTIVE` of `4: ACTIVE`. Raises DriverError(invalid) for anything else."""
    number, colon, word = text.partition(":")
    if not colon or not number.strip().isdecimal():
        raise DriverError(ErrorKind.INVALID, NODE, PORT_CALL, f"{text[:40]!r} is no state")
    return word.strip()


def _number(path: Path) -> int:
    text = _text(path)
    if not text.isdecimal():
        raise DriverError(ErrorKind.INVALID, str(path), COUNTERS_CALL, f"{text[:40]!r} is no count")
    return int(text)


def _text(path: Path) -> str:
    try:
        return read_bounded(path, 256).decode("ascii", "replace").strip()
    except DriverError as error:
        raise DriverError(error.kind, error.target, f"read {path.name}", error.detail) from error
