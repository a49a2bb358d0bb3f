"""What is observed of the node's own network: the nouns of signals that the host worker reads.

A signal that could not be read is an `Unread` in place of the noun; a field that is None says why it may be.
"""

from __future__ import annotations

from msgspec import Struct


class NetDevice(Struct, frozen=True, kw_only=True):
    """One device with an adapter, a default route or a name in the configuration; signal `link.devices`
    (node) is a tuple of these."""

    name: str
    index: int
    pci_address: str = ""
    """Of its adapter, `0000:18:00.0`; empty for a virtual device and for one on USB."""
    is_virtual_function: bool = False
    """A slice of an adapter (SR-IOV), made for pods and virtual machines."""
    is_uplink: bool = False
    """A default route leads over it."""
    is_up: bool = True
    """By an administrator's order: `ip link set DEV up`."""
    carrier: bool | None = None
    """None: not told, as while it is switched off."""
    up_count: int | None = None
    """Times it gained carrier since the device was made; None: the kernel does not tell."""
    down_count: int | None = None
    """Times it lost carrier since the device was made; None: the kernel does not tell."""
    bond: str = ""
    """The bond that it is a slave of."""
    mii_up: bool | None = None
    """What that bond thinks of it; None: neither up nor down, or no slave."""
    detail: str = ""
    """Why its carrier could not be read."""

    @property
    def carries(self) -> bool:
        """True when it has carrier and its bond uses it."""
        return self.carrier is True and self.mii_up is not False


class NetAdapters(Struct, frozen=True, kw_only=True):
    """Signal `net.adapters` (node): network controllers that the PCI bus shows, from sysfs."""

    addresses: tuple[str, ...]


class IbPort(Struct, frozen=True, kw_only=True):
    """Signal `ib.port` (`mlx5_0/1`): state of one RDMA port, from sysfs."""

    state: str
    """ACTIVE | INIT | ARMED | DOWN | ..."""
    phys_state: str
    """LinkUp | Polling | Disabled | ..."""
    link_layer: str
    """InfiniBand | Ethernet | ..."""
    pci_address: str = ""
    net_device: str = ""
    """Network device of an Ethernet port, where this network namespace has it."""
    is_virtual_function: bool = False

    @property
    def is_up(self) -> bool:
        """True when it carries data."""
        return self.state == "ACTIVE" and self.phys_state == "LinkUp"

    @property
    def is_switched_off(self) -> bool:
        """True by an administrator's order; an Ethernet port says Disabled of a missing carrier, too."""
        return self.phys_state == "Disabled" and self.link_layer != "Ethernet"


class IbCounters(Struct, frozen=True, kw_only=True):
    """Signal `ib.counters` (`mlx5_0/1`)."""

    link_downed_count: int
    """Times the port went down since the adapter's reset; it has 8 bits and stays at 255."""


class Gateway(Struct, frozen=True, kw_only=True):
    """Signal `net.gateway` (`10.0.0.1%eth0`): neighbour entry of the gateway of a default route."""

    state: str
    """reachable | stale | delay | probe | incomplete | failed | permanent | noarp | none (no entry)"""
    used_seconds: float | None = None
    """Seconds since a packet was to be sent to it."""
    confirmed_seconds: float | None = None
    """Seconds since it was last heard of."""


class TcpTarget(Struct, frozen=True, kw_only=True):
    """Signal `net.target` (`HOST:PORT`): one attempt to connect, closed at once."""

    outcome: str
    """accepted | refused | silent | unreachable | unnamed (the name does not resolve)"""
    detail: str = ""
    answered_seconds: float | None = None
    """Until the answer; None: there was none."""


class ConntrackTable(Struct, frozen=True, kw_only=True):
    """Signal `conntrack` (node): the kernel's table of connections of this network namespace."""

    entries_count: int
    limit_count: int
    dropped_count: int | None = None
    """Packets dropped and entries evicted because it was full, since boot; None: the kernel does not tell."""
    insert_failed_count: int | None = None
    """Entries that lost a race, since boot: no sign of a full table."""


class NeighbourTable(Struct, frozen=True, kw_only=True):
    """Signal `neighbour.table` (ipv4, ipv6): the kernel's table of neighbours, one for all namespaces."""

    entries_count: int
    exempt_count: int = 0
    """Entries of this namespace that the limit does not count (permanent, learned by a control plane); 0
    while the table is too small to be collected at all."""
    limit_count: int
    """gc_thresh3"""
    overflow_count: int | None = None
    """Neighbours refused because it was full, since boot; None: the kernel does not tell."""
