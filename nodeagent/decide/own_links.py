"""Which of the node's links matter, whether they were up in this boot, and since when they are down.

A link that never was up may have no cable, and one that was switched off was meant to be: neither is a
fault. What was seen goes over a restart of the agent, never over a boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from nodeagent.decide import growth
from nodeagent.memory import Memory
from nodeagent.model import NODE, Instant
from nodeagent.net_memory import LinkMemory, NodeNetMemory
from nodeagent.net_signals import IbPort, NetAdapters, NetDevice
from nodeagent.signals import SignalKey, Snapshot

LINK_LIMIT = 256
LAST_SECONDS = 253_402_300_799.0
"""Last second that has a date of four digits."""


def remember(memory: Memory, snapshot: Snapshot) -> Memory:
    """Memory after this snapshot's devices, ports and counters."""
    net = memory.net
    if net.boot_id != snapshot.now.at.boot_id:
        net = NodeNetMemory(boot_id=snapshot.now.at.boot_id)
    links, ports = net.links, dict(net.ports)
    devices = snapshot.value("link.devices")
    if isinstance(devices, tuple):
        links = _links(net.links, devices, snapshot.now.at)
    for key, reading in snapshot.readings.items():
        if key.signal == "ib.port" and isinstance(reading.value, IbPort):
            ports[key.target] = _port(ports.get(key.target, LinkMemory()), reading.value, snapshot.now.at)
    ports = dict(list(ports.items())[:LINK_LIMIT])
    net = msgspec.structs.replace(
        net, links=links, ports=ports, growths=growth.remember(net.growths, snapshot)
    )
    return msgspec.structs.replace(memory, net=net)


def _links(
    known: Mapping[str, LinkMemory], devices: tuple[NetDevice, ...], at: Instant
) -> dict[str, LinkMemory]:
    """One entry for each device here, and for each that is gone and had an adapter; the rest is forgotten."""
    here = {device.index for device in devices}
    after = {
        name: link for name, link in known.items() if link.pci_address and link.index not in here
    }
    for device in devices[:LINK_LIMIT]:
        link = known.get(device.name, LinkMemory(index=device.index))
        if link.index != device.index:
            link = LinkMemory(index=device.index)
        after[device.name] = _link(link, device, at)
    return after


def _link(link: LinkMemory, device: NetDevice, at: Instant) -> LinkMemory:
    own = bool(device.pci_address) and not device.is_virtual_function
    had_carrier = link.had_carrier or device.carrier is True or bool(device.up_count)
    lost, lost_unseen = link.lost, link.lost_unseen
    if not device.is_up or device.carries:
        lost, lost_unseen = None, False
    elif device.carrier is not None and lost is None and had_carrier:
        lost, lost_unseen = at, not link.had_carrier
    return msgspec.structs.replace(
        link, pci_address=device.pci_address, watched=link.watched or device.is_uplink or own,
        had_carrier=had_carrier, lost=lost, lost_unseen=lost_unseen,
    )


def _port(link: LinkMemory, port: IbPort, at: Instant) -> LinkMemory:
    lost = None if port.is_up or port.is_switched_off else link.lost or at
    return msgspec.structs.replace(
        link, pci_address=port.pci_address, watched=not port.is_virtual_function,
        had_carrier=link.had_carrier or port.is_up, lost=lost,
        lost_unseen=lost is not None and not link.had_carrier,
    )


def since_words(link: LinkMemory | None) -> str:
    """`since 2026-11-29T03:12:40Z`, and that it may be longer where its end was not seen."""
    if link is None or link.lost is None:
        return "since a moment ago"
    wall_seconds = min(max(0.0, link.lost.wall_seconds), LAST_SECONDS)
    when = datetime.fromtimestamp(int(wall_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"since {when} or longer" if link.lost_unseen else f"since {when}"


def is_off_the_bus(link: LinkMemory, adapters: Any) -> bool:
    """True when the adapter of a link that is not here any more has left the PCI bus, too."""
    known = isinstance(adapters, NetAdapters)
    return known and bool(link.pci_address) and link.pci_address not in adapters.addresses


ADAPTERS = SignalKey("net.adapters", NODE)
"""Signal and target of what the bus shows."""
