"""What must be written so that the kernel holds what is wanted: only chains and jumps that differ.

Rewriting a chain zeroes its counters, so an equal chain is never written.
"""

from __future__ import annotations

from msgspec import Struct

from nodeagent.drivers.iptables.reading import TABLE, is_own, own_jumps
from nodeagent.drivers.iptables.text import SavedRule, SavedTable, canonical, target_of
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import CHAIN_PREFIX, MarkState, Rule

LINE_CHAINS = (CHAIN_PREFIX + "HOST-PODS",)
"""Chains whose rules are written one by one: one that the kernel refuses takes no other with it."""
BUILT_IN = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
CHAIN_NAME_BYTES = 28


class Change(Struct, frozen=True, kw_only=True):
    """One write; empty in every part when nothing differs."""

    fill: dict[str, tuple[str, ...]] = {}
    """Own chain -> all its rules: made when absent, else emptied first."""
    drop: tuple[str, ...] = ()
    """Own chains to delete."""
    unlink: tuple[SavedRule, ...] = ()
    """Jumps to delete, as saved."""
    link: tuple[Rule, ...] = ()
    """Jumps to put first in their built-in chain, in this order."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The body of an iptables-restore --noflush that does it; a chain is linked before it is filled."""
        made = [f":{chain} - [0:0]" for chain in (*self.fill, *self.drop)]
        unlinked = [f"-D {rule.chain} {rule.arguments}" for rule in self.unlink]
        linked = [f"-I {rule.chain} 1 {rule.arguments}" for rule in reversed(self.link)]
        filled = [f"-A {chain} {rule}".rstrip() for chain, rules in self.fill.items() for rule in rules]
        dropped = [f"-X {chain}" for chain in self.drop]
        return (*made, *unlinked, *linked, *filled, *dropped)


def difference(table: SavedTable, wanted: MarkState) -> Change:
    """From a saved mangle table to the chains, rules and jumps of `wanted`.

    Raises DriverError(invalid) when `wanted` names a chain that is not ours or has a rule of two lines.
    """
    expect_own(wanted)
    fill: dict[str, tuple[str, ...]] = {}
    for chain in wanted.chains:
        present = chain in table.chains
        rules = () if chain in LINE_CHAINS else _of_chain(wanted.rules, chain)
        if not present or (chain not in LINE_CHAINS and rules != _of_chain(table.rules, chain)):
            fill[chain] = rules
    drop = tuple(chain for chain in table.chains if is_own(chain) and chain not in wanted.chains)
    unlink, link = list[SavedRule](), list[Rule]()
    saved_jumps = own_jumps(table)
    built_in = dict.fromkeys([*(rule.chain for rule in saved_jumps), *(rule.chain for rule in wanted.jumps)])
    for chain in built_in:
        whole = _of_chain(table.rules, chain)
        first = _of_chain(wanted.jumps, chain)
        present_jumps = [rule for rule in saved_jumps if rule.chain == chain]
        if len(present_jumps) != len(first) or whole[: len(first)] != first:
            unlink += present_jumps
            link += [rule for rule in wanted.jumps if rule.chain == chain]
    return Change(fill=fill, drop=drop, unlink=tuple(unlink), link=tuple(link))


def line_changes(table: SavedTable, chain: str, rules: tuple[Rule, ...]) -> tuple[list[str], list[str]]:
    """Rules of `chain` to delete, as saved, and rules to append; doubles of a wanted rule go."""
    expect_own(MarkState(family=4, chains=(chain,), rules=rules))
    missing = [canonical(rule.arguments) for rule in rules]
    surplus = []
    for saved in table.rules:
        if saved.chain != chain:
            continue
        if (spelt := canonical(saved.arguments)) in missing:
            missing.remove(spelt)
        else:
            surplus.append(saved.arguments)
    return surplus, missing


def expect_own(wanted: MarkState) -> None:
    """DriverError(invalid) unless every chain is ours and every line is one."""
    problems = [
        *(f"the chain {chain!r} is not ours" for chain in wanted.chains
          if not is_own(chain) or len(chain.encode()) > CHAIN_NAME_BYTES or len(chain.split()) != 1),
        *(f"the rule is in {rule.chain!r}, which is not a wanted chain" for rule in wanted.rules
          if rule.chain not in wanted.chains),
        *(f"the jump {rule.arguments!r} of {rule.chain!r} leads into no wanted chain" for rule in wanted.jumps
          if rule.chain not in BUILT_IN or target_of(rule.arguments) not in wanted.chains),
        *(f"the rule {rule.arguments!r} is not one printable line" for rule in (*wanted.rules, *wanted.jumps)
          if not rule.arguments.isprintable()),
    ]  # fmt: skip
    if problems:
        raise DriverError(ErrorKind.INVALID, TABLE, "write rules", problems[0])


def _of_chain(rules: tuple[Rule, ...] | tuple[SavedRule, ...], chain: str) -> tuple[str, ...]:
    return tuple(canonical(rule.arguments) for rule in rules if rule.chain == chain)
