"""The prefix around the node's own network, which has a rule of its own before the set."""

from __future__ import annotations

import ipaddress

import pytest

from nodeagent.decide import cluster_set

AROUND = {
    "inside a fixed prefix": (("10.1.2.0/24",), 4, "10.0.0.0/8"),
    "a public network that is attached": (("203.0.113.0/24",), 4, "203.0.113.0/24"),
    "two networks: the widest around either": (("192.168.7.0/24", "10.1.2.0/24"), 4, "10.0.0.0/8"),
    "two equally wide: the lower": (("203.0.113.0/24", "198.51.100.0/24"), 4, "198.51.100.0/24"),
    "unique local beside link-local": (("fe80::/64", "fd00:a::/64"), 6, "fc00::/7"),
    "nothing attached": ((), 4, ""),
    "attached in the other family alone": (("10.1.2.0/24",), 6, ""),
    "not in the cluster": (("192.0.2.0/24",), 4, ""),
    "no prefix at all": (("eth0",), 4, ""),
}
EXTRA = ("203.0.113.0/24", "198.51.100.0/24")


@pytest.mark.parametrize(("attached", "family", "wanted"), AROUND.values(), ids=list(AROUND))
def test_widest_around(attached: tuple[str, ...], family: int, wanted: str) -> None:
    """One whole prefix of the set, the same for the same networks in any order."""
    texts = (*cluster_set.FIXED, *EXTRA)
    found = cluster_set.widest_around(attached, texts, family)

    assert found == cluster_set.widest_around(attached[::-1], texts[::-1], family) == wanted
    assert not found or found in cluster_set.prefixes(texts, family)
    assert not found or ipaddress.ip_network(found).version == family
