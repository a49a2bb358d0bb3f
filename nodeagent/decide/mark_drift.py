"""The parts of the marks: chains, jumps of built-in chains, sets, entries; each as wanted, or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nodeagent.decide import drift
from nodeagent.decide.drift import Part, digest, noun_digest
from nodeagent.decide.mark_plan import chain_part, jumps_part, rules_of, same_rules, set_part
from nodeagent.decide.marks import HOST_PODS, MarkWish
from nodeagent.traffic import MarkReading, MarkState
from nodeagent.traffic_memory import DriftMemory


def step(
    memory: DriftMemory, wish: MarkWish, reading: MarkReading, read_at_seconds: float, now_seconds: float
) -> tuple[DriftMemory, frozenset[str]]:
    """Memory after this reading, and the contested parts whose repair must wait.

    Both times are CLOCK_MONOTONIC seconds.
    """
    read = {state.family: state for state in reading.states}
    unread = tuple(f"{w.family} " for w in wish.states if w.family not in read)
    parts = [
        part
        for wanted in wish.states if wanted.family in read
        for part in _parts(wanted, read[wanted.family])
    ]  # fmt: skip
    return drift.fold(memory, parts, read_at_seconds, now_seconds, unread=unread)


def _parts(wanted: MarkState, actual: MarkState) -> Iterator[Part]:
    """The parts of one family."""
    family = wanted.family
    there = {one.name: one for one in actual.sets}
    for one in wanted.sets:
        yield set_part(family, one.name), noun_digest(one), there.get(one.name) == one
    cluster = set(wanted.cluster) == set(actual.cluster)
    yield f"{family} cluster prefixes", digest(*wanted.cluster), cluster
    entries = {entry.address: entry for entry in actual.pods}
    for entry in wanted.pods:
        equal = entries.get(entry.address) == entry
        yield f"{family} entry {entry.address}", noun_digest(entry), equal
    for chain in wanted.chains:
        rules, found = rules_of(wanted.rules, chain), rules_of(actual.rules, chain)
        equal = chain in actual.chains and same_rules(chain, rules, found)
        body = sorted(rules) if chain == HOST_PODS else rules
        yield chain_part(family, chain), digest(*body), equal
    for chain in Counter(jump.chain for jump in wanted.jumps):
        rules = rules_of(wanted.jumps, chain)
        equal = rules == rules_of(actual.jumps, chain) and chain not in actual.displaced
        yield jumps_part(family, chain), digest(*rules), equal
