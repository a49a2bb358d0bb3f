"""What is remembered of egress shaping: last good limits, classes that drain, and what the classes sent.

Sums grow by what a class's kernel counter has gained since it was last seen, so that a class made anew can
lose bytes but never lower a sum. Everything here belongs to one boot.
"""

from __future__ import annotations

from msgspec import Struct

from nodeagent.shape import ClassCounter
from nodeagent.traffic_memory import DriftMemory


class OwnShares(Struct, frozen=True, kw_only=True):
    """The last good values of a pod's own annotations."""

    limit_bits_per_second: int | None = None
    guarantee_bits_per_second: int | None = None


class Shares(Struct, frozen=True, kw_only=True):
    """What holds for one pod."""

    limit_bits_per_second: int
    """May be above the budget; the class's ceil is then the budget."""
    guarantee_bits_per_second: int = 0
    """Before scaling; 0: none."""
    limit_from: str = "node"
    """pod | namespace | node: whose word the limit is."""


class BadAnnotation(Struct, frozen=True, kw_only=True):
    """A value that is not taken."""

    uid: str
    namespace: str
    name: str
    annotation: str
    value: str
    """As it is written, printable, cut at 60 characters."""
    remedy: str
    """Why it is not taken, and what would be right."""
    in_force: str
    """What holds instead."""


class ClassSum(Struct, frozen=True, kw_only=True):
    """What one class did in this boot, made anew or not."""

    sent_bytes: int = 0
    """Bytes that left the shaper, link header included."""
    sent_packets_count: int = 0
    dropped_packets_count: int = 0
    throttled_count: int = 0
    """How often a packet had to wait."""
    lent_packets_count: int = 0
    """Packets sent within the guarantee."""
    borrowed_packets_count: int = 0
    """Packets sent with what others left."""


class ClassCount(Struct, frozen=True, kw_only=True):
    """One owner of a class: sums, and what is now."""

    minor: int
    seen: ClassCounter
    """The kernel's counter as last seen."""
    total: ClassSum = ClassSum()
    base_bytes: int = 0
    """`total.sent_bytes` when the present rate began to be measured."""
    rate_bits_per_second: int | None = None
    """None: not read twice yet."""
    busy_since_seconds: float | None = None
    """CLOCK_MONOTONIC since when it has been near its limit at every reading; None: it is not."""


class ShapeMemory(Struct, frozen=True, kw_only=True):
    """What shaping must know of the cycles before."""

    boot_id: str = ""
    budget_bits_per_second: int = 0
    """As configured; 0: nothing is shaped."""
    listed: bool = False
    """Limits were settled from a complete pod list since the process started."""
    scanned: bool = False
    """The kernel's tc state was read since the process started."""
    missing: tuple[str, ...] = ()
    """What the kernel lacks, one sentence each; not empty: count-only."""
    blocked: dict[str, str] = {}
    """Uplink -> why it cannot be shaped."""
    tag: str = ""
    """Tag of our program in this kernel."""
    mtu_bytes: int = 1500
    """Largest MTU of the uplinks."""
    own: dict[str, OwnShares] = {}
    """By uid: last good annotations."""
    shares: dict[str, Shares] = {}
    """By uid: what holds, of every pod that has, or is to have, a class."""
    bad: tuple[BadAnnotation, ...] = ()
    """Values that are not taken now."""
    rejected_count: int = 0
    """Values refused in this boot, each once."""
    scaled_ratio: float = 1.0
    """Share of the guarantees that the budget can give; below 1: they add up to more."""
    namespace_minors: dict[str, int] = {}
    draining_seconds: dict[int, float] = {}
    """Minor of a class that nobody wants -> CLOCK_MONOTONIC when it may go; 0: the ifb."""
    pending: tuple[str, ...] = ()
    """Parts that differed from what is wanted at the newest reading, at most 8."""
    drift: DriftMemory = DriftMemory()
    planned_seconds: float | None = None
    """CLOCK_MONOTONIC of the reading that the last plan was made from: one plan a reading."""
    read_seconds: float | None = None
    """CLOCK_MONOTONIC of the last reading whose counters were taken in."""
    base_seconds: float | None = None
    """CLOCK_MONOTONIC of the reading from which the next rate is measured."""
    budget_count: ClassCount | None = None
    """The root class."""
    default_count: ClassCount | None = None
    """The class of senders without an entry."""
    pods: dict[str, ClassCount] = {}
    """By uid."""
    namespaces: dict[str, ClassSum] = {}
    """Sums over all pods of this boot, living or not."""
