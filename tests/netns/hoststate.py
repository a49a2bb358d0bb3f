"""The node's whole network state as text without counters: equal text means that nothing was left behind.

Empty tables whose policies all accept are left out: the kernel makes them when somebody looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

_SAVES = ("iptables-legacy-save", "iptables-nft-save", "ip6tables-legacy-save", "ip6tables-nft-save")
_VOLATILE = re.compile(r" (packets|bytes|timeout) \d+")
_LINK_VOLATILE = re.compile(r"\blink-netnsid \d+|\bnumtxqueues .*|\bpromiscuity .*")


class Commands(Protocol):
    """What is asked of the world."""

    def command(self, namespace: str, *argv: str, stdin: str = "", check: bool = True) -> str:
        """Run in the namespace; stdout."""


def dump(world: Commands, namespace: str = "node") -> str:
    """iptables of both backends and families, native nft, ipset, tc, links, addresses, rules of routing."""
    parts = [(save, "\n".join(tables(world.command(namespace, save)))) for save in _SAVES]
    parts.append(("nft", _without_compat(world.command(namespace, "nft", "list", "ruleset", check=False))))
    parts.append(("ipset", _sets(world.command(namespace, "ipset", "save"))))
    for what in (("qdisc",), ("class",), ("filter",)):
        parts += [(f"tc {what[0]} {device}", text) for device, text in _tc(world, namespace, what[0])]
    parts.append(("links", _LINK_VOLATILE.sub("", world.command(namespace, "ip", "-d", "-o", "link"))))
    for words in (("-o", "-4", "addr"), ("-4", "rule"), ("-6", "rule"), ("-4", "route"), ("-6", "route")):
        parts.append((" ".join(words), world.command(namespace, "ip", *words)))
    return "".join(f"== {title}\n{text.strip()}\n" for title, text in parts)


def tables(saved: str) -> list[str]:
    """Lines of iptables-save without comments and counters, and without tables that hold nothing."""
    kept: list[list[str]] = []
    table: list[str] = []
    for line in saved.splitlines():
        if line.startswith("#"):
            continue
        table.append(re.sub(r"^\[\d+:\d+\] | \[\d+:\d+\]$", "", line))
        if line == "COMMIT":
            if any(not re.match(r"\*|COMMIT$|:\S+ ACCEPT$", entry) for entry in table):
                kept.append(table)
            table = []
    return [entry for whole in sorted(kept) for entry in whole]  # their order says who was loaded first


def _without_compat(ruleset: str) -> str:
    """Tables of nft that are not iptables' own (those are compared as iptables)."""
    own = re.compile(r"table (ip|ip6) (raw|mangle|nat|filter|security) ")
    blocks = [block for block in re.split(r"(?m)^(?=table )", ruleset) if block.startswith("table")]
    return re.sub(r"packets \d+ bytes \d+", "", "".join(block for block in blocks if not own.match(block)))


def _sets(saved: str) -> str:
    return "\n".join(sorted(_VOLATILE.sub("", line) for line in saved.splitlines()))


def _tc(world: Commands, namespace: str, what: str) -> Iterator[tuple[str, str]]:
    for line in world.command(namespace, "ip", "-o", "link").splitlines():
        device = line.split(": ")[1].split("@")[0]
        parents = ((), ("ingress",), ("egress",)) if what == "filter" else ((),)
        for parent in parents:
            shown = world.command(namespace, "tc", what, "show", "dev", device, *parent, check=False)
            if shown.strip():
                yield f"{device} {' '.join(parent)}", shown
