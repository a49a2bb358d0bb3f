"""What is remembered of pod traffic: who holds which address and class, and all that was counted.

Counts grow by what a kernel counter has gained since it was last seen, and kernel value and sum are
saved together: so a restart, a rewrite or a reset in the kernel can lose bytes but never lower a sum.
Everything here belongs to one boot.
"""

from __future__ import annotations

from msgspec import Struct


class Claim(Struct, frozen=True, kw_only=True):
    """The pod that an address belongs to."""

    uid: str
    namespace: str
    name: str
    minor: int
    """Class minor of the pod."""


class Uncovered(Struct, frozen=True, kw_only=True):
    """An address of the cluster's that no cluster prefix covers: its peers' traffic counts as internet."""

    address: str
    owner: str
    """`namespace/name` of the pod, or "node"."""
    prefix: str
    """What is probably missing: the /24 or /64 around it."""


class DriftMemory(Struct, frozen=True, kw_only=True):
    """What others changed of ours."""

    settled: dict[str, str] = {}
    """Part -> digest of what was wanted when it was last read back equal."""
    open: tuple[str, ...] = ()
    """Parts that differ now although they were settled."""
    repairs: dict[str, tuple[float, ...]] = {}
    """Part -> CLOCK_MONOTONIC seconds of the latest repairs."""
    repaired_count: int = 0
    """Repairs of this boot."""
    last_seconds: float | None = None
    """CLOCK_MONOTONIC of the reading that last showed a drift."""
    last_parts: tuple[str, ...] = ()
    """What it showed."""


class MarkMemory(Struct, frozen=True, kw_only=True):
    """What marking must know of the cycles before."""

    boot_id: str = ""
    listed: bool = False
    """A complete pod list was seen since the process started."""
    scanned: bool = False
    """The kernel's state was read since the process started."""
    linked: bool = False
    """Uplinks were read since the process started."""
    mark_mask_asked: int = 0
    """The configured mask for which the next field holds."""
    class_only: bool = False
    """A foreign user of mark bits was found in this boot: no marks are set."""
    mark_users: tuple[str, ...] = ()
    """Those users, at most 8."""
    uplinks: tuple[str, ...] = ()
    on_link_prefixes: tuple[str, ...] = ()
    own_addresses: tuple[str, ...] = ()
    claims: dict[str, Claim] = {}
    """Address -> pod, of all addresses that have an entry."""
    host_pods: dict[str, Claim] = {}
    """Uid -> hostNetwork pod."""
    resting_seconds: dict[int, float] = {}
    """Minor -> CLOCK_MONOTONIC seconds when its pod let it go."""
    uncovered: tuple[Uncovered, ...] = ()
    shared: tuple[str, ...] = ()
    """Addresses claimed by two live pods, one sentence each."""
    drift: DriftMemory = DriftMemory()
    planned_seconds: float | None = None
    """CLOCK_MONOTONIC of the kernel reading that the last plan was made from: one plan a reading."""

    @property
    def holders(self) -> tuple[Claim, ...]:
        """Every claim: of addresses, so a pod with two stands twice, and of hostNetwork pods."""
        return (*self.claims.values(), *self.host_pods.values())


class Tally(Struct, frozen=True, kw_only=True):
    """Bytes by direction and destination. None: not known."""

    internet_out_bytes: int = 0
    internet_in_bytes: int | None = 0
    """None for a hostNetwork pod."""
    cluster_out_bytes: int | None = None
    cluster_in_bytes: int | None = None


class LinkCount(Struct, frozen=True, kw_only=True):
    """Both directions of a veth, and the internet bytes counted over the same time."""

    out_bytes: int = 0
    in_bytes: int = 0
    internet_out_bytes: int = 0
    internet_in_bytes: int = 0


class PodCount(Struct, frozen=True, kw_only=True):
    """One pod's sums in this boot."""

    namespace: str
    name: str
    tally: Tally = Tally()
    link: LinkCount | None = None
    """None: its veth is not known."""
    whole: bool = True
    """The pod is known since it began: its veth's first value counts."""


class Window(Struct, frozen=True, kw_only=True):
    """What crossed the uplinks in one stretch of time, and what of it our rules counted."""

    began_seconds: float
    """CLOCK_MONOTONIC."""
    ended_seconds: float
    uplink_out_bytes: int = 0
    uplink_in_bytes: int = 0
    counted_out_bytes: int = 0
    counted_in_bytes: int = 0


class TrafficMemory(Struct, frozen=True, kw_only=True):
    """All that was counted in this boot."""

    boot_id: str = ""
    marks_read_seconds: float | None = None
    """CLOCK_MONOTONIC of the last kernel reading taken in."""
    listed_seconds: float | None = None
    """CLOCK_MONOTONIC of the last kernel reading taken in while the pods were listed."""
    links_read_seconds: float | None = None
    """CLOCK_MONOTONIC of the last link reading taken in."""
    seen_bytes: dict[str, int] = {}
    """Kernel counter -> value last seen: `out ADDRESS UID`, `veth-out NAME UID`, `total 4 COMMENT`."""
    pods: dict[str, PodCount] = {}
    """By uid: pods that have an entry."""
    retired: dict[str, PodCount] = {}
    """By uid: pods that had one, the latest 256."""
    namespaces: dict[str, Tally] = {}
    """Sums over all pods of this boot, living or not; a namespace is never dropped."""
    totals_bytes: dict[str, int] = {}
    """`<family> <comment>` -> sum of the rules with that comment."""
    open_window: Window | None = None
    window: Window | None = None
    """The last complete one."""
