"""Network devices that have an adapter or lead out of the node, from sysfs, with what their carrier did.

sysfs and not a dump of links: most of its files are read without the kernel's lock of network devices, which
a NIC driver in trouble holds for long. Devices of pods are told apart by one readlink each and not read.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from nodeagent.drivers.host.system import driver_error, read_bounded
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.net_signals import NetAdapters, NetDevice
from nodeagent.wire import HostArguments

DEVICE_LIMIT = 128
"""Devices that are read; a node has some tens at most."""
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NETWORK_CLASS = "0x02"
_IFF_UP = 0x1
_MII = {"up": True, "down": False}
_classes: dict[str, bool] = {}
"""PCI address -> whether it is a network controller: read once in the life of the worker."""


def pci_address(path: str) -> str:
    """Address of the adapter that a resolved path in /sys/devices leads through; "" without one.

    What hangs on USB (a console that the board's controller offers) is no adapter of the node's network.
    """
    parts = path.split("/")
    if any(part.startswith("usb") for part in parts):
        return ""
    return next((part for part in reversed(parts) if _PCI_ADDRESS.fullmatch(part)), "")


def net_devices(
    arguments: HostArguments, uplinks: Collection[str], may_read: Callable[[str], bool]
) -> tuple[NetDevice, ...]:
    """Devices with an adapter, those in `uplinks`, and those that the operator named.

    `may_read` is asked of each before it is read. Raises DriverError when the list cannot be read.
    """
    root = Path(arguments.sys_root, "class/net")
    try:
        names = sorted(os.listdir(root))  # noqa: PTH208 - iterdir makes a Path for each of hundreds of veths
    except OSError as error:
        raise driver_error(error, str(root), "list") from error
    found: list[NetDevice] = []
    for name in names:
        try:
            address = pci_address(str((root / name).readlink()))
        except OSError:
            continue  # a plain file (bonding_masters), or gone since the list was made
        wanted = address or name in arguments.net_devices or name in uplinks
        if wanted and name != "lo" and len(found) < DEVICE_LIMIT:
            known = NetDevice(name=name, index=0, pci_address=address, is_uplink=name in uplinks)
            try:
                found.append(_device(root / name, known) if may_read(name) else _unasked(root / name, known))
            except DriverError as error:
                if error.kind not in (ErrorKind.ABSENT, ErrorKind.LOST):
                    raise
    return tuple(found)


def _unasked(folder: Path, known: NetDevice) -> NetDevice:
    detail = "the last attempt to read it did not return; it is tried again later"
    return msgspec.structs.replace(known, index=_index(folder), detail=detail)


def _device(folder: Path, known: NetDevice) -> NetDevice:
    is_up = bool(int(_text(folder / "flags"), 16) & _IFF_UP)
    carrier, detail = _carrier(folder / "carrier") if is_up else (None, "")
    changes = _count(folder / "carrier_changes")
    down_count = _count(folder / "carrier_down_count")
    if down_count is None and changes is not None:
        down_count = changes // 2  # before Linux 4.16
    return msgspec.structs.replace(
        known, index=_index(folder), is_up=is_up,
        is_virtual_function=os.path.lexists(folder / "device/physfn"), carrier=carrier, detail=detail,
        up_count=_count(folder / "carrier_up_count"), down_count=down_count,
        bond=_linked(folder / "master") if os.path.lexists(folder / "bonding_slave") else "",
        mii_up=_MII.get(_text(folder / "bonding_slave/mii_status", "")),
    )


def _carrier(path: Path) -> tuple[bool | None, str]:
    try:
        return _text(path) == "1", ""
    except DriverError as error:
        return None, f"{error.op} carrier: {error.detail}"


def _index(folder: Path) -> int:
    text = _text(folder / "ifindex")
    if not text.isdecimal():
        raise DriverError(ErrorKind.INVALID, str(folder), "read ifindex", f"{text[:20]!r} is no number")
    return int(text)


def _count(path: Path) -> int | None:
    text = _text(path, "")
    return int(text) if text.isdecimal() else None


def _text(path: Path, default: str | None = None) -> str:
    """Content without blanks; `default` where it cannot be read. Raises DriverError without one."""
    try:
        return read_bounded(path, 256).decode("ascii", "replace").strip()
    except DriverError:
        if default is None:
            raise
        return default


def _linked(path: Path) -> str:
    try:
        return path.readlink().name
    except OSError:
        return ""


def name_of(index: int) -> str:
    """Name of a device of this namespace; its number when it is gone."""
    try:
        return socket.if_indextoname(index)
    except OSError:
        return str(index)


def adapters(arguments: HostArguments) -> NetAdapters:
    """Network controllers on the PCI bus. Raises DriverError: absent without a PCI bus."""
    root = Path(arguments.sys_root, "bus/pci/devices")
    try:
        addresses = sorted(os.listdir(root))  # noqa: PTH208 - as above
    except OSError as error:
        raise driver_error(error, str(root), "list") from error
    return NetAdapters(addresses=tuple(each for each in addresses if _is_network(root, each)))


def _is_network(root: Path, address: str) -> bool:
    key = f"{root}/{address}"
    if key not in _classes:
        _classes[key] = _text(root / address / "class", "").startswith(_NETWORK_CLASS)
    return _classes[key]
