"""A pure model of what the kernel does with the ops on marks, as strict as the kernel itself.

It holds foreign state beside ours, counts bytes, and checks at every op that no rule of ours stands while
the cluster set is short of what the op said it needs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from nodeagent.decide.marks import CHAINS, HOST_PODS
from nodeagent.model import Op
from nodeagent.traffic import Counter, MarkReading, MarkSet, MarkState, PodEntry, Rule


class Refused(Exception):
    """The kernel said no."""


@dataclass
class Member:
    """One entry of a pod set."""

    minor: int
    mark: int
    comment: str
    bytes: int = 0


@dataclass
class Family:
    """Mangle table and sets of one family."""

    headers: dict[str, MarkSet] = field(default_factory=dict)
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    chains: dict[str, list[str]] = field(default_factory=dict)
    built_in: dict[str, list[str]] = field(default_factory=lambda: {
        "PREROUTING": [], "INPUT": ["-j KUBE-X"], "FORWARD": ["-i cali+ -j ACCEPT", "-j CNI"], "OUTPUT": [],
        "POSTROUTING": ["-j KUBE-POSTROUTING"],
    })  # fmt: skip
    foreign_sets: dict[str, list[str]] = field(default_factory=lambda: {"KUBE-CLUSTER-IP": ["10.96.0.1"]})


def _target(rule: str) -> str:
    words = rule.split()
    return words[words.index("-j") + 1] if "-j" in words else ""


def _own(rule: str) -> bool:
    return _target(rule).startswith("NODEAGENT-")


class Kernel:
    """Both families; `apply` carries out one op."""

    def __init__(self) -> None:
        self.families = {4: Family(), 6: Family()}
        self.writes = 0
        self.totals: dict[str, int] = {}

    def apply(self, op: Op) -> None:
        """Carry out one op or raise Refused; partial effects of a refused op stay, as in the kernel."""
        self.writes += 1
        arguments = dict(op.arguments)
        family = self.families[arguments.pop("family")]
        getattr(self, "_" + op.kind.replace(".", "_"))(family, op.target, **arguments)

    def _set_create(self, family: Family, name: str, **header: Any) -> None:
        wanted = MarkSet(name=name, **header)
        if family.headers.setdefault(name, wanted) != wanted:
            raise Refused(f"{name} exists with another header")
        family.members.setdefault(name, {})

    def _set_cluster(self, family: Family, name: str, add: list[str], delete: list[str]) -> None:
        members = self._members(family, name)
        members.update(dict.fromkeys(add))
        for prefix in delete:
            members.pop(prefix, None)

    def _members(self, family: Family, name: str) -> dict[str, Any]:
        if name not in family.headers:
            raise Refused(f"no set {name}")
        return family.members[name]

    def _entries_delete(self, family: Family, number: str, addresses: list[str]) -> None:
        for name in (f"nodeagent-out{number}", f"nodeagent-in{number}"):
            for address in addresses:
                self._members(family, name).pop(address, None)

    def _entries_put(
        self, family: Family, number: str, mark_mask: int, entries: list[dict[str, Any]]
    ) -> None:
        for name in (f"nodeagent-out{number}", f"nodeagent-in{number}"):
            members = self._members(family, name)
            for entry in entries:
                if entry["mark"] & ~mark_mask:
                    raise Refused("a mark outside the mask")
                if entry["fresh"]:
                    members.pop(entry["address"], None)
                kept = members[entry["address"]].bytes if entry["address"] in members else 0
                members[entry["address"]] = Member(entry["minor"], entry["mark"], entry["comment"], kept)

    def _chain_put(self, family: Family, name: str, rules: list[str], requires: dict[str, int]) -> None:
        for needed, least in requires.items():
            if len(self._members(family, needed)) < least:
                raise Refused(f"{needed} is not complete")
        for rule in rules:
            self._must_exist(family, rule)
        family.chains[name] = list(rules)

    def _must_exist(self, family: Family, rule: str) -> None:
        words = rule.split()
        for flag in ("--match-set", "--map-set"):
            if flag in words:
                self._members(family, words[words.index(flag) + 1])
        if _own(rule) and _target(rule) not in family.chains:
            raise Refused(f"no chain {_target(rule)}")

    def _host_pods_put(self, family: Family, name: str, add: list[str], delete: list[str]) -> None:
        if name not in family.chains:
            raise Refused(f"no chain {name}")
        for rule in (*delete, *add):
            if rule in family.chains[name]:
                family.chains[name].remove(rule)
        family.chains[name] += add

    def _jumps_put(self, family: Family, name: str, rules: list[str]) -> None:
        for rule in rules:
            self._must_exist(family, rule)
        family.built_in[name] = [*rules, *(r for r in family.built_in[name] if not _own(r))]

    def _chain_delete(self, family: Family, name: str) -> None:
        users = [*family.built_in.values(), *(r for n, r in family.chains.items() if n != name)]
        if any(_target(rule) == name for rules in users for rule in rules):
            raise Refused(f"{name} is in use")
        family.chains.pop(name, None)

    def _set_destroy(self, family: Family, name: str) -> None:
        if any(f" {name} " in f"{rule} " for rules in family.chains.values() for rule in rules):
            raise Refused(f"{name} is in use")
        family.headers.pop(name, None)
        family.members.pop(name, None)

    # ------------------------------------------------------------------ looking

    def read(self, *, users: tuple[str, ...] = (), families: tuple[int, ...] = (4, 6)) -> MarkReading:
        """What the agent would read back."""
        out: dict[str, Counter] = {}
        received: dict[str, Counter] = {}
        for number in families:
            members = self.families[number].members
            out |= {a: Counter(bytes=m.bytes) for a, m in members.get(f"nodeagent-out{number}", {}).items()}
            received |= {
                a: Counter(bytes=m.bytes) for a, m in members.get(f"nodeagent-in{number}", {}).items()
            }
        return MarkReading(
            backend="nft", states=tuple(self._state(number) for number in families), out=out,
            received=received, totals={key: Counter(bytes=value) for key, value in self.totals.items()},
            mark_users=users,
        )

    def _state(self, number: int) -> MarkState:
        family = self.families[number]
        jumps = [(chain, rule) for chain, rules in family.built_in.items() for rule in rules if _own(rule)]
        cluster = family.members.get(f"nodeagent-cluster{number}", {})
        return MarkState(
            family=number, chains=tuple(sorted(family.chains)),
            rules=tuple(Rule(chain=c, arguments=r) for c, rules in family.chains.items() for r in rules),
            jumps=tuple(Rule(chain=chain, arguments=rule) for chain, rule in jumps),
            cluster=tuple(sorted(cluster)), pods=self._pods(number),
            sets=tuple(sorted(family.headers.values())),
            displaced=tuple(c for c, rules in family.built_in.items() if _is_displaced(rules)),
        )

    def _pods(self, number: int) -> tuple[PodEntry, ...]:
        """As the sampler puts two sets together: halves and strangers differ from all that is wanted."""
        members = self.families[number].members
        out, back = members.get(f"nodeagent-out{number}", {}), members.get(f"nodeagent-in{number}", {})
        found = []
        for address in sorted(out.keys() | back.keys()):
            comments = {side[address].comment for side in (out, back) if address in side}
            whole = address in out and address in back and len(comments) == 1
            found.append(PodEntry(
                address=address, minor=out[address].minor if whole else 0,
                mark=out[address].mark if whole else 0, comment=comments.pop() if len(comments) == 1 else "",
            ))  # fmt: skip
        return tuple(found)

    def foreign(self) -> object:
        """Everything that is not ours."""
        return [
            ({c: [r for r in rules if not _own(r)] for c, rules in f.built_in.items()}, f.foreign_sets)
            for f in self.families.values()
        ]

    def copy(self) -> Kernel:
        """A kernel in the same state."""
        return copy.deepcopy(self)

    def is_clean(self) -> bool:
        """Nothing of ours is left."""
        jumps = [r for f in self.families.values() for rules in f.built_in.values() for r in rules if _own(r)]
        return not jumps and not any(f.chains or f.headers for f in self.families.values())

    def is_safe(self) -> bool:
        """No rule of ours sorts traffic by a cluster set that was not filled."""
        return all(
            f.members.get(f"nodeagent-cluster{number}")
            for number, f in self.families.items()
            for chain, rules in f.chains.items() if chain in CHAINS and chain != HOST_PODS and rules
        )

    def send(self, number: int, address: str, sent: int) -> None:
        """Bytes of a pod pass: counted in both of its entries, and in the node's totals."""
        for side, traffic in (("out", "internet-out"), ("in", "internet-in")):
            member = self.families[number].members.get(f"nodeagent-{side}{number}", {}).get(address)
            if member is not None:
                member.bytes += sent
            key = f"{number} iptables-exporter node traffic={traffic}"
            self.totals[key] = self.totals.get(key, 0) + sent

    def spoil(self, number: int, how: str) -> None:
        """What other software does to our state."""
        family = self.families[number]
        if how == "flush mangle":
            family.chains.clear()
            for name, rules in family.built_in.items():
                family.built_in[name] = [rule for rule in rules if not _own(rule)]
        elif how == "flush sets":
            for members in family.members.values():
                members.clear()
        elif how == "insert before":
            family.built_in["FORWARD"].insert(0, "-j OTHER")
        elif how == "wrong header" and f"nodeagent-out{number}" in family.headers:
            name = f"nodeagent-out{number}"
            family.headers[name] = _headless(family.headers[name])
            family.members[name].clear()
        elif how == "orphans":
            family.chains |= {"NODEAGENT-OLD": ["-j NODEAGENT-OLDER"], "NODEAGENT-OLDER": []}
            family.built_in["OUTPUT"].append("-j NODEAGENT-OLD")
            self._set_create(family, f"nodeagent-old{number}", kind="hash:ip")
        elif how == "reset counters":
            for name, members in family.members.items():
                if "cluster" not in name:
                    for member in members.values():
                        member.bytes = 0
            self.totals.clear()


SPOILS = ("flush mangle", "flush sets", "insert before", "wrong header", "orphans", "reset counters")


def _headless(header: MarkSet) -> MarkSet:
    return MarkSet(name=header.name, kind=header.kind, comment=header.comment)


def _is_displaced(rules: list[str]) -> bool:
    own = [_own(rule) for rule in rules]
    return own != sorted(own, reverse=True)
