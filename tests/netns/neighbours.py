"""What other agents leave on a node: kube-proxy, portmap, MASQUERADE, Calico, Cilium, Docker, a tc agent.

Shapes of rules as those programs write them, cut to a few each; nothing here stops a test's own traffic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Node(Protocol):
    """What is asked of the world."""

    def command(self, namespace: str, *argv: str, stdin: str = "", check: bool = True) -> str:
        """Run in the namespace; stdout."""

    def restore(self, backend: str, family: int, text: str, namespace: str = "node") -> None:
        """iptables-restore --noflush in the namespace."""


_RULES = [path.read_text(encoding="ascii") for path in (Path(__file__).parent / "rules").glob("*.rules")]
_WORDS = {
    4: {"docker": "172.17.0.0/16", "service": "10.96.0.20/32", "endpoint": "10.244.2.10",
        "pod": "10.244.1.10"},
    6: {"docker": "fd00:d0c::/64", "service": "fd00:96::20/128", "endpoint": "[fd00:244:2::10]",
        "pod": "[fd00:244:1::10]"},
}
_SETS = """create cali40masq-ipam-pools hash:net family inet maxelem 1048576
add cali40masq-ipam-pools 10.244.0.0/16
create KUBE-CLUSTER-IP hash:ip,port family inet
add KUBE-CLUSTER-IP 10.96.0.10,udp:53
create cali60all-hosts-net hash:ip family inet6 counters
add cali60all-hosts-net fd00:a::3
"""
_TC = (
    ("qdisc", "add", "dev", "eth0", "clsact"),
    ("filter", "add", "dev", "eth0", "egress", "pref", "10", "protocol", "ip", "u32",
     "match", "ip", "dst", "192.0.2.0/24", "flowid", "1:1"),
)  # fmt: skip


def install(node: Node, backend: str) -> None:
    """Put it all on the node; `backend` (legacy, nft) is the one that those programs use."""
    for family, words in _WORDS.items():
        for text in _RULES:
            node.restore(backend, family, text.format_map(words))
    node.command("node", "ipset", "restore", stdin=_SETS)
    for words in _TC:
        node.command("node", "tc", *words)
