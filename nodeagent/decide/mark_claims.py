"""Which pod holds which address, and which class minor a pod has.

Minors are stable: Memory knows them, and after a loss of Memory the kernel's entries do, so that a restart
plans nothing. A minor let go is not given to another pod for 60 s. An address has one holder: never does
a pod inherit what its predecessor on that address had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from nodeagent.decide import cluster_set
from nodeagent.model import Now
from nodeagent.traffic import (
    DEFAULT_MINOR,
    FIRST_MINOR,
    LAST_MINOR,
    MarkReading,
    Pod,
    PodList,
    PodPhase,
)
from nodeagent.traffic_memory import Claim, MarkMemory

REST_SECONDS = 60.0
"""How long a minor that was let go is given to nobody."""
MAX_COMMENT_BYTES = 255
MAX_SHARED = 16


def comment(claim: Claim) -> str:
    """`namespace/name/uid` in at most 255 bytes; the uid is never cut."""
    room_bytes = MAX_COMMENT_BYTES - len(claim.uid.encode()) - 1
    whole = f"{claim.namespace}/{claim.name}".encode()
    return f"{whole[:room_bytes].decode(errors='ignore')}/{claim.uid}"


def uid_of(text: str) -> str:
    """The uid in a comment of ours; "" when it is none."""
    head, slash, uid = text.rpartition("/")
    return uid if slash and "/" in head else ""


def update(
    memory: MarkMemory, pods: PodList, reading: MarkReading | None, now: Now
) -> MarkMemory:
    """Memory with the claims of this list; items that were skipped lose nothing they had before."""
    holders, shared = _holders(pods, frozenset(memory.own_addresses))
    if pods.skipped:
        listed = {pod.uid for pod in pods.pods}
        kept = {a: _as_pod(c) for a, c in memory.claims.items() if c.uid not in listed}
        holders = {**kept, **holders}
    minors, released = _minors(memory, {pod.uid for pod in holders.values()}, reading, now)
    claims = {address: _claim(holders[address], minors) for address in sorted(holders)}
    host = {
        pod.uid: _claim(pod, {})
        for pod in sorted(pods.pods, key=lambda pod: pod.uid)
        if pod.host_network and not pod.finished
    }
    return msgspec.structs.replace(
        memory, claims=claims, host_pods=host, resting_seconds=released, shared=shared
    )


def _holders(pods: PodList, own: frozenset[str]) -> tuple[dict[str, Pod], tuple[str, ...]]:
    """Address -> the pod that holds it, and a sentence for each address with several live pods."""
    holders: dict[str, Pod] = {}
    shared: list[str] = []
    for address, pod in _live_addresses(pods.pods, own):
        other = holders.get(address)
        if other is None or other.uid == pod.uid:
            holders[address] = pod
            continue
        winner, loser = sorted((other, pod), key=_rank, reverse=True)
        holders[address] = winner
        shared.append(
            f"{address} is claimed by {winner.namespace}/{winner.name}, which holds it, and by "
            f"{loser.namespace}/{loser.name}"
        )
    return holders, tuple(sorted(shared)[:MAX_SHARED])


def _live_addresses(pods: Iterable[Pod], own: frozenset[str]) -> Iterator[tuple[str, Pod]]:
    for pod in pods:
        if pod.host_network or pod.finished:
            continue
        for text in pod.addresses:
            address = cluster_set.usable(text)
            if address is not None and address not in own:
                yield address, pod


def _rank(pod: Pod) -> tuple[bool, bool, str, str]:
    """The newest running pod is the greatest."""
    return pod.phase is PodPhase.RUNNING, not pod.terminating, pod.created, pod.uid


def _as_pod(claim: Claim) -> Pod:
    return Pod(uid=claim.uid, namespace=claim.namespace, name=claim.name)


def _claim(pod: Pod, minors: Mapping[str, int]) -> Claim:
    return Claim(uid=pod.uid, namespace=pod.namespace, name=pod.name, minor=minors.get(pod.uid, 0))


def _minors(
    memory: MarkMemory, uids: set[str], reading: MarkReading | None, now: Now
) -> tuple[dict[str, int], dict[int, float]]:
    """A minor for each uid, and the minors at rest."""
    now_seconds = now.at.monotonic_seconds
    known = {claim.uid: claim.minor for claim in memory.claims.values()}
    at_rest = {m: s for m, s in memory.resting_seconds.items() if now_seconds - s < REST_SECONDS}
    at_rest |= {m: now_seconds for uid, m in known.items() if uid not in uids and m != DEFAULT_MINOR}
    minors = {uid: minor for uid, minor in known.items() if uid in uids and minor != DEFAULT_MINOR}
    for uid, minor in _in_kernel(reading):
        if uid in uids and uid not in minors and minor not in minors.values():
            minors[uid] = minor
        elif uid not in uids and minor not in minors.values():
            at_rest[minor] = now_seconds
    taken = set(minors.values()) | at_rest.keys()
    free = (minor for minor in range(FIRST_MINOR, LAST_MINOR + 1) if minor not in taken)
    for uid in sorted(uids - minors.keys()):
        minors[uid] = next(free, DEFAULT_MINOR)
    given = set(minors.values())
    return minors, {minor: s for minor, s in sorted(at_rest.items()) if minor not in given}


def _in_kernel(reading: MarkReading | None) -> Iterator[tuple[str, int]]:
    """(uid, minor) of the entries that the kernel holds."""
    for state in reading.states if reading is not None else ():
        for entry in state.pods:
            if FIRST_MINOR <= entry.minor <= LAST_MINOR and uid_of(entry.comment):
                yield uid_of(entry.comment), entry.minor
