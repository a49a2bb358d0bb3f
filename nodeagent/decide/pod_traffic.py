"""Bytes per pod, namespace and node from kernel counters that start anew at every rewrite.

A sum grows by what a counter gained since it was last seen; a counter that fell began anew, and its whole
value is gain. An entry is counted for the pod named in it, only while that pod holds the address, so a
reused address inherits nothing. Packets are not counted: the kernel's are super-packets. A cluster
number is what the veth carried minus internet bytes, null without a veth, never negative, never falling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from nodeagent.decide.mark_claims import uid_of
from nodeagent.decide.marks import NODE_TRAFFIC
from nodeagent.decide.namespaces import counted_as
from nodeagent.model import Now
from nodeagent.signals import Reading, read_as
from nodeagent.traffic import FAMILIES, LinkState, MarkReading
from nodeagent.traffic_memory import (
    Claim,
    LinkCount,
    MarkMemory,
    PodCount,
    Tally,
    TrafficMemory,
    Window,
)

MAX_RETIRED = 256
"""Where bytes of namespaces beyond the first thousand of a boot go."""
SKEW_SECONDS = 1.0
"""Links read this much later than the sets still belong to the same look."""
FRESH_SECONDS = 150.0
"""A pod first seen while the last look is younger than this is known since it began."""
WINDOW_SECONDS = 30.0
"""Least length of a window that compares uplinks with our counters."""
TRAFFIC = ("internet-out", "internet-in", "cluster-out", "cluster-in")
_T = TypeVar("_T")


class NodeTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The node's totals over both families, in bytes of this boot."""

    total: Tally
    host_internet_out_bytes: int
    """Total minus the pods': the host's own traffic and that of pods without an entry."""
    host_internet_in_bytes: int


class _Fold:
    """One fold in progress: the only place here where anything is changed."""

    def __init__(self, memory: TrafficMemory) -> None:
        self.seen = dict(memory.seen_bytes)
        self.pods = dict(memory.pods)
        self.namespaces = dict(memory.namespaces)
        self.totals = dict(memory.totals_bytes)
        self.touched: set[str] = set()
        self.window = memory.open_window

    def gain(self, key: str, value_bytes: int, *, first_counts: bool = True) -> int:
        """Bytes that the counter gained since it was last seen, and remember its value."""
        before = self.seen.get(key, None if not first_counts else 0)
        self.seen[key] = value_bytes
        self.touched.add(key)
        if before is None:
            return 0
        return value_bytes - before if value_bytes >= before else value_bytes

    def add(self, uid: str, field: str, gained: int) -> None:
        """Add to one column of a pod and of its namespace."""
        count = self.pods[uid]
        name = count.namespace
        if not gained and getattr(count.tally, field) is not None and name in self.namespaces:
            return
        self.pods[uid] = msgspec.structs.replace(count, tally=_plus(count.tally, field, gained))
        name = counted_as(name, self.namespaces)
        self.namespaces[name] = _plus(self.namespaces.get(name, Tally()), field, gained)

    def link(self, uid: str, **gained: int) -> None:
        """Add to the veth sums of a pod, where it has one."""
        count = self.pods[uid]
        if count.link is not None and any(gained.values()):
            sums = {name: getattr(count.link, name) + value for name, value in gained.items()}
            self.pods[uid] = msgspec.structs.replace(count, link=msgspec.structs.replace(count.link, **sums))


def fold(
    memory: TrafficMemory, claims: MarkMemory, now: Now, *, marks: Reading | None, links: Reading | None
) -> TrafficMemory:
    """Take in new readings of `net.marks` and `net.links`; others change nothing.

    `claims` must be as before this cycle's pod list: what a plan of an earlier cycle may have deleted
    is not counted any more, so that no sum shown can be higher than the one saved.
    """
    if memory.boot_id != now.at.boot_id:
        memory = TrafficMemory(boot_id=now.at.boot_id)
    read = _good(marks, MarkReading, memory.marks_read_seconds)
    if read is not None and marks is not None:
        memory = _fold_marks(memory, claims, read, marks.read_at_seconds)
    state = _good(links, LinkState, memory.links_read_seconds)
    marks_seconds = memory.marks_read_seconds
    if state is None or links is None or marks_seconds is None:
        return memory
    if links.read_at_seconds > marks_seconds + SKEW_SECONDS:
        return memory
    memory = _fold_links(memory, claims, state, links.read_at_seconds)
    return _turn_window(memory, marks_seconds, counting=marks is not None and _is_counting(marks.value))


