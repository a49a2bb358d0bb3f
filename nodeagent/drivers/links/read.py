"""Reads uplinks, own addresses and the host side of each pod's veth into one `LinkState`.

A device is a pod's only when the pod's own host route, or its neighbour entry, leads there and no other
pod's does: counters of a shared device are nobody's.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nodeagent import rtnetlink
from nodeagent.rtnetlink import Message
from nodeagent.traffic import LinkState, PodLink, Uplink

AUTO = "auto"
"""In the list of uplinks: every device with a default route."""

_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_NEXT_HOP = struct.Struct("=HBBi")
_BRIDGE_FAMILY = 7
_ETHERNET = 1
ETHERNET_HEADER_BYTES = 14
"""Netfilter counts bytes from the IP header on; so do counters of pods here."""
_MAIN_TABLE, _UNICAST = 254, 1
_KERNEL_PROTOCOL, _ADVERTISED_PROTOCOL = 2, 9
_IFF_UP, _UNKNOWN_STATE, _UP_STATE = 0x1, 0, 6
_NO_NEIGHBOUR_STATES = 0x01 | 0x20
"""INCOMPLETE and FAILED."""
POD_DEVICE_KINDS = ("veth", "netkit", "tun")
POLICY_UPLINK_KINDS = ("", "bond", "vlan", "team")
"""Kinds whose default route counts outside the main table too (a second cloud interface); CNIs and VPNs
put default routes of virtual devices into tables of their own."""
IPVS_DEVICE = "kube-ipvs0"
"""Holds every service address of the cluster; none of them is the node's own."""


class Device(NamedTuple):
    """One device."""

    ifindex: int
    name: str
    kind: str
    mtu: int
    operational: bool
    rx_bytes: int
    tx_bytes: int
    rx_header_bytes: int = 0
    """Ethernet headers among the bytes received: one for each packet, also for a super-packet."""
    tx_header_bytes: int = 0


class Route(NamedTuple):
    """One unicast route that matters."""

    table: int
    prefix: str
    """`address/length`; empty for a default route."""
    is_host: bool
    is_attached: bool
    """Put there for an address or a router's advertisement, without a gateway."""
    devices: tuple[int, ...]
    has_gateway: bool


class LinkReader:
    """The network namespace of this process."""

    def __init__(self, proc_root: str = "/proc") -> None:
        """`proc_root`: where the host's /proc is mounted."""
        self._proc_root = proc_root
        self.devices: frozenset[int] = frozenset()
        """Interface indexes seen by the last read."""

    async def read(self, owners: Mapping[str, str], uplinks: tuple[str, ...] = (AUTO,)) -> LinkState:
        """The state now; `owners`: pod address -> uid, `uplinks`: device names, or "auto".

        Raises DriverError: busy (the lists changed faster than they could be read), timeout, denied.
        """
        devices = {device.ifindex: device for device in await _devices()}
        self.devices = frozenset(devices)
        routes = [*await _routes(socket.AF_INET), *await _routes(socket.AF_INET6)]
        own, attached = await _addresses(devices)
        chosen = chosen_uplinks(devices, routes, uplinks)
        prefixes = {prefix for index, prefix in attached if index in chosen}
        prefixes |= {r.prefix for r in routes if r.is_attached and chosen.issuperset(r.devices)}
        return LinkState(
            uplinks=tuple(_uplink(devices[index]) for index in sorted(chosen, key=lambda i: devices[i].name)),
            on_link_prefixes=tuple(sorted(prefixes)),
            own_addresses=own,
            pod_links=await _pod_links(owners, devices, routes, chosen),
            host_namespace=self.in_host_namespace(),
        )

    def in_host_namespace(self) -> bool:
        """True when pid 1 of `proc_root` is in our network namespace; False when that cannot be seen."""
        try:
            host = Path(self._proc_root, "1/ns/net").readlink()
            return host == Path("/proc/self/ns/net").readlink()
        except PermissionError:
            return self._shows_the_same_devices()
        except OSError:
            return False

    def _shows_the_same_devices(self) -> bool:
        """The link of pid 1 may only be read by who may trace it; what stands in its place needs no right:
        each namespace has files of its own below net/, told apart by their inode numbers."""
        try:
            host = Path(self._proc_root, "1/net/dev").stat()
            return host.st_ino == Path("/proc/self/net/dev").stat().st_ino
        except OSError:
            return False


