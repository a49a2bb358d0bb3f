"""Wanted against read-back state: the ops that make the kernel hold what is wanted, and nothing else of ours.

Only what bears our prefix is ever named in an op. A family that was not read whole gets no op. Every op
is idempotent, and a plan that was cut off anywhere leaves a state from which the next plan ends equal.

| kind             | target   | arguments (`family` always)   | does                                       |
|------------------|----------|-------------------------------|--------------------------------------------|
| `set.create`     | set      | kind counters comment skbinfo | creates; an equal set is success           |
| `set.cluster`    | set      | add delete                    | adds prefixes, then deletes                |
| `entries.delete` | family   | addresses                     | from both pod sets; absent is success      |
| `entries.put`    | family   | mark_mask entries             | both pod sets, all attributes, counters    |
|                  |          |                               | kept; an entry that is `fresh` is deleted  |
|                  |          |                               | first, with its counters                   |
| `chain.put`      | chain    | rules requires                | one restore of this chain; refused while a |
|                  |          |                               | set has fewer members than `requires` says |
| `host_pods.put`  | chain    | add delete                    | one restore for each line: -D, then -A     |
| `jumps.put`      | built-in | rules                         | one commit: our jumps out, these in, first |
| `chain.delete`   | chain    |                               | flushes and deletes; absent is success     |
| `set.destroy`    | set      |                               | absent is success                          |

Order: sets, entries, chains, jumps; then what goes: chains, sets. A set with a wrong header is torn down
with all that refers to it before the plan builds up anew. Bytes are saved in Memory before a plan runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from nodeagent.decide.mark_claims import uid_of
from nodeagent.decide.marks import HOST_PODS, MarkWish, set_names
from nodeagent.model import Op
from nodeagent.traffic import FAMILIES, MarkReading, MarkSet, MarkState, PodEntry, Rule

EXECUTOR = "kernel"
BATCH_ENTRIES = 64
"""Entries in one op, so that one op stays short."""
DEADLINE_SECONDS = 10.0
"""Longer than the wait for the xtables lock."""
NOTHING: frozenset[str] = frozenset()


def plan(
    wish: MarkWish, reading: MarkReading, *, held_back: frozenset[str] = NOTHING
) -> tuple[Op, ...]:
    """Ops in order; empty when the kernel holds what is wanted. `held_back`: parts to leave alone for now."""
    read = {state.family: state for state in reading.states}
    ops: list[tuple[int, Op]] = []
    for wanted in wish.states:
        if wanted.family in read:
            ops += _family_ops(wanted, read[wanted.family], wish.mark_mask, held_back)
    return tuple(op for _, op in sorted(ops, key=lambda pair: pair[0]))


def cleanup(reading: MarkReading) -> tuple[Op, ...]:
    """Ops that take away everything of ours in the families that were read."""
    nothing = MarkWish(states=tuple(MarkState(family=family) for family in FAMILIES), mark_mask=0)
    return plan(nothing, reading)


def set_part(family: int, name: str) -> str:
    """Name of a set as a part of the state, for `held_back` and for drift."""
    return f"{family} set {name}"


def chain_part(family: int, name: str) -> str:
    """Name of a chain's rules as a part of the state."""
    return f"{family} chain {name}"


def jumps_part(family: int, name: str) -> str:
    """Name of the jumps in a built-in chain as a part of the state."""
    return f"{family} jumps {name}"


def rules_of(rules: Iterable[Rule], chain: str) -> tuple[str, ...]:
    """Arguments of the rules in one chain, in order."""
    return tuple(rule.arguments for rule in rules if rule.chain == chain)


def same_rules(chain: str, wanted: tuple[str, ...], actual: tuple[str, ...]) -> bool:
    """True when two bodies of a chain do the same; hostNetwork rules have no order."""
    if chain == HOST_PODS:
        return Counter(wanted) == Counter(actual)
    return wanted == actual


def _family_ops(
    wanted: MarkState, actual: MarkState, mark_mask: int, held_back: frozenset[str]
) -> Iterator[tuple[int, Op]]:
    """(phase, op) of one family; ops of a phase keep their order."""
    wrong = _wrong_sets(wanted, actual)
    if wrong:
        for op in _teardown(actual, wrong):
            yield 0, op
        actual, held_back = _after_teardown(actual, wrong), NOTHING
    for op in _set_ops(wanted, actual):
        yield 1, op
    for op in _entry_ops(wanted, actual, mark_mask):
        yield 2, op
    for op in _chain_ops(wanted, actual, held_back):
        yield 3, op
    for op in _jump_ops(wanted, actual, held_back):
        yield 4, op
    for op in _sweep_ops(wanted, actual):
        yield 5, op


def _op(kind: str, target: str, family: int, /, **arguments: Any) -> Op:
    return Op(
        kind=kind, target=target, deadline_seconds=DEADLINE_SECONDS,
        arguments={"family": family, **arguments},
    )


def _wrong_sets(wanted: MarkState, actual: MarkState) -> list[MarkSet]:
    """Sets that stand under a wanted name with another header."""
    headers = {one.name: one for one in wanted.sets}
    return [one for one in actual.sets if one.name in headers and one != headers[one.name]]


