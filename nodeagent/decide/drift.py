"""What others changed of ours, told apart from what we have not done yet.

A part of the state that was once read back as wanted, is still wanted alike and now differs, was changed by
somebody else. It is repaired; what needs it again and again is repaired at most once a minute, so that two
agents never chase each other.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Hashable, Iterable

import msgspec

from nodeagent.traffic_memory import DriftMemory

WINDOW_SECONDS = 900.0
CONTESTED_REPAIRS = 3
"""Repairs of one part within the window that make it contested."""
PAUSE_SECONDS = 60.0
"""Least time between two repairs of a contested part."""
Part = tuple[str, str, bool]
"""Name, digest of what is wanted, read back equal."""


def fold(
    memory: DriftMemory, parts: Iterable[Part], read_at_seconds: float, now_seconds: float, *,
    unread: tuple[str, ...] = (),
) -> tuple[DriftMemory, frozenset[str]]:
    """Memory after this reading, and the contested parts whose repair must wait.

    Both times are CLOCK_MONOTONIC seconds. `unread`: beginnings of the names of parts that were not read.
    """
    settled = {name: digest for name, digest in memory.settled.items() if unread and name.startswith(unread)}
    drifted: list[str] = []
    for name, digest, equal in parts:
        if equal or memory.settled.get(name) == digest:
            settled[name] = digest
        if not equal and name in settled:
            drifted.append(name)
    repairs = _recent(memory, now_seconds)
    waiting = {part for part in drifted if _must_wait(repairs.get(part, ()), now_seconds)}
    for part in drifted:
        if part not in waiting:
            latest = (*repairs.get(part, ()), now_seconds)
            repairs[part] = latest[-CONTESTED_REPAIRS:]
    return msgspec.structs.replace(
        memory, settled=settled, open=tuple(drifted), repairs=repairs,
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


@functools.lru_cache(maxsize=8192)
def noun_digest(noun: Hashable) -> str:
    """Of one thing as it is wanted; remembered, because nearly all are those of the cycle before."""
    return digest(repr(noun))


def digest(*texts: str) -> str:
    """16 hexadecimal digits: enough to tell two wishes apart."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _recent(memory: DriftMemory, now_seconds: float) -> dict[str, tuple[float, ...]]:
    recent = {
        part: tuple(at for at in times if now_seconds - at < WINDOW_SECONDS)
        for part, times in memory.repairs.items()
    }
    return {part: times for part, times in recent.items() if times}


def _must_wait(times: tuple[float, ...], now_seconds: float) -> bool:
    return len(times) >= CONTESTED_REPAIRS and now_seconds - times[-1] < PAUSE_SECONDS