def _good(reading: Reading | None, kind: type[_T], last_seconds: float | None) -> _T | None:
    """The value of a reading that was not taken in before."""
    if reading is None or (last_seconds is not None and reading.read_at_seconds <= last_seconds):
        return None
    return read_as(reading, kind)


def _fold_marks(
    memory: TrafficMemory, claims: MarkMemory, reading: MarkReading, read_at_seconds: float
) -> TrafficMemory:
    work = _Fold(memory)
    last_seconds = memory.listed_seconds
    whole = last_seconds is not None and read_at_seconds - last_seconds <= FRESH_SECONDS
    hosts = {uid: c for uid, c in claims.host_pods.items() if uid in reading.host_pods or uid in work.pods}
    retired = _begin_and_retire(work, memory.retired, claims, hosts, whole=whole)
    held_by = {
        entry.address: uid_of(entry.comment)
        for state in reading.states for entry in state.pods
    }  # fmt: skip
    for address, uid in held_by.items():
        claim = claims.claims.get(address)
        columns = (("out", "internet_out_bytes", reading.out), ("in", "internet_in_bytes", reading.received))
        for side, field, counters in columns:
            if address not in counters:
                continue
            key = f"{side} {address} {uid}"
            if claim is None or claim.uid != uid:
                work.touched.add(key)
                continue
            gained = work.gain(key, counters[address].bytes)
            work.add(uid, field, gained)
            work.link(uid, **{field: gained})
    for uid in reading.host_pods.keys() & hosts.keys():
        work.add(uid, "internet_out_bytes", work.gain(f"out host {uid}", reading.host_pods[uid].bytes))
    counted = _fold_totals(work, reading)
    _add_to_window(work, counted)
    return _result(
        work, memory, retired=retired, marks_read_seconds=read_at_seconds,
        listed_seconds=read_at_seconds if claims.listed else last_seconds,
    )


def _begin_and_retire(
    work: _Fold, retired: Mapping[str, PodCount], claims: MarkMemory, hosts: Mapping[str, Claim], *,
    whole: bool,
) -> dict[str, PodCount]:
    """Start the sums of new pods, and put those of gone pods away; returns the retired ones.

    `hosts`: hostNetwork pods that a rule counts; of the others nothing is known, which is not zero.
    """
    by_uid = {claim.uid: claim for claim in claims.claims.values()}
    kept = dict(retired)
    for uid, claim in {**by_uid, **hosts}.items():
        if uid not in work.pods:
            work.pods[uid] = _begin(kept, uid, claim, whole=whole, in_known=uid in by_uid)
    for uid in sorted(work.pods.keys() - by_uid.keys() - hosts.keys()):
        kept[uid] = work.pods.pop(uid)
    return dict(list(kept.items())[-MAX_RETIRED:])


def _begin(
    retired: dict[str, PodCount], uid: str, claim: Claim, *, whole: bool, in_known: bool
) -> PodCount:
    """Sums of a pod that has an entry from now on; one that had one before goes on from there."""
    if uid in retired:
        return msgspec.structs.replace(retired.pop(uid), whole=False)
    tally = Tally() if in_known else Tally(internet_in_bytes=None)
    return PodCount(namespace=claim.namespace, name=claim.name, tally=tally, whole=whole)


def _fold_totals(work: _Fold, reading: MarkReading) -> dict[str, int]:
    """Add to the node totals; returns the bytes gained by direction over all our node rules."""
    counted = {"out": 0, "in": 0}
    for key, counter in reading.totals.items():
        gained = work.gain(f"total {key}", counter.bytes)
        work.totals[key] = work.totals.get(key, 0) + gained
        if key.partition(" ")[2].startswith(NODE_TRAFFIC):
            counted[key.rpartition("-")[2]] += gained
    return counted


