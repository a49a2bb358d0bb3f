"""The node's whole network state as text without counters: equal text means that nothing was left behind.

Empty tables whose policies all accept are left out: the kernel makes them when somebody looks.
"""

from __future__ import annotations

import re
from typing import Protocol

_SAVES = ("iptables-legacy-save", "iptables-nft-save", "ip6tables-legacy-save", "ip6tables-nft-save")
_MARK = "== "
_SCRIPT = """
show() { echo "== $*"; "$@" 2>/dev/null; }
for program in iptables ip6tables; do show $program-legacy-save; show $program-nft-save; done
show nft list ruleset
show ipset save
for device in $(ip -o link | sed 's/^[0-9]*: //; s/[:@].*//'); do
    show tc qdisc show dev $device
    show tc class show dev $device
    show tc filter show dev $device
    case $(tc qdisc show dev $device) in
        *clsact*|*ingress*) show tc filter show dev $device ingress; show tc filter show dev $device egress;;
    esac
done
show ip -d -o link
show ip -o -4 addr
for family in -4 -6; do show ip $family rule; show ip $family route; done
"""
_VOLATILE = re.compile(r" (packets|bytes|timeout) \d+")
_LINK_VOLATILE = re.compile(r"\blink-netnsid \d+|\bnumtxqueues .*|\bpromiscuity .*")


class Commands(Protocol):
    """What is asked of the world."""

    def command(self, namespace: str, *argv: str, stdin: str = "", check: bool = True) -> str:
        """Run in the namespace; stdout."""


def dump(world: Commands, namespace: str = "node") -> str:
    """iptables of both backends and families, native nft, ipset, tc, links, addresses, rules of routing."""
    whole = world.command(namespace, "sh", "-c", _SCRIPT)
    kept = []
    for section in whole.removeprefix(_MARK).split(f"\n{_MARK}"):
        title, _, text = section.partition("\n")
        text = _lasting(title, text).strip()
        if text:
            kept.append(f"{_MARK}{title}\n{text}\n")
    return "".join(kept)


def _lasting(title: str, text: str) -> str:
    if title in _SAVES:
        return "\n".join(tables(text))
    if title == "nft list ruleset":
        return _without_compat(text)
    if title == "ipset save":
        return "\n".join(sorted(_VOLATILE.sub("", line) for line in text.splitlines()))
    return _LINK_VOLATILE.sub("", text)


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
