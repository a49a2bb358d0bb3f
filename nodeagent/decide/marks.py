"""What the kernel should hold of ours: chains, jumps, sets and entries, per family.

Nothing is wanted before the first complete pod list, the first look at the uplinks and the first look at
the kernel of this process; afterwards what could not be read stands as it was. The number of rules does
not depend on the number of pods (hostNetwork pods aside). `docs/ownership.md` lists the rules.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from nodeagent.decide import cluster_set, mark_claims
from nodeagent.decide.limits import ShapeOptions
from nodeagent.model import Now
from nodeagent.traffic import (
    CHAIN_PREFIX,
    DEFAULT_MINOR,
    FAMILIES,
    SET_PREFIX,
    LinkState,
    MarkReading,
    MarkSet,
    MarkState,
    PodEntry,
    PodList,
    Rule,
    class_id,
)
from nodeagent.traffic_memory import Claim, MarkMemory, Uncovered

EGRESS, INGRESS = f"{CHAIN_PREFIX}EGRESS", f"{CHAIN_PREFIX}INGRESS"
HOST_OUT, HOST_PODS = f"{CHAIN_PREFIX}HOST-OUT", f"{CHAIN_PREFIX}HOST-PODS"
CHAINS = (EGRESS, INGRESS, HOST_PODS, HOST_OUT)
"""A chain stands after those that it jumps to."""
MAX_MARK_USERS = 8
_DEVICE = re.compile(r"[A-Za-z0-9_.:@-]{1,15}")
"""Device names that iptables takes literally; a trailing + would match other devices."""
_BARE = re.compile(r"[A-Za-z0-9_./:@,+=-]+")
NODE_TRAFFIC = "iptables-exporter node traffic="
"""Comment of the rules whose sums are the node's totals; exporters read it too."""
PODS_TRAFFIC = "nodeagent pods traffic="
"""Comment of the rules that see forwarded traffic alone."""


class MarkOptions(Struct, frozen=True, kw_only=True):
    """What of the configuration, and of other sources, marking depends on."""

    enabled: bool = True
    extra_cluster_cidrs: tuple[str, ...] = ()
    """`extra_cluster_cidrs` and the lines of `cluster_cidrs_file`."""
    api_addresses: tuple[str, ...] = ()
    """Addresses of the API server, as far as known."""
    mark_mask: int = 0x0FFF0000
    """Bits of the packet mark that we may use; 0: none."""
    host_pod_paths: dict[str, str] = {}
    """Uid of a hostNetwork pod -> its cgroup v2 path below the tree's root."""
    shaping: ShapeOptions = ShapeOptions()


class MarkWish(Struct, frozen=True, kw_only=True):
    """What is wanted of the kernel."""

    states: tuple[MarkState, ...]
    mark_mask: int
    """Bits in use; 0 in class-only mode."""


def update(
    options: MarkOptions, memory: MarkMemory, now: Now, *,
    pods: PodList | None, links: LinkState | None, reading: MarkReading | None,
    classed: mark_claims.Classed = mark_claims.NOBODY,
) -> MarkMemory:
    """Take in what was read; None stands for what was not, and changes nothing."""
    if memory.boot_id != now.at.boot_id:
        memory = MarkMemory(boot_id=now.at.boot_id)
    if memory.mark_mask_asked != options.mark_mask:
        memory = msgspec.structs.replace(
            memory, mark_mask_asked=options.mark_mask, class_only=False, mark_users=()
        )
    if links is not None and links.uplinks:
        memory = msgspec.structs.replace(
            memory, linked=True, uplinks=tuple(sorted(up.name for up in links.uplinks)),
            on_link_prefixes=tuple(sorted(links.on_link_prefixes)),
            own_addresses=tuple(sorted(links.own_addresses)),
        )
    first_scan = reading is not None and not memory.scanned
    if reading is not None:
        users = reading.mark_users[:MAX_MARK_USERS]
        memory = msgspec.structs.replace(
            memory, scanned=True, class_only=memory.class_only or bool(users),
            mark_users=users or memory.mark_users,
        )
    if pods is not None:
        memory = mark_claims.update(
            memory, pods, reading, now, classed=classed, kernel_first=first_scan
        )
        memory = msgspec.structs.replace(memory, listed=True)
    return msgspec.structs.replace(memory, uncovered=_uncovered(options, memory))


def wish(options: MarkOptions, memory: MarkMemory) -> MarkWish | None:
    """What is wanted, or None while too little is known to want anything."""
    if not (options.enabled and memory.listed and memory.scanned and memory.linked):
        return None
    mask = 0 if memory.class_only else options.mark_mask
    cluster = _cluster_texts(options, memory, own=True)
    return MarkWish(
        states=tuple(_state(family, options, memory, cluster, mask) for family in FAMILIES),
        mark_mask=mask,
    )


def set_names(family: int) -> tuple[str, str, str]:
    """Cluster set, set of pods by destination, set of pods by source."""
    return f"{SET_PREFIX}cluster{family}", f"{SET_PREFIX}in{family}", f"{SET_PREFIX}out{family}"


def said(text: str) -> str:
    """The comment match of a rule, in the spelling that is read back."""
    return f"-m comment --comment {_in_quotes(text)}"