def _fold_links(
    memory: TrafficMemory, claims: MarkMemory, links: LinkState, read_at_seconds: float
) -> TrafficMemory:
    work = _Fold(memory)
    devices = {
        (claims.claims[link.address].uid, link.name): link
        for link in links.pod_links if link.address in claims.claims
    }  # fmt: skip
    for (uid, name), link in devices.items():
        count = work.pods.get(uid)
        if count is None:
            continue
        if count.link is None:
            work.pods[uid] = msgspec.structs.replace(count, link=_first_link(count))
        counts = count.whole
        work.link(
            uid,
            out_bytes=work.gain(f"veth-out {name} {uid}", link.rx_bytes, first_counts=counts),
            in_bytes=work.gain(f"veth-in {name} {uid}", link.tx_bytes, first_counts=counts),
        )
    for uid in {uid for uid, _ in devices}:
        if uid in work.pods:
            _raise_cluster(work, uid)
    uplinks = {"out": 0, "in": 0}
    for uplink in links.uplinks:
        for side, value in (("out", uplink.tx_bytes), ("in", uplink.rx_bytes)):
            uplinks[side] += work.gain(f"uplink-{side} {uplink.name}", value, first_counts=False)
    if work.window is not None:
        work.window = msgspec.structs.replace(
            work.window, uplink_out_bytes=work.window.uplink_out_bytes + uplinks["out"],
            uplink_in_bytes=work.window.uplink_in_bytes + uplinks["in"],
        )
    return _result(work, memory, links_read_seconds=read_at_seconds)


def _first_link(count: PodCount) -> LinkCount:
    """Veth sums of a pod whose veth is seen first: over the pod's life, or from now on."""
    if not count.whole:
        return LinkCount()
    return LinkCount(
        internet_out_bytes=count.tally.internet_out_bytes,
        internet_in_bytes=count.tally.internet_in_bytes or 0,
    )


def _raise_cluster(work: _Fold, uid: str) -> None:
    """Lift the cluster columns to what the veth carried minus internet bytes; they never fall."""
    count = work.pods[uid]
    if count.link is None:
        return
    for field, carried in (
        ("cluster_out_bytes", count.link.out_bytes - count.link.internet_out_bytes),
        ("cluster_in_bytes", count.link.in_bytes - count.link.internet_in_bytes),
    ):
        before = getattr(count.tally, field)
        work.add(uid, field, max(0, carried - (before or 0)))


def _plus(tally: Tally, field: str, gained: int) -> Tally:
    return msgspec.structs.replace(tally, **{field: (getattr(tally, field) or 0) + gained})


def _is_counting(value: object) -> bool:
    """True when the rules that count the node's traffic were read."""
    return isinstance(value, MarkReading) and any(
        key.endswith(f" {NODE_TRAFFIC}internet-out") for key in value.totals
    )


def _add_to_window(work: _Fold, counted: Mapping[str, int]) -> None:
    if work.window is not None:
        work.window = msgspec.structs.replace(
            work.window, counted_out_bytes=work.window.counted_out_bytes + counted["out"],
            counted_in_bytes=work.window.counted_in_bytes + counted["in"],
        )


def _turn_window(memory: TrafficMemory, now_seconds: float, *, counting: bool) -> TrafficMemory:
    """End the open window once it is long enough and begin the next; without rules none is open."""
    window = memory.open_window
    if window is not None and counting and now_seconds - window.began_seconds < WINDOW_SECONDS:
        return memory
    ended = memory.window
    if window is not None and counting:
        ended = msgspec.structs.replace(window, ended_seconds=now_seconds)
    begun = Window(began_seconds=now_seconds, ended_seconds=now_seconds) if counting else None
    return msgspec.structs.replace(memory, window=ended, open_window=begun)


def _result(work: _Fold, memory: TrafficMemory, **more: object) -> TrafficMemory:
    """Memory after a fold; counters of pods that are gone and no longer in the kernel are forgotten."""
    alive = {key for key in work.seen if key.rpartition(" ")[2] in work.pods}
    shared = {key for key in work.seen if key.startswith(("total ", "uplink-"))}
    kept = alive | shared | work.touched
    return msgspec.structs.replace(
        memory, seen_bytes={key: value for key, value in work.seen.items() if key in kept},
        pods=work.pods, namespaces=work.namespaces, totals_bytes=work.totals, open_window=work.window,
        **more,
    )


def node_traffic(memory: TrafficMemory) -> NodeTraffic:
    """Node totals over both families, and the host's share of the internet bytes."""
    total = {
        f"{traffic.replace('-', '_')}_bytes": sum(
            memory.totals_bytes.get(f"{family} {NODE_TRAFFIC}{traffic}", 0) for family in FAMILIES
        )
        for traffic in TRAFFIC
    }
    out = sum(tally.internet_out_bytes for tally in memory.namespaces.values())
    received = sum(tally.internet_in_bytes or 0 for tally in memory.namespaces.values())
    return NodeTraffic(
        total=Tally(**total),
        host_internet_out_bytes=max(0, total["internet_out_bytes"] - out),
        host_internet_in_bytes=max(0, total["internet_in_bytes"] - received),
    )
