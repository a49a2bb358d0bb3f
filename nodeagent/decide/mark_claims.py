"""Which pod holds which address, and which class minor a pod has.

Minors are stable: Memory knows them, and after a loss of Memory the kernel's entries do, so that a restart
plans nothing. A minor let go is not given to another pod for 60 s. An address has one holder: never does
a pod inherit what its predecessor on that address had. Namespaces take theirs from the same numbers, from the
other end, so that a loss of Memory seldom sets the two against each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from nodeagent.decide import cluster_set
from nodeagent.model import Now
from nodeagent.traffic import (
    DEFAULT_MINOR,
    FIRST_MINOR,
    HTB_MAJOR,
    LAST_MINOR,
    MarkReading,
    Pod,
    PodList,
    PodPhase,
    class_id,
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


class Classed(Struct, frozen=True, kw_only=True):
    """What others than pods with an address need of the minors."""

    hosts: frozenset[str] = frozenset()
    """Uids of hostNetwork pods that are to have a class."""
    taken: frozenset[int] = frozenset()
    """Minors of namespaces."""


NOBODY = Classed()


def update(
    memory: MarkMemory, pods: PodList, reading: MarkReading | None, now: Now, *,
    classed: Classed = NOBODY, kernel_first: bool = False,
) -> MarkMemory:
    """Memory with the claims of this list; items that were skipped lose nothing they had before.

    `kernel_first`: what the kernel holds outranks Memory, because it was not read before.
    """
    holders, shared = _holders(pods, frozenset(memory.own_addresses))
    if pods.skipped:
        listed = {pod.uid for pod in pods.pods}
        kept = {a: _as_pod(c) for a, c in memory.claims.items() if c.uid not in listed}
        holders = {**kept, **holders}
    live_hosts = {pod.uid for pod in pods.pods if pod.host_network and not pod.finished}
    uids = {pod.uid for pod in holders.values()} | (live_hosts & classed.hosts)
    minors, released = _minors(memory, uids, reading, now, classed.taken, kernel_first=kernel_first)
    claims = {address: _claim(holders[address], minors) for address in sorted(holders)}
    host = {
        pod.uid: _claim(pod, minors)
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
    memory: MarkMemory, uids: set[str], reading: MarkReading | None, now: Now, reserved: frozenset[int], *,
    kernel_first: bool,
) -> tuple[dict[str, int], dict[int, float]]:
    """A minor for each uid, and the minors at rest."""
    now_seconds = now.at.monotonic_seconds
    known = {
        claim.uid: claim.minor
        for claim in memory.holders
        if claim.minor >= FIRST_MINOR
    }
    at_rest = {m: s for m, s in memory.resting_seconds.items() if now_seconds - s < REST_SECONDS}
    at_rest |= {m: now_seconds for uid, m in known.items() if uid not in uids}
    minors: dict[str, int] = {}
    held = [(uid, minor) for uid, minor in _in_kernel(reading) if minor not in reserved]
    for uid, minor in (*held, *known.items()) if kernel_first else (*known.items(), *held):
        if uid in uids and uid not in minors and minor not in minors.values():
            minors[uid] = minor
    given = set(minors.values())
    at_rest |= {minor: now_seconds for uid, minor in held if uid not in uids and minor not in given}
    free = _free(given | at_rest.keys() | reserved, range(FIRST_MINOR, LAST_MINOR + 1))
    for uid in sorted(uids - minors.keys()):
        minors[uid] = next(free, DEFAULT_MINOR)
    given = set(minors.values())
    return minors, {minor: s for minor, s in sorted(at_rest.items()) if minor not in given}


def _free(taken: set[int], order: Iterable[int]) -> Iterator[int]:
    return (minor for minor in order if minor not in taken)


def namespaces(
    memory: MarkMemory, known: Mapping[str, int], wanted: Iterable[str], held: Mapping[str, int], now: Now
) -> tuple[MarkMemory, dict[str, int]]:
    """Memory with the minors at rest, and a minor for each of the namespaces wanted, as far as there are.

    `known`: what they have; `held`: what the kernel holds for them, where Memory knows nothing.
    """
    now_seconds, names = now.at.monotonic_seconds, sorted(wanted)
    pods = {claim.minor for claim in memory.holders}
    minors = {name: known[name] for name in names if name in known}
    for name in names:
        if name not in minors and name in held and held[name] not in {*minors.values(), *pods}:
            minors[name] = held[name]
    resting = memory.resting_seconds | {m: now_seconds for n, m in known.items() if n not in minors}
    taken = {*pods, *resting, *minors.values()}
    free = _free(taken, range(LAST_MINOR, FIRST_MINOR - 1, -1))
    for name in names:
        if name not in minors and (minor := next(free, None)) is not None:
            minors[name] = minor
    kept = {m: s for m, s in sorted(resting.items()) if m not in minors.values()}
    return msgspec.structs.replace(memory, resting_seconds=kept), minors


def _in_kernel(reading: MarkReading | None) -> Iterator[tuple[str, int]]:
    """(uid, minor) of the entries, and of the rules for hostNetwork pods, that the kernel holds."""
    for state in reading.states if reading is not None else ():
        for entry in state.pods:
            if FIRST_MINOR <= entry.minor <= LAST_MINOR and uid_of(entry.comment):
                yield uid_of(entry.comment), entry.minor
        for rule in state.rules:
            found = _HOST_CLASS.search(rule.arguments)
            if found and FIRST_MINOR <= int(found["minor"], 16) <= LAST_MINOR:
                yield uid_of(found["comment"]), int(found["minor"], 16)


def carried(reading: MarkReading) -> frozenset[int]:
    """Minors that the kernel's entries and rules give to packets."""
    entries = (entry.minor for state in reading.states for entry in state.pods)
    return frozenset((*entries, *(minor for _, minor in _in_kernel(reading))))


def host_class(minor: int) -> str:
    """What a hostNetwork pod's rule does besides counting; "" where the pod has no class."""
    return f" -j CLASSIFY --set-class {class_id(minor)}" if minor >= FIRST_MINOR else ""


_HOST_CLASS = re.compile(
    rf'-m cgroup .*--comment "(?P<comment>[^"]*)" -j CLASSIFY --set-class {HTB_MAJOR:x}:(?P<minor>[0-9a-f]+)'
)
