"""Who uses bits of the packet mark (A15): every way to test, set or copy one is seen, and nothing else."""

from __future__ import annotations

import pytest

from nodeagent.drivers.iptables.marks import ALL_BITS, used_bits
from tests.contracts.iptables_rig import Node, wanted

BITS = {
    "-j MARK --set-xmark 0x4000/0x4000": 0x4000,
    "-j MARK --set-xmark 0x4000/0x0": 0x4000,
    "-j MARK --set-xmark 0x0/0xf0000": 0xF0000,
    "-j MARK --set-mark 0x1337": ALL_BITS,
    "-j MARK --set-mark 0x1/0xff": 0xFF,
    "-j MARK --or-mark 0x30": 0x30,
    "-j MARK --and-mark 0xfffffff0": 0xF,
    "-m mark --mark 0x8000/0x8000 -j DROP": 0x8000,
    "-m mark ! --mark 0x4000/0x4000 -j RETURN": 0x4000,
    "-m mark --mark 0x539": ALL_BITS,
    "-m mark --mark 0x1/0x1 -j MARK --set-xmark 0x2/0x2": 0x3,
    "-j CONNMARK --restore-mark --nfmask 0xf00 --ctmask 0xf00": 0xF00,
    "-j CONNMARK --restore-mark": ALL_BITS,
    "-j CONNMARK --save-mark --nfmask 0x80 --ctmask 0x80": 0x80,
    "-j CONNMARK --set-xmark 0xff/0xff": 0,
    "-m connmark --mark 0xff/0xff -j RETURN": 0,
    "-p tcp -j TPROXY --on-port 1 --on-ip 0.0.0.0 --tproxy-mark 0x200/0xffffffff": ALL_BITS,
    "-j SET --map-set theirs src --map-mark": ALL_BITS,
    "-j SET --map-set theirs src --map-prio": 0,
    "-m socket --transparent --restore-skmark": ALL_BITS,
    '-m comment --comment "-j MARK --set-xmark 0x1/0x1" -j ACCEPT': 0,
    "-j ACCEPT": 0,
    "-j MARK --set-xmark nonsense": ALL_BITS,
    "": 0,
}


@pytest.mark.parametrize("rule", BITS)
def test_the_bits_of_a_rule(rule: str) -> None:
    """A value that cannot be read counts as all bits."""
    assert used_bits(rule) == BITS[rule]


def test_overlaps_are_found_in_both_backends_and_families(node: Node) -> None:
    """Neighbours in the one, a rule in the other: each is named with the program that lists it."""
    other = "nft" if node.backend == "legacy" else "legacy"
    mark = ("-j", "MARK", "--set-xmark", "0x80000/0x80000")
    node.world.command("node", f"ip6tables-{other}", "-t", "nat", "-A", "OUTPUT", *mark)
    node.ensure(wanted(4))
    users = node.mark_users(0x0FFF0000)
    assert f"ip6tables-{other} -t nat -A OUTPUT -j MARK --set-xmark 0x80000/0x80000" in users
    calico = [user for user in users if "cali-" in user]
    assert {user.split()[0] for user in calico} == {f"ip6tables-{node.backend}", f"iptables-{node.backend}"}
    assert not any("NODEAGENT" in user for user in users)
    node.world.command("node", f"ip6tables-{other}", "-t", "nat", "-D", "OUTPUT", "1")


def test_a_bit_that_nobody_uses_is_free(node: Node) -> None:
    """Only the rule that rewrites all bits is left to name; without it none is."""
    assert {user.split()[4] for user in node.mark_users(0x20000000)} == {"CILIUM_PRE_mangle"}
    for family in (4, 6):
        node.iptables(family, "-F", "CILIUM_PRE_mangle")
    assert node.mark_users(0x20000000) == ()
    rule = ("-i", "cilium+", "-m", "comment", "--comment", "cilium: transparent")
    mark = ("-j", "MARK", "--set-xmark", "0x200/0xffffffff")
    for family in (4, 6):
        node.iptables(family, "-A", "CILIUM_PRE_mangle", *rule, *mark)
