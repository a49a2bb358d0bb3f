"""The JSON of pods' traffic, as nouns: one contract of daemon, `nodeagent net` and scripts.

Bytes are sums of this boot, from the IP header on; null means that a number is not known, never zero.
Read by the command line at every start, so it imports nothing heavier than msgspec.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

TOP_SCHEMA = "nodeagent/net-top/v1"
SHOW_SCHEMA = "nodeagent/net-show/v1"
DIFF_SCHEMA = "nodeagent/net-diff/v1"


class NetworkStatus(Struct, frozen=True, kw_only=True):
    """Marking and counting in a few facts."""

    mode: str
    """off | waiting | class-and-mark | class-only"""
    reason: str = ""
    """Why it is off, or what it waits for."""
    dry_run: bool = False
    """True: what would be written is shown by `nodeagent net diff`, and not written."""
    backend: str | None = None
    """legacy | nft; null before the kernel was read."""
    wanted_pods: int = 0
    """Pods that should have an entry."""
    marked_pods: int = 0
    """Of those: all of their addresses have an entry in the kernel."""
    host_network_pods: int = 0
    entries: dict[str, int] = {}
    """Family ("4", "6") -> addresses in the pod sets, as read back."""
    drifted_parts: int = 0
    """Parts that others have changed and that are not repaired yet."""
    repairs: int = 0
    """Parts repaired in this boot."""
    outside_addresses: int = 0
    """Own and pod addresses that no cluster prefix covers."""
    read_age_seconds: float | None = None
    """Age of the last good reading of the kernel."""
    unread: str = ""
    """Why the newest attempt to read the kernel failed; "" when it did not."""
    pods_source: str = ""
    """file | kubelet | none; "" before it was looked for."""
    pods_age_seconds: float | None = None
    pods_error: str = ""
    """Why the last attempt to list pods failed; "" when it did not."""
    pods_skipped: int = 0
    """Items of the list that could not be understood."""
    shaping: str = "off"
    """off | waiting | count-only | shaping"""
    shaping_reason: str = ""
    """Why it is off, what it waits for, or what the kernel lacks."""
    budget_bits_per_second: int | None = None
    """null: no budget is configured."""
    guarantees_ratio: float | None = None
    """Share of the guarantees that the budget can give; below 1 they add up to more."""
    blocked_uplinks: dict[str, str] = {}
    """Uplink -> why it cannot be shaped."""
    bad_annotations: int = 0


class TrafficBytes(Struct, frozen=True, kw_only=True):
    """Bytes of this boot by destination and direction, seen from the pod."""

    internet_out_bytes: int | None = None
    internet_in_bytes: int | None = None
    cluster_out_bytes: int | None = None
    cluster_in_bytes: int | None = None


class ShapeStatus(Struct, frozen=True, kw_only=True):
    """One class of the shaper: what it may send to the internet, what it sends, what it costs."""

    limit_bits_per_second: int
    """As asked for; never more than the budget passes."""
    guarantee_bits_per_second: int
    """As asked for; the budget may give less, see `guarantees_ratio`."""
    limit_from: str
    """pod | namespace | node | budget: whose word the limit is."""
    rate_bits_per_second: int | None = None
    """Between the last two looks; null before the second."""
    sent_bytes: int | None = None
    """Sum of this boot behind the shaper, link header included; null: no class yet."""
    dropped_packets: int | None = None
    throttled_count: int | None = None
    """How often a packet had to wait."""
    backlog_bytes: int | None = None
    """In the queue now."""
    borrowed_ratio: float | None = None
    """Share of packets that left on what others did not use."""


class PodTraffic(Struct, frozen=True, kw_only=True):
    """One pod of `net top`."""

    uid: str
    namespace: str
    name: str
    host_network: bool
    addresses: list[str]
    veth: str | None
    class_id: str | None
    """`4e:10`; null for a hostNetwork pod without a limit of its own."""
    traffic: TrafficBytes
    shape: ShapeStatus | None = None
    """null: this pod is not shaped."""


class NamespaceTraffic(Struct, frozen=True, kw_only=True):
    """Sums over all pods of this boot, living or not."""

    namespace: str
    pods: int
    """Living ones."""
    traffic: TrafficBytes


class NetTopReport(Struct, frozen=True, kw_only=True):
    """Answer to `nodeagent net top --json`."""

    schema: str = TOP_SCHEMA
    node: str
    version: str
    generated_at: str
    network: NetworkStatus
    marks_read_seconds: float | None
    """CLOCK_MONOTONIC of the reading that the internet columns are from: rates are taken between two."""
    links_read_seconds: float | None
    """The same of the cluster columns."""
    pods: list[PodTraffic]
    namespaces: list[NamespaceTraffic]
    node_total: TrafficBytes
    """Everything over the uplinks, the host's own included."""
    host: TrafficBytes
    """Node total minus the pods'; cluster columns are not known."""
    uplinks: list[str]
    budget: ShapeStatus | None = None
    """All pods together; null: nothing is shaped."""
    unknown_senders: ShapeStatus | None = None
    """Senders without an entry; null: nothing is shaped."""


class AddressStatus(Struct, frozen=True, kw_only=True):
    """One address of a pod, as the kernel holds it."""

    address: str
    class_id: str | None
    """null: no entry in the kernel."""
    mark: str | None
    """`0x00010000`; null in class-only mode."""
    internet_out_bytes: int | None
    """The entry's own counter: it begins anew when the entry does."""
    internet_in_bytes: int | None
    veth: str | None


class NetShowReport(Struct, frozen=True, kw_only=True):
    """Answer to `nodeagent net show POD --json`."""

    schema: str = SHOW_SCHEMA
    node: str
    version: str
    generated_at: str
    uid: str
    namespace: str
    name: str
    phase: str | None
    """null: the pod is not in the list any more."""
    host_network: bool
    wanted_class_id: str | None
    addresses: list[AddressStatus]
    traffic: TrafficBytes
    notes: list[str]
    """What a person should know: why there is no class, who else claims an address."""
    network: NetworkStatus
    shape: ShapeStatus | None = None
    """null: this pod is not shaped."""


class DiffOp(Struct, frozen=True, kw_only=True):
    """One pending op."""

    sign: str
    """+ - ~"""
    kind: str
    target: str
    family: int
    """4 or 6; 0 for what serves both."""
    text: str
    """The op in words, without its sign."""
    details: list[str]
    """Rules, prefixes or entries, one each."""


class NetDiffReport(Struct, frozen=True, kw_only=True):
    """Answer to `nodeagent net diff --json`."""

    schema: str = DIFF_SCHEMA
    node: str
    version: str
    generated_at: str
    network: NetworkStatus
    known: bool
    """False: too little was read to say what is pending; `network.reason` says why."""
    ops: list[DiffOp]
    exit_code: int
    """0 nothing pending, 1 something is, 69 not known."""


def decode_top(data: bytes | str) -> NetTopReport:
    """Raises msgspec.MsgspecError when `data` is no such report."""
    return msgspec.json.decode(data, type=NetTopReport)


def decode_show(data: bytes | str) -> NetShowReport:
    """Raises msgspec.MsgspecError when `data` is no such report."""
    return msgspec.json.decode(data, type=NetShowReport)


def decode_diff(data: bytes | str) -> NetDiffReport:
    """Raises msgspec.MsgspecError when `data` is no such report."""
    return msgspec.json.decode(data, type=NetDiffReport)
