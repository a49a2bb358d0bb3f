"""The nouns of egress shaping: the HTB tree on the ifb, the filters that lead to it; wanted and held.

Wanted and actual state have the same type, `ShapeState`, so that a plan is a comparison and "applied"
means read back equal. Pure, like all nouns. Class minors live under `traffic.HTB_MAJOR`.
"""

from __future__ import annotations

from msgspec import Struct

IFB_NAME = "nodeagent0"
"""Our one ifb; every uplink's internet egress passes it."""
ROOT_MINOR = 0x1
"""Class of the node's whole internet budget."""
MIN_LIMIT_BITS_PER_SECOND = 1_000
MAX_LIMIT_BITS_PER_SECOND = 10**15


class ShapeClass(Struct, frozen=True, kw_only=True, order=True):
    """One HTB class. Read back equal to what was asked for, rounding of the kernel's own units taken away."""

    minor: int
    parent: int
    """Minor of the parent class; 0: the qdisc itself."""
    rate_bytes_per_second: int
    """Guarantee."""
    ceil_bytes_per_second: int
    """Limit; never below the rate."""
    burst_bytes: int
    cburst_bytes: int
    quantum_bytes: int
    """0 where it is no leaf: the kernel keeps none there."""
    leaf_limit_bytes: int = 0
    """Longest queue of a leaf; 0: not a leaf."""


class ShapeFilter(Struct, frozen=True, kw_only=True, order=True):
    """Our one filter at the end of an uplink's clsact egress, and where it leads."""

    device: str
    tag: str
    """Tag of the eBPF program, as the kernel gives it; another tag is another program."""
    target: str = IFB_NAME
    """Device the mirred action redirects to."""


class ShapeState(Struct, frozen=True, kw_only=True):
    """Everything of ours in tc, wanted or read back. All empty: nothing is shaped."""

    ifb: bool = False
    """The ifb is there, up, and its txqueuelen is at least 1,000."""
    htb: bool = False
    """The ifb's root qdisc is our HTB with the default class of `traffic.DEFAULT_MINOR`."""
    classes: tuple[ShapeClass, ...] = ()
    """Sorted by minor."""
    filters: tuple[ShapeFilter, ...] = ()
    """Sorted by device."""
    displaced: tuple[str, ...] = ()
    """Read back: devices on which a foreign filter stands behind ours, or ours is there more than once.
    Never wanted."""


class ClassCounter(Struct, frozen=True, kw_only=True):
    """What the kernel counted for one class since the class was made."""

    bytes: int = 0
    packets: int = 0
    """Wire packets."""
    drops: int = 0
    overlimits: int = 0
    """How often a packet had to wait."""
    backlog_bytes: int = 0
    lends: int = 0
    """Packets sent within the own rate."""
    borrows: int = 0
    """Packets sent with a parent's tokens."""


class ShapeReading(Struct, frozen=True, kw_only=True):
    """Signal `net.shape` (node): what the kernel holds of ours in tc, with its counters."""

    state: ShapeState
    counters: dict[int, ClassCounter] = {}
    """By minor."""
    leaf_kind: str = ""
    """fq_codel | bfifo: what leaves are, or would be, made of here; "" when nothing works."""
    tag: str = ""
    """Tag of our program in this kernel, "" when it cannot be loaded."""
    blocked: dict[str, str] = {}
    """Uplink -> why it cannot be shaped (an `ingress` qdisc excludes clsact ...)."""
    missing: tuple[str, ...] = ()
    """Kernel features that shaping needs and that are not here, one sentence each: count-only then."""