def _in_quotes(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _cluster_texts(options: MarkOptions, memory: MarkMemory, *, own: bool) -> tuple[str, ...]:
    return (
        *cluster_set.FIXED, *memory.on_link_prefixes, *options.extra_cluster_cidrs,
        *options.api_addresses, *(memory.own_addresses if own else ()),
    )


def _uncovered(options: MarkOptions, memory: MarkMemory) -> tuple[Uncovered, ...]:
    """Addresses of pods and of the node that are in no prefix but their own."""
    own = [a for a in map(cluster_set.usable, memory.own_addresses) if a is not None]
    owners = [(address, "node") for address in own]
    owners += [(address, f"{c.namespace}/{c.name}") for address, c in memory.claims.items()]
    return cluster_set.uncovered(_cluster_texts(options, memory, own=False), owners)


def _state(
    family: int, options: MarkOptions, memory: MarkMemory, cluster: tuple[str, ...], mask: int
) -> MarkState:
    cluster_name, in_name, out_name = set_names(family)
    host_rules = sorted(_host_pod_rules(options, memory), key=lambda rule: rule.arguments)
    near = cluster_set.widest_around(memory.on_link_prefixes, cluster, family)
    fixed_rules = _fixed_rules(set_names(family), near, marked=mask != 0)
    return MarkState(
        family=family,
        chains=CHAINS,
        rules=(*fixed_rules, *host_rules),
        jumps=tuple(_jumps(memory.uplinks)),
        cluster=cluster_set.prefixes(cluster, family),
        pods=tuple(
            _entry(address, claim, mask)
            for address, claim in sorted(memory.claims.items())
            if (":" in address) == (family == 6)
        ),
        sets=(
            MarkSet(name=cluster_name, kind="hash:net"),
            MarkSet(name=in_name, kind="hash:ip", counters=True, comment=True, skbinfo=True),
            MarkSet(name=out_name, kind="hash:ip", counters=True, comment=True, skbinfo=True),
        ),
    )


@functools.lru_cache(maxsize=cluster_set.MAX_KNOWN)
def _entry(address: str, claim: Claim, mask: int) -> PodEntry:
    return PodEntry(
        address=address, minor=claim.minor, mark=mark(claim.minor, mask), comment=mark_claims.comment(claim)
    )


def mark(minor: int, mask: int) -> int:
    """The minor moved under the mask; 0 (no mark) where it does not fit."""
    shifted = minor * (mask & -mask)
    return shifted if shifted & ~mask == 0 else 0


def _fixed_rules(names: tuple[str, str, str], near: str, *, marked: bool) -> Iterator[Rule]:
    """The rules of our chains, the same for any number of pods. `near`: see `_cluster_rules`."""
    cluster, pods_in, pods_out = names
    default_class = f"-j CLASSIFY --set-class {class_id(DEFAULT_MINOR)}"
    map_mark = " --map-mark" if marked else ""
    yield from _cluster_rules(EGRESS, cluster, near, "dst", f"{PODS_TRAFFIC}cluster-out")
    yield _rule(EGRESS, f"{said(PODS_TRAFFIC + 'internet-out')} {default_class}")
    yield _rule(EGRESS, f"-j SET --map-set {pods_out} src{map_mark} --map-prio")
    yield from _cluster_rules(INGRESS, cluster, near, "src", f"{NODE_TRAFFIC}cluster-in")
    yield _rule(INGRESS, said(f"{NODE_TRAFFIC}internet-in"))
    yield _rule(INGRESS, f"-m set --match-set {pods_in} dst")
    yield from _cluster_rules(HOST_OUT, cluster, near, "dst", f"{NODE_TRAFFIC}cluster-out")
    yield _rule(HOST_OUT, said(f"{NODE_TRAFFIC}internet-out"))
    yield _rule(HOST_OUT, f"-j {HOST_PODS}")


def _cluster_rules(chain: str, cluster: str, near: str, side: str, comment: str) -> Iterator[Rule]:
    """Out of the chain with what is the cluster's.

    The set is asked once for each prefix length in it, so the one prefix that most cluster packets are
    for, around the node's own network, has a rule before it that costs a comparison.
    """
    if near:
        yield _rule(chain, f"-{side[0]} {near} {said(comment)} -j RETURN")
    yield _rule(chain, f"-m set --match-set {cluster} {side} {said(comment)} -j RETURN")


def _rule(chain: str, arguments: str) -> Rule:
    return Rule(chain=chain, arguments=arguments)


def _jumps(uplinks: tuple[str, ...]) -> Iterator[Rule]:
    """Four jumps for each uplink, by built-in chain."""
    named = [name for name in uplinks if _DEVICE.fullmatch(name)]
    for chain, side, target in (
        ("FORWARD", "-o", EGRESS), ("FORWARD", "-i", INGRESS), ("INPUT", "-i", INGRESS),
        ("POSTROUTING", "-o", HOST_OUT),
    ):  # fmt: skip
        yield from (_rule(chain, f"{side} {name} -j {target}") for name in named)


def _host_pod_rules(options: MarkOptions, memory: MarkMemory) -> Iterator[Rule]:
    for uid, claim in memory.host_pods.items():
        path = options.host_pod_paths.get(uid)
        if path:
            spelt = path if _BARE.fullmatch(path) else _in_quotes(path)
            classed = mark_claims.host_class(claim.minor)
            comment = said(mark_claims.comment(claim))
            yield _rule(HOST_PODS, f"-m cgroup --path {spelt} {comment}{classed}")
