"""Builders of devices, ports and what is remembered of them, for tables of cases."""

from __future__ import annotations

from typing import Any

from nodeagent.memory import Memory
from nodeagent.net_memory import Growth, LinkMemory, NodeNetMemory
from nodeagent.net_signals import IbPort, NetDevice
from tests.decide.build import BOOT, UPTIME_SECONDS, now

PCI = "0000:18:00.0"
ADAPTER = "0000:9a:00.0"
PORT = "mlx5_0/1"
LOST = now(3000.0).at
"""10 minutes ago."""


def device(name: str = "eth0", **more: Any) -> NetDevice:
    """An adapter's device with carrier."""
    known: dict[str, Any] = {"index": 2, "pci_address": PCI, "carrier": True, "up_count": 1, "down_count": 1}
    return NetDevice(name=name, **known | more)


def port(state: str = "ACTIVE", phys_state: str = "LinkUp", **more: Any) -> IbPort:
    """An InfiniBand port."""
    known: dict[str, Any] = {"link_layer": "InfiniBand", "pci_address": ADAPTER}
    return IbPort(state=state, phys_state=phys_state, **known | more)


def link(**more: Any) -> LinkMemory:
    """A link that was up in this boot and matters."""
    known: dict[str, Any] = {"index": 2, "pci_address": PCI, "watched": True, "had_carrier": True}
    return LinkMemory(**known | more)


def remembered(
    links: dict[str, LinkMemory] | None = None, *, ports: dict[str, LinkMemory] | None = None,
    growths: dict[str, Growth] | None = None,
) -> Memory:
    """Memory of this boot."""
    net = NodeNetMemory(boot_id=BOOT, links=links or {}, ports=ports or {}, growths=growths or {})
    return Memory(net=net)


def grown(*steps: int, seconds_apart: float = 60.0, last_count: int = 100) -> Growth:
    """A counter that grew so at each of its last reads, the newest one a second ago."""
    newest_seconds = UPTIME_SECONDS - 1.0
    at = [newest_seconds - seconds_apart * back for back in reversed(range(len(steps)))]
    return Growth(
        read_at_seconds=newest_seconds, last_count=last_count,
        steps=tuple((seconds, step) for seconds, step in zip(at, steps, strict=True) if step),
    )
