"""What of a saved mangle table is ours, and where it stands among the others' rules."""

from __future__ import annotations

from itertools import takewhile

from msgspec import Struct

from nodeagent.drivers.iptables.text import SavedRule, SavedTable, canonical, comment_of, target_of
from nodeagent.traffic import CHAIN_PREFIX, Counter, MarkState, Rule

TABLE = "mangle"
EMPTY = SavedTable(name=TABLE, chains=(), rules=())


class ChainReading(Struct, frozen=True, kw_only=True):
    """Own chains, rules and jumps of one family as the kernel holds them."""

    state: MarkState
    """Chains by name; rules by chain, in order; jumps that stand first, by built-in chain. No sets."""
    counters: tuple[Counter, ...]
    """Of each rule of `state`, in the same order."""
    by_comment: dict[str, Counter] = {}
    """Comment with `traffic=` in it -> the sum of the counters of our rules that carry it."""
    stray: tuple[Rule, ...] = ()
    """Jumps into own chains that stand behind a foreign rule."""
    ahead: tuple[Rule, ...] = ()
    """Foreign rules that stand before one of our jumps."""


def is_own(chain: str) -> bool:
    """True for a chain of ours."""
    return chain.startswith(CHAIN_PREFIX)


def own_jumps(table: SavedTable) -> tuple[SavedRule, ...]:
    """Every rule outside own chains that leads into one."""
    return tuple(rule for rule in table.rules if not is_own(rule.chain) and is_own(target_of(rule.arguments)))


def reading_of(table: SavedTable, family: int) -> ChainReading:
    """The own part of a saved mangle table."""
    chains = tuple(sorted(chain for chain in table.chains if is_own(chain)))
    rules = [rule for chain in chains for rule in table.rules if rule.chain == chain]
    jumps, stray, ahead = list[Rule](), list[Rule](), list[Rule]()
    for chain in sorted({rule.chain for rule in own_jumps(table)}):
        whole = [rule for rule in table.rules if rule.chain == chain]
        first = [*takewhile(_leads_in, whole)]
        last = max(number for number, rule in enumerate(whole) if _leads_in(rule))
        jumps += map(_rule, first)
        stray += [_rule(rule) for rule in whole[len(first):] if _leads_in(rule)]
        ahead += [_rule(rule) for rule in whole[:last] if not _leads_in(rule)]
    return ChainReading(
        state=MarkState(family=family, chains=chains, rules=tuple(map(_rule, rules)), jumps=tuple(jumps)),
        counters=tuple(rule.counter for rule in rules),
        by_comment=_by_comment(rules),
        stray=tuple(stray),
        ahead=tuple(ahead),
    )


def _leads_in(rule: SavedRule) -> bool:
    return is_own(target_of(rule.arguments))


def _rule(rule: SavedRule) -> Rule:
    return Rule(chain=rule.chain, arguments=canonical(rule.arguments))


def _by_comment(rules: list[SavedRule]) -> dict[str, Counter]:
    sums: dict[str, Counter] = {}
    for rule in rules:
        comment = comment_of(rule.arguments)
        if "traffic=" in comment:
            before = sums.get(comment, Counter())
            sums[comment] = Counter(
                packets=before.packets + rule.counter.packets, bytes=before.bytes + rule.counter.bytes
            )
    return sums
