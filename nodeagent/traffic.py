"""The nouns of pod traffic: pods, links, the marks the kernel should hold and the marks it holds.

Wanted and actual state have the same type, `MarkState`, so that a plan is a comparison and "applied"
means read back equal. Pure, like all nouns.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from nodeagent.errors import ErrorKind

FAMILIES = (4, 6)
HTB_MAJOR = 0x4E
"""Major of our class ids: the upper 16 bits of skb->priority of a packet that we classed."""
DEFAULT_MINOR = 0xF
"""Minor of the default class: forwarded internet traffic of a source that no entry names."""
FIRST_MINOR, LAST_MINOR = 0x10, 0xFFFE
"""Minors of pods; never 0, which is the qdisc's own handle."""
CHAIN_PREFIX = "NODEAGENT-"
SET_PREFIX = "nodeagent-"


def class_id(minor: int) -> str:
    """A class of ours as tc writes it."""
    return f"{HTB_MAJOR:x}:{minor:x}"


class PodPhase(enum.StrEnum):
    """status.phase of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Pod(Struct, frozen=True, kw_only=True):
    """What the agent needs of one v1.Pod."""

    uid: str
    namespace: str
    name: str
    addresses: tuple[str, ...] = ()
    """Canonical text form, IPv4 and IPv6, of status.podIPs."""
    host_network: bool = False
    phase: PodPhase = PodPhase.UNKNOWN
    annotations: dict[str, str] = {}
    """Only those under our own prefix and `kubernetes.io/egress-bandwidth`."""
    terminating: bool = False
    created: str = ""
    """metadata.creationTimestamp, RFC 3339 in UTC; "" when not said."""

    @property
    def finished(self) -> bool:
        """True when its containers have ended for good: its address may be another pod's."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class PodList(Struct, frozen=True, kw_only=True):
    """Signal `pods` (node): the pods of this node from one source."""

    source: str
    """file | kubelet | api"""
    pods: tuple[Pod, ...]
    skipped: int = 0
    """Items that could not be understood; they never lose the others."""
    skipped_reason: str = ""
    """Why, of the first one."""


class PodSource(Struct, frozen=True, kw_only=True):
    """Signal `pods.source` (node): where pods come from, and how the last attempt to read them ended.

    A failed attempt leaves the last `pods` on the board, with their age.
    """

    source: str
    """api | file | kubelet | none"""
    origin: str = ""
    """Path or URL."""
    error_kind: ErrorKind | None = None
    """None when the last attempt succeeded, or there was none yet."""
    error: str = ""


class Uplink(Struct, frozen=True, kw_only=True):
    """A device with a default route."""

    name: str
    index: int
    mtu: int
    operational: bool
    rx_bytes: int
    tx_bytes: int


class PodLink(Struct, frozen=True, kw_only=True):
    """The host side of a pod's veth: found by the pod's route, else by its neighbour entry."""

    name: str
    address: str
    """The pod address that is routed to this device."""
    rx_bytes: int
    """Bytes the pod sent, from the IP header on."""
    tx_bytes: int
    """Bytes the pod received, from the IP header on."""


class LinkState(Struct, frozen=True, kw_only=True):
    """Signal `net.links` (node)."""

    uplinks: tuple[Uplink, ...]
    on_link_prefixes: tuple[str, ...]
    """Prefixes directly attached to an uplink; always part of the cluster set."""
    own_addresses: tuple[str, ...]
    pod_links: tuple[PodLink, ...]
    host_namespace: bool
    """False when the agent's network namespace is not the host's: no write then."""


class Counter(Struct, frozen=True, kw_only=True):
    """A kernel counter; packets are super-packets (GSO), not wire packets."""

    packets: int = 0
    bytes: int = 0


class PodEntry(Struct, frozen=True, kw_only=True):
    """One address in the pod sets; both directions share it."""

    address: str
    minor: int
    """Class minor under HTB_MAJOR, kept in skbprio; read back 0: the two sets do not agree."""
    mark: int = 0
    """fwmark under the mask, kept in skbmark; 0 in class-only mode."""
    comment: str = ""
    """`namespace/name/uid`, at most 255 bytes (a longer namespace/name is cut, the uid never)."""


class MarkSet(Struct, frozen=True, kw_only=True, order=True):
    """Header of one of our sets."""

    name: str
    kind: str
    """hash:net | hash:ip"""
    counters: bool = False
    comment: bool = False
    skbinfo: bool = False


class Rule(Struct, frozen=True, kw_only=True):
    """One rule as iptables-save arguments after `-A CHAIN`; equal text means equal rule."""

    chain: str
    arguments: str


class MarkState(Struct, frozen=True, kw_only=True):
    """Everything of ours in one family, wanted or read back."""

    family: int
    chains: tuple[str, ...] = ()
    """Own chains, in order."""
    rules: tuple[Rule, ...] = ()
    """Rules of own chains, in order."""
    jumps: tuple[Rule, ...] = ()
    """Our jumps in built-in chains, in order; they stand first there."""
    cluster: tuple[str, ...] = ()
    """Prefixes of the cluster set, sorted."""
    pods: tuple[PodEntry, ...] = ()
    """Entries, sorted by address."""
    sets: tuple[MarkSet, ...] = ()
    """Own sets of this family that exist, sorted by name."""
    displaced: tuple[str, ...] = ()
    """Read back: built-in chains in which a foreign rule stands before a jump of ours. Never wanted."""


class MarkReading(Struct, frozen=True, kw_only=True):
    """Signal `net.marks` (node): what the kernel holds of ours, with its counters."""

    backend: str
    """legacy | nft"""
    states: tuple[MarkState, ...]
    """A family that could not be read whole is left out."""
    out: dict[str, Counter] = {}
    """Address -> internet bytes that the pod sent (before the shaper)."""
    received: dict[str, Counter] = {}
    """Address -> internet bytes that the pod received."""
    totals: dict[str, Counter] = {}
    """`<family> <comment>` -> sum of our rules with that comment, of all that say `traffic=`."""
    host_pods: dict[str, Counter] = {}
    """Uid of a hostNetwork pod -> internet bytes that it sent, by its cgroup rule."""
    mark_users: tuple[str, ...] = ()
    """Foreign rules whose mark or mask overlaps ours, as text."""


class KernelFeature(Struct, frozen=True, kw_only=True):
    """One thing that marking needs of this host, tried out where nobody else's tables are."""

    name: str
    works: bool | None
    """None: could not be tried, or is not used by this version."""
    detail: str = ""
    """What was found, or why it does not work."""
    needed: bool = True
    """False: something is given up without it, and said; marking goes on."""


class KernelFeatures(Struct, frozen=True, kw_only=True):
    """Signal `net.kernel` (node): what of the kernel and of iptables works here."""

    features: tuple[KernelFeature, ...]
