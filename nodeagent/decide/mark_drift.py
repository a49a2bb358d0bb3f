"""What others changed of ours, told apart from what we have not done yet.

A part (a chain, the jumps of a built-in chain, a set, an entry) that was once read back as wanted, is
still wanted alike and now differs, was changed by somebody else. It is repaired; chains and jumps that
need it again and again are repaired at most once a minute, so that two agents never chase each other.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterator

import msgspec

from nodeagent.decide.mark_plan import chain_part, jumps_part, rules_of, same_rules, set_part
from nodeagent.decide.marks import HOST_PODS, MarkWish
from nodeagent.traffic import MarkReading, MarkState, PodEntry
from nodeagent.traffic_memory import DriftMemory

WINDOW_SECONDS = 900.0
CONTESTED_REPAIRS = 3
"""Repairs of one part within the window that make it contested."""
PAUSE_SECONDS = 60.0
"""Least time between two repairs of a contested part."""


def step(
    memory: DriftMemory, wish: MarkWish, reading: MarkReading, read_at_seconds: float, now_seconds: float
) -> tuple[DriftMemory, frozenset[str]]:
    """Memory after this reading, and the contested parts whose repair must wait.

    Both times are CLOCK_MONOTONIC seconds.
    """
    read = {state.family: state for state in reading.states}
    settled: dict[str, str] = {}
    drifted: list[str] = []
    unread = tuple(f"{w.family} " for w in wish.states if w.family not in read)
    for wanted in wish.states:
        for part, digest, equal in _parts(wanted, read[wanted.family]) if wanted.family in read else ():
            if equal or memory.settled.get(part) == digest:
                settled[part] = digest
            if not equal and part in settled:
                drifted.append(part)
    kept = {part: digest for part, digest in memory.settled.items() if part.startswith(unread)}
    repairs = _recent(memory, now_seconds)
    waiting = {part for part in drifted if _must_wait(repairs.get(part, ()), now_seconds)}
    for part in drifted:
        if part not in waiting:
            latest = (*repairs.get(part, ()), now_seconds)
            repairs[part] = latest[-CONTESTED_REPAIRS:]
    return msgspec.structs.replace(
        memory, settled={**(kept if unread else {}), **settled}, open=tuple(drifted), repairs=repairs,
        repaired_count=memory.repaired_count + len(drifted) - len(waiting),
        last_seconds=read_at_seconds if drifted else memory.last_seconds,
        last_parts=tuple(drifted[:8]) if drifted else memory.last_parts,
    ), frozenset(waiting)


def contested(memory: DriftMemory, now_seconds: float) -> tuple[str, ...]:
    """Parts that were repaired three times in 15 minutes."""
    recent = _recent(memory, now_seconds)
    return tuple(sorted(part for part, times in recent.items() if len(times) >= CONTESTED_REPAIRS))


def next_due_seconds(memory: DriftMemory, now_seconds: float) -> float | None:
    """CLOCK_MONOTONIC when the earliest repair that waits is due."""
    dues = [
        memory.repairs[part][-1] + PAUSE_SECONDS
        for part in memory.open
        if _must_wait(memory.repairs.get(part, ()), now_seconds)
    ]
    return min(dues, default=None)


def _recent(memory: DriftMemory, now_seconds: float) -> dict[str, tuple[float, ...]]:
    recent = {
        part: tuple(at for at in times if now_seconds - at < WINDOW_SECONDS)
        for part, times in memory.repairs.items()
    }
    return {part: times for part, times in recent.items() if times}


def _must_wait(times: tuple[float, ...], now_seconds: float) -> bool:
    return len(times) >= CONTESTED_REPAIRS and now_seconds - times[-1] < PAUSE_SECONDS


def _parts(wanted: MarkState, actual: MarkState) -> Iterator[tuple[str, str, bool]]:
    """(part, digest of what is wanted, read back equal) of one family."""
    family = wanted.family
    there = {one.name: one for one in actual.sets}
    for one in wanted.sets:
        yield set_part(family, one.name), _digest(repr(one)), there.get(one.name) == one
    cluster = set(wanted.cluster) == set(actual.cluster)
    yield f"{family} cluster prefixes", _digest(*wanted.cluster), cluster
    entries = {entry.address: entry for entry in actual.pods}
    for entry in wanted.pods:
        equal = entries.get(entry.address) == entry
        yield f"{family} entry {entry.address}", _entry_digest(entry), equal
    for chain in wanted.chains:
        rules, found = rules_of(wanted.rules, chain), rules_of(actual.rules, chain)
        equal = chain in actual.chains and same_rules(chain, rules, found)
        body = sorted(rules) if chain == HOST_PODS else rules
        yield chain_part(family, chain), _digest(*body), equal
    for chain in Counter(jump.chain for jump in wanted.jumps):
        rules = rules_of(wanted.jumps, chain)
        equal = rules == rules_of(actual.jumps, chain) and chain not in actual.displaced
        yield jumps_part(family, chain), _digest(*rules), equal


@functools.lru_cache(maxsize=8192)
def _entry_digest(entry: PodEntry) -> str:
    """Remembered: nearly all entries are those of the cycle before."""
    return _digest(repr(entry))


def _digest(*texts: str) -> str:
    """16 hexadecimal digits: enough to tell two wishes apart."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
