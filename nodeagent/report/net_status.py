"""Marking and counting in a few facts: off, waiting or at work, and how much of what is wanted is there.

Pure; counts what decide remembers and what was read back, and judges nothing anew.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeVar

from nodeagent.decide import shaping
from nodeagent.decide.mark_claims import uid_of
from nodeagent.model import NODE
from nodeagent.report.given import ReportInput, read
from nodeagent.report.net_schema import NetworkStatus
from nodeagent.signals import Reading, SignalKey, Unread
from nodeagent.traffic import LinkState, MarkReading, PodList, PodSource

_T = TypeVar("_T")


def network_status(given: ReportInput) -> NetworkStatus:
    """The network's part of the status report; ages in seconds up to `given.moment`."""
    marks, memory = value(given, "net.marks", MarkReading), given.memory.marks
    source, pods = value(given, "pods.source", PodSource), value(given, "pods", PodList)
    unread = read(given, "net.marks")
    mode, reason = _mode(given)
    wanted = {claim.uid for claim in memory.claims.values()}
    return NetworkStatus(
        mode=mode, reason=reason, dry_run=given.settings.node.dry_run,
        backend=marks.backend if marks is not None else None,
        wanted_pods=len(wanted), marked_pods=len(wanted - _unmarked(given, marks)),
        host_network_pods=len(memory.host_pods),
        entries={str(state.family): len(state.pods) for state in marks.states} if marks else {},
        drifted_parts=len(memory.drift.open), repairs=memory.drift.repaired_count,
        outside_addresses=len(memory.uncovered),
        read_age_seconds=age_seconds(given, "net.marks") if marks is not None else None,
        unread=unread.reason if isinstance(unread, Unread) and mode != "off" else "",
        pods_source=source.source if source is not None else "",
        pods_age_seconds=age_seconds(given, "pods") if pods is not None else None,
        pods_error=source.error if source is not None else "",
        pods_skipped=pods.skipped if pods is not None else 0,
        **_shaping(given, mode),
    )


def _shaping(given: ReportInput, mode: str) -> dict[str, Any]:
    """Whether pods are shaped, and why not."""
    memory = given.memory.shape
    if mode == "off" or not memory.budget_bits_per_second:
        reason = "" if mode == "off" else "[network] internet_budget is empty"
        return {"shaping": "off", "shaping_reason": reason}
    found: dict[str, Any] = {
        "budget_bits_per_second": memory.budget_bits_per_second, "guarantees_ratio": memory.scaled_ratio,
        "blocked_uplinks": dict(memory.blocked), "bad_annotations": len(memory.bad),
    }
    if memory.missing:
        return {**found, "shaping": "count-only", "shaping_reason": memory.missing[0]}
    if not shaping.at_work(memory):
        unread = read(given, "net.shape")
        why = unread.reason if isinstance(unread, Unread) else "not read yet"
        waits = f"for tc: {why}" if memory.listed else "for a pod list"
        return {**found, "shaping": "waiting", "shaping_reason": waits}
    return {**found, "shaping": "shaping"}


def value(given: ReportInput, signal: str, kind: type[_T]) -> _T | None:
    """The value of a node-wide signal when it was read and is of this kind."""
    found = read(given, signal)
    return found if isinstance(found, kind) else None


def age_seconds(given: ReportInput, signal: str) -> float | None:
    """Age of the last attempt to read a node-wide signal."""
    reading: Reading | None = given.snapshot.readings.get(SignalKey(signal, NODE))
    if reading is None:
        return None
    return max(0.0, given.moment.at.monotonic_seconds - reading.read_at_seconds)


def _mode(given: ReportInput) -> tuple[str, str]:
    """The mode, and why it is off or what it waits for."""
    memory, source = given.memory.marks, value(given, "pods.source", PodSource)
    links = value(given, "net.links", LinkState)
    if not given.settings.network.enabled:
        return "off", "[network] enabled is false"
    if source is not None and source.source == "none":
        return "off", "no source of pods (see [pods])"
    if links is not None and not links.host_namespace:
        return "off", "the agent is not in the host's network namespace"
    if not memory.listed:
        why = source.error if source is not None and source.error else "none was read yet"
        return "waiting", f"for a pod list: {why}"
    if not memory.linked:
        return "waiting", "for an uplink: no device with a default route was seen"
    if not memory.scanned:
        unread = read(given, "net.marks")
        return "waiting", f"for the kernel: {unread.reason if isinstance(unread, Unread) else 'not read yet'}"
    marking = given.settings.network.mark_mask != 0 and not memory.class_only
    return ("class-and-mark" if marking else "class-only"), ""


def _unmarked(given: ReportInput, marks: MarkReading | None) -> set[str]:
    """Uids of pods of which an address has no entry of theirs."""
    held: dict[str, set[str]] = defaultdict(set)
    for state in marks.states if marks is not None else ():
        for entry in state.pods:
            held[entry.address].add(uid_of(entry.comment))
    claims = given.memory.marks.claims
    return {claim.uid for address, claim in claims.items() if claim.uid not in held[address]}