# --------------------------------------------------------------------------- dumps


async def _devices() -> list[Device]:
    found = []
    for message in await rtnetlink.dump(rtnetlink.GET_LINK, _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)):
        _, type_, index, flags, _ = _LINK.unpack_from(message.data, message.at)
        attributes = message.attributes(_LINK.size)
        info = attributes.get(18, b"")
        kind = rtnetlink.parse_attributes(info, 0, len(info)).get(1, b"")
        statistics = attributes.get(23, b"")
        counts = struct.unpack_from("=QQQQ", statistics) if len(statistics) >= 32 else (0, 0, 0, 0)
        header_bytes = ETHERNET_HEADER_BYTES if type_ == _ETHERNET else 0
        state = (attributes.get(16) or b"\0")[0]
        found.append(
            Device(
                ifindex=index, name=_text(attributes.get(3, b"")), kind=_text(kind),
                mtu=_number(attributes.get(4)),
                operational=bool(flags & _IFF_UP) and state in (_UNKNOWN_STATE, _UP_STATE),
                rx_bytes=counts[2], tx_bytes=counts[3],
                rx_header_bytes=header_bytes * counts[0], tx_header_bytes=header_bytes * counts[1],
            )
        )
    return found


async def _addresses(devices: Mapping[int, Device]) -> tuple[tuple[str, ...], list[tuple[int, str]]]:
    """Own addresses that others can reach, and (device, prefix) of every address."""
    own: set[str] = set()
    prefixes = []
    header = _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    for message in await rtnetlink.dump(rtnetlink.GET_ADDRESS, header):
        _, length, _, _, index = _ADDRESS.unpack_from(message.data, message.at)
        attributes = message.attributes(_ADDRESS.size)
        peer = _address(attributes.get(1, b""))
        local = _address(attributes.get(2, b"")) or peer
        if not local:
            continue
        parsed = ipaddress.ip_address(local)
        name = devices[index].name if index in devices else ""
        if not parsed.is_loopback and not parsed.is_link_local and name != IPVS_DEVICE:
            own.add(local)
        if length and peer:
            prefixes.append((index, _prefix(peer, length)))
    return tuple(sorted(own)), prefixes