def _teardown(actual: MarkState, wrong: list[MarkSet]) -> Iterator[Op]:
    """Take the jumps, all chains (any may refer to the set), and the wrong sets away."""
    for chain in sorted({jump.chain for jump in actual.jumps}):
        yield _op("jumps.put", chain, actual.family, rules=[])
    yield from _delete_chains(actual.family, actual.chains)
    for one in wrong:
        yield _op("set.destroy", one.name, actual.family)


def _after_teardown(actual: MarkState, wrong: list[MarkSet]) -> MarkState:
    gone = {one.name for one in wrong}
    cluster, *pod_sets = set_names(actual.family)
    half = [msgspec.structs.replace(entry, minor=0) for entry in actual.pods]
    pods = () if gone >= set(pod_sets) else tuple(half) if gone & set(pod_sets) else actual.pods
    return msgspec.structs.replace(
        actual, chains=(), rules=(), jumps=(), displaced=(), pods=pods,
        cluster=() if cluster in gone else actual.cluster,
        sets=tuple(one for one in actual.sets if one.name not in gone),
    )


def _set_ops(wanted: MarkState, actual: MarkState) -> Iterator[Op]:
    there = {one.name for one in actual.sets}
    for one in wanted.sets:
        if one.name not in there:
            yield _op(
                "set.create", one.name, wanted.family, kind=one.kind, counters=one.counters,
                comment=one.comment, skbinfo=one.skbinfo,
            )
    add = [prefix for prefix in wanted.cluster if prefix not in set(actual.cluster)]
    delete = [prefix for prefix in actual.cluster if prefix not in set(wanted.cluster)]
    if wanted.sets and (add or delete):
        yield _op("set.cluster", set_names(wanted.family)[0], wanted.family, add=add, delete=delete)


def _entry_ops(wanted: MarkState, actual: MarkState, mark_mask: int) -> Iterator[Op]:
    """Entries that go, then entries that come or change."""
    family = wanted.family
    if not wanted.sets:
        return
    wished = {entry.address: entry for entry in wanted.pods}
    there = {entry.address: entry for entry in actual.pods}
    for some in _batches([address for address in there if address not in wished]):
        yield _op("entries.delete", str(family), family, addresses=some)
    puts = [
        _put(entry, there.get(address)) for address, entry in wished.items() if there.get(address) != entry
    ]
    for some in _batches(puts):
        yield _op("entries.put", str(family), family, mark_mask=mark_mask, entries=some)


def _put(entry: PodEntry, actual: PodEntry | None) -> dict[str, Any]:
    """Arguments of one entry; another pod's is deleted first, with its counters."""
    other = actual is not None and uid_of(actual.comment) != uid_of(entry.comment)
    return {
        "address": entry.address, "minor": entry.minor, "mark": entry.mark, "comment": entry.comment,
        "fresh": other,
    }


def _batches(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), BATCH_ENTRIES):
        yield items[start : start + BATCH_ENTRIES]


def _chain_ops(wanted: MarkState, actual: MarkState, held_back: frozenset[str]) -> Iterator[Op]:
    for chain in wanted.chains:
        rules, there = rules_of(wanted.rules, chain), rules_of(actual.rules, chain)
        exists = chain in actual.chains
        if (exists and same_rules(chain, rules, there)) or chain_part(wanted.family, chain) in held_back:
            continue
        if chain != HOST_PODS:
            yield _op(
                "chain.put", chain, wanted.family, rules=list(rules), requires=_requires(wanted, rules)
            )
            continue
        if not exists:
            yield _op("chain.put", chain, wanted.family, rules=[], requires={})
        add, delete = Counter(rules) - Counter(there), Counter(there) - Counter(rules)
        if add or delete:
            yield _op(
                "host_pods.put", chain, wanted.family, add=list(add.elements()),
                delete=list(delete.elements()),
            )


def _requires(wanted: MarkState, rules: tuple[str, ...]) -> dict[str, int]:
    """Least members of each set that the rules name: the cluster set must be complete."""
    cluster = set_names(wanted.family)[0]
    return {
        one.name: len(wanted.cluster) if one.name == cluster else 0
        for one in wanted.sets
        if any(f" {one.name} " in rule for rule in rules)
    }


def _jump_ops(wanted: MarkState, actual: MarkState, held_back: frozenset[str]) -> Iterator[Op]:
    for chain in sorted({jump.chain for jump in (*wanted.jumps, *actual.jumps)}):
        rules = rules_of(wanted.jumps, chain)
        equal = rules == rules_of(actual.jumps, chain) and chain not in actual.displaced
        if not equal and jumps_part(wanted.family, chain) not in held_back:
            yield _op("jumps.put", chain, wanted.family, rules=list(rules))


def _sweep_ops(wanted: MarkState, actual: MarkState) -> Iterator[Op]:
    yield from _delete_chains(wanted.family, (c for c in actual.chains if c not in wanted.chains))
    names = {one.name for one in wanted.sets}
    for one in actual.sets:
        if one.name not in names:
            yield _op("set.destroy", one.name, wanted.family)


def _delete_chains(family: int, chains: Iterable[str]) -> Iterator[Op]:
    """Empty all before deleting any: a chain that another jumps to cannot be deleted."""
    gone = tuple(chains)
    for chain in gone:
        yield _op("chain.put", chain, family, rules=[], requires={})
    for chain in gone:
        yield _op("chain.delete", chain, family)
