"""Which destinations are the cluster's: the prefixes of the cluster set, merged and complete.

An address missing here makes cluster traffic count as internet, and later be slowed down, so the set errs
on the side of the cluster. It never covers everything: a prefix of length 0 is left out and said.
"""

from __future__ import annotations

import bisect
import functools
import ipaddress
from collections.abc import Iterable

from nodeagent.traffic_memory import Uncovered

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FIXED = (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
    "224.0.0.0/4", "240.0.0.0/4", "fc00::/7", "fe80::/10", "ff00::/8", "::1/128",
)  # fmt: skip
"""Private, shared, loopback, link-local, multicast and reserved: never the internet."""
MAX_UNCOVERED = 32
MAX_SETS = 16
"""Results remembered: the set is asked for in every cycle and hardly ever another."""
MAX_KNOWN = 8192
"""Addresses remembered as parsed: several times what a node has, asked for at every cycle."""
_GUESS_BITS = {4: 24, 6: 64}


def parse(texts: Iterable[str]) -> tuple[list[Network], list[str]]:
    """Networks of addresses and prefixes (host bits dropped), and the texts that are none or cover all."""
    networks: list[Network] = []
    refused: list[str] = []
    for text in texts:
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            refused.append(text)
            continue
        if network.prefixlen == 0:
            refused.append(text)
        else:
            networks.append(network)
    return networks, refused


@functools.lru_cache(maxsize=MAX_SETS)
def merged(texts: tuple[str, ...], family: int) -> tuple[Network, ...]:
    """The fewest networks of one family that cover exactly what `texts` name, sorted by address."""
    networks = parse(texts)[0]
    if family == 4:
        four = [n for n in networks if isinstance(n, ipaddress.IPv4Network)]
        return tuple(ipaddress.collapse_addresses(four))
    six = [n for n in networks if isinstance(n, ipaddress.IPv6Network)]
    return tuple(ipaddress.collapse_addresses(six))


@functools.lru_cache(maxsize=MAX_SETS)
def prefixes(texts: tuple[str, ...], family: int) -> tuple[str, ...]:
    """`merged` as text."""
    return tuple(map(str, merged(texts, family)))


@functools.lru_cache(maxsize=MAX_SETS)
def widest_around(attached: tuple[str, ...], texts: tuple[str, ...], family: int) -> str:
    """The widest of the `merged` prefixes that holds one of `attached` whole; "" for none."""
    own = merged(attached, family)
    around = [
        wide for wide in merged(texts, family)
        if any(network.subnet_of(wide) for network in own)  # type: ignore[arg-type]  # one family
    ]  # fmt: skip
    return str(min(around, key=lambda network: network.prefixlen)) if around else ""


def uncovered(texts: tuple[str, ...], owners: Iterable[tuple[str, str]]) -> tuple[Uncovered, ...]:
    """The (address, owner) pairs that nothing of `texts` covers, at most 32, each with the prefix to add."""
    ends = {family: _ends(texts, family) for family in _GUESS_BITS}
    missing = []
    for text, owner in sorted(owners):
        family, number = _number(text)
        # Between the first and the last address of a network stands an odd number of ends.
        if bisect.bisect_right(ends[family], number) % 2 == 0:
            around = ipaddress.ip_network(f"{text}/{_GUESS_BITS[family]}", strict=False)
            missing.append(Uncovered(address=text, owner=owner, prefix=str(around)))
    return tuple(missing[:MAX_UNCOVERED])


@functools.lru_cache(maxsize=MAX_KNOWN)
def usable(text: str) -> str | None:
    """The address in canonical form when a pod can have it, else None: no address, loopback, multicast."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    odd = address.is_loopback or address.is_multicast or address.is_unspecified
    return None if odd or "%" in text else str(address)


@functools.lru_cache(maxsize=MAX_KNOWN)
def _number(text: str) -> tuple[int, int]:
    """Family and number of an address."""
    address = ipaddress.ip_address(text)
    return address.version, int(address)


@functools.lru_cache(maxsize=MAX_SETS)
def _ends(texts: tuple[str, ...], family: int) -> tuple[int, ...]:
    """The first address of each merged network and the first one behind it, in turn and in order."""
    return tuple(
        end for network in merged(texts, family)
        for end in (int(network.network_address), int(network.broadcast_address) + 1)
    )  # fmt: skip