async def _routes(family: int) -> list[Route]:
    """Default routes, host routes and attached prefixes; the thousands of others are passed over."""
    found = []
    host_length = 32 if family == socket.AF_INET else 128
    for message in await rtnetlink.dump(rtnetlink.GET_ROUTE, _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
        _, length, _, _, table, protocol, _, type_, _ = _ROUTE.unpack_from(message.data, message.at)
        attaching = protocol in (_KERNEL_PROTOCOL, _ADVERTISED_PROTOCOL)
        if type_ != _UNICAST or not (length in (0, host_length) or attaching):
            continue
        route = _route(message, length, table)
        attached = attaching and length > 0 and not route.has_gateway and route.table == _MAIN_TABLE
        found.append(route._replace(is_host=length == host_length, is_attached=attached))
    return found


def _route(message: Message, length: int, table: int) -> Route:
    attributes = message.attributes(_ROUTE.size)
    gateway = 5 in attributes or 18 in attributes
    devices = [_number(attributes[4])] if 4 in attributes else []
    hops = attributes.get(9, b"")
    at = 0
    while at + _NEXT_HOP.size <= len(hops):
        hop_length, _, _, index = _NEXT_HOP.unpack_from(hops, at)
        if hop_length < _NEXT_HOP.size:
            break
        devices.append(index)
        gateway = gateway or hop_length > _NEXT_HOP.size
        at += (hop_length + 3) & ~3
    return Route(
        table=_number(attributes.get(15)) or table,
        prefix=_prefix(_address(attributes.get(1, b"")), length) if length else "",
        is_host=False, is_attached=False, devices=tuple(devices), has_gateway=gateway,
    )


# --------------------------------------------------------------------------- conclusions


def chosen_uplinks(
    devices: Mapping[int, Device], routes: Iterable[Route], names: tuple[str, ...]
) -> set[int]:
    """Interface indexes of the devices named, and with "auto" of those with a default route."""
    chosen = {device.ifindex for device in devices.values() if device.name in names}
    if AUTO in names:
        for route in routes:
            if route.prefix == "":
                chosen |= {
                    index for index in route.devices if index in devices
                    and (route.table == _MAIN_TABLE or devices[index].kind in POLICY_UPLINK_KINDS)
                }  # fmt: skip
    return {index for index in chosen if devices[index].name != "lo"}


def _uplink(device: Device) -> Uplink:
    return Uplink(
        name=device.name, index=device.ifindex, mtu=device.mtu, operational=device.operational,
        rx_bytes=device.rx_bytes, tx_bytes=device.tx_bytes,
    )


async def _pod_links(
    owners: Mapping[str, str], devices: Mapping[int, Device], routes: Iterable[Route], uplinks: set[int]
) -> tuple[PodLink, ...]:
    if not owners:
        return ()
    at: dict[str, int] = {}
    for route in routes:
        address = route.prefix.partition("/")[0]
        if route.is_host and address in owners and len(route.devices) == 1 and not route.has_gateway:
            at.setdefault(address, route.devices[0])
    at = {address: index for address, index in at.items() if _is_pod_device(devices, index, uplinks)}
    if len(at) < len(owners):
        for address, index in (await _by_neighbour(owners.keys() - at.keys())).items():
            if _is_pod_device(devices, index, uplinks):
                at[address] = index
    seen: dict[int, set[str]] = {}
    for address, index in at.items():
        seen.setdefault(index, set()).add(owners[address])
    return tuple(
        PodLink(name=devices[index].name, address=address,
                rx_bytes=max(0, devices[index].rx_bytes - devices[index].rx_header_bytes),
                tx_bytes=max(0, devices[index].tx_bytes - devices[index].tx_header_bytes))
        for address, index in sorted(at.items())
        if len(seen[index]) == 1
    )  # fmt: skip


def _is_pod_device(devices: Mapping[int, Device], index: int, uplinks: set[int]) -> bool:
    return index in devices and index not in uplinks and devices[index].kind in POD_DEVICE_KINDS


async def _by_neighbour(addresses: Iterable[str]) -> dict[str, int]:
    """Address -> device by its neighbour entry; on a bridge the port that has learned its MAC."""
    wanted = set(addresses)
    entries: dict[str, tuple[int, bytes]] = {}
    known = await rtnetlink.dump(rtnetlink.GET_NEIGHBOUR, _NEIGHBOUR.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
    for message in known:
        _, index, state, _, _ = _NEIGHBOUR.unpack_from(message.data, message.at)
        attributes = message.attributes(_NEIGHBOUR.size)
        address = _address(attributes.get(1, b""))
        if address in wanted and not state & _NO_NEIGHBOUR_STATES and attributes.get(2):
            entries[address] = (index, attributes[2])
    if not entries:
        return {}
    ports: dict[tuple[int, bytes], int] = {}
    learned = await rtnetlink.dump(rtnetlink.GET_NEIGHBOUR, _NEIGHBOUR.pack(_BRIDGE_FAMILY, 0, 0, 0, 0))
    for message in learned:
        _, index, _, _, _ = _NEIGHBOUR.unpack_from(message.data, message.at)
        attributes = message.attributes(_NEIGHBOUR.size)
        if 9 in attributes and 2 in attributes:
            ports[_number(attributes[9]), attributes[2]] = index
    return {address: ports.get(entry, entry[0]) for address, entry in entries.items()}


def _prefix(address: str, length: int) -> str:
    return str(ipaddress.ip_network(f"{address}/{length}", strict=False)) if address else ""


def _address(raw: bytes) -> str:
    families = {4: socket.AF_INET, 16: socket.AF_INET6}
    return socket.inet_ntop(families[len(raw)], raw) if len(raw) in families else ""


def _number(raw: bytes | None) -> int:
    return int.from_bytes(raw, sys.byteorder) if raw else 0


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "replace")
