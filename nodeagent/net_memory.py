"""What is remembered of the node's own links and of counters that matter by their growth: nouns only.

All of it belongs to one boot. Bounds are enforced by `decide/own_links.py` and `decide/growth.py`.
"""

from __future__ import annotations

from msgspec import Struct

from nodeagent.model import Instant


class LinkMemory(Struct, frozen=True, kw_only=True):
    """One network device, or one RDMA port, that matters."""

    index: int = 0
    """Of a network device; another one is another device."""
    pci_address: str = ""
    watched: bool = False
    """It was an uplink, or has an adapter of its own: its carrier matters without being configured."""
    had_carrier: bool = False
    """It was up in this boot, by our own eyes or by the kernel's count."""
    lost: Instant | None = None
    """Since when it has been seen down; None: it is up, or switched off."""
    lost_unseen: bool = False
    """It was down already when it was first looked at."""


class Growth(Struct, frozen=True, kw_only=True):
    """How one counter has grown; the first sample, and the first after it fell, is a baseline."""

    read_at_seconds: float
    """CLOCK_MONOTONIC of the newest read."""
    last_count: int
    steps: tuple[tuple[float, int], ...] = ()
    """(CLOCK_MONOTONIC of the read that showed it, growth), oldest first."""


class NodeNetMemory(Struct, frozen=True, kw_only=True):
    """The whole of it."""

    boot_id: str = ""
    links: dict[str, LinkMemory] = {}
    """By device name."""
    ports: dict[str, LinkMemory] = {}
    """By RDMA port, `mlx5_0/1`."""
    growths: dict[str, Growth] = {}
    """By "counter|target"."""
