"""One body on both writers and both families, in a real kernel, with neighbours that must not change."""

from __future__ import annotations

import re
import socket

import msgspec
import pytest

from nodeagent.drivers.iptables import canonical
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import MarkState, Rule
from tests.contracts.iptables_rig import EGRESS, HOST_OUT, HOST_PODS, PROGRAM, Node, cgroup, wanted
from tests.netns.world import INTERNET

TOTAL = "iptables-exporter node traffic=internet-out"


def order(node: Node, family: int, chain: str) -> list[str]:
    """The rules of a chain as the backend's own program lists them."""
    return [line for line in node.iptables(family, "-S", chain).splitlines() if line.startswith("-A")]


def counted(node: Node, family: int, comment: str) -> int:
    """Packets that the rule with this comment has seen."""
    saved = node.world.command("node", f"{PROGRAM[family]}-{node.backend}-save", "-c", "-t", "mangle")
    return sum(int(packets) for packets in re.findall(rf"\[(\d+):\d+\] .*{re.escape(comment)}", saved))


def send(address: str, datagrams: int) -> None:
    """Datagrams that nobody waits for."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(datagrams):
            sender.sendto(b"x", (address, 9))


def test_what_is_written_is_read_back_equal(node: Node, family: int) -> None:
    """The same nouns come back, and the rules themselves are in the one spelling."""
    state = wanted(family, ("eth0", "vetha"))
    assert node.ensure(state) != ()
    reading = node.read(family)
    assert reading.state == state
    assert (reading.stray, reading.ahead) == ((), ())
    assert len(reading.counters) == len(state.rules)
    assert [canonical(rule.arguments) for rule in (*state.rules, *state.jumps)] == [
        rule.arguments for rule in (*state.rules, *state.jumps)
    ]


def test_a_second_write_writes_nothing(node: Node, family: int) -> None:
    """Equal is equal: no line, and no counter back at zero."""
    node.ensure(wanted(family))
    before = node.world.dump()
    assert node.ensure(wanted(family)) == ()
    assert node.world.dump() == before


def test_the_other_family_is_left_alone(node: Node, family: int) -> None:
    """Chains of IPv4 are no chains of IPv6."""
    node.ensure(wanted(family))
    assert node.read(10 - family).state == MarkState(family=10 - family)


def test_jumps_stand_first_in_order(node: Node, family: int) -> None:
    """Before every foreign rule, in the order given, each once."""
    node.ensure(wanted(family, ("eth0", "vetha")))
    forward = order(node, family, "FORWARD")
    assert forward[:2] == [f"-A FORWARD -o eth0 -j {EGRESS}", f"-A FORWARD -o vetha -j {EGRESS}"]
    assert "another agent" in forward[2]
    assert order(node, family, "POSTROUTING")[:2] == [
        f"-A POSTROUTING -o eth0 -j {HOST_OUT}", f"-A POSTROUTING -o vetha -j {HOST_OUT}"
    ]  # fmt: skip


def test_a_jump_that_is_overtaken_is_told_and_moved(node: Node, family: int) -> None:
    """One that inserts itself before us is named; one write puts us first and removes nothing of his."""
    node.ensure(wanted(family))
    node.iptables(family, "-I", "FORWARD", "1", "-m", "comment", "--comment", "I am first", "-j", "ACCEPT")
    reading = node.read(family)
    assert [rule.chain for rule in reading.state.jumps] == ["POSTROUTING"]
    assert reading.stray == (Rule(chain="FORWARD", arguments=f"-o eth0 -j {EGRESS}"),)
    assert reading.ahead == (Rule(chain="FORWARD", arguments='-m comment --comment "I am first" -j ACCEPT'),)
    written = node.ensure(wanted(family))
    assert written == (f"-D FORWARD -o eth0 -j {EGRESS}", f"-I FORWARD 1 -o eth0 -j {EGRESS}")
    assert "I am first" in order(node, family, "FORWARD")[1]
    node.iptables(family, "-D", "FORWARD", "2")


STRAYS = [
    ("FORWARD", "-o", "eth0", "-j", EGRESS),
    ("FORWARD", "-o", "eth7", "-j", EGRESS),
    ("FORWARD", "-p", "tcp", "-o", "eth0", "-m", "mark", "--mark", "0x1/0x1", "-j", EGRESS),
    ("OUTPUT", "-m", "comment", "--comment", "by hand", "-j", HOST_PODS),
    ("KUBE-KUBELET-CANARY", "-j", HOST_OUT),
]


@pytest.mark.parametrize("stray", STRAYS, ids=[" ".join(words) for words in STRAYS])
def test_a_surplus_jump_goes(node: Node, family: int, stray: tuple[str, ...]) -> None:
    """Doubled, for a device that is no uplink, with a condition more, from a chain that is not ours."""
    node.ensure(wanted(family))
    node.iptables(family, "-A", *stray)
    assert len(node.read(family).stray) + len(node.read(family).state.jumps) == 3
    node.ensure(wanted(family))
    assert (node.read(family).state, node.read(family).stray) == (wanted(family), ())


DAMAGE = {
    "mangle is flushed": [("-F",)],
    "one chain is flushed": [("-F", EGRESS)],
    "one rule is gone": [("-D", EGRESS, "2")],
    "one rule is changed": [("-R", EGRESS, "2", "-j", "CLASSIFY", "--set-class", "1:1")],
    "one rule is added": [("-I", EGRESS, "1", "-j", "RETURN")],
    "rules are swapped": [("-D", HOST_OUT, "1"), ("-A", HOST_OUT, "-m", "comment", "--comment", "x")],
    "a chain is gone": [("-F", HOST_OUT), ("-F", HOST_PODS), ("-X", HOST_PODS)],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_seen_and_repaired(node: Node, family: int, damage: str) -> None:
    """Whatever somebody did to our chains, it reads as different, and one write makes it equal again."""
    node.ensure(wanted(family))
    saved = node.world.command("node", f"{PROGRAM[family]}-{node.backend}-save", "-t", "mangle")
    for words in DAMAGE[damage]:
        node.iptables(family, *words)
    assert node.read(family).state != wanted(family)
    assert node.ensure(wanted(family)) != ()
    assert node.read(family).state == wanted(family)
    if damage == "mangle is flushed":  # what was flushed with us comes back by its owners
        node.world.command("node", f"{PROGRAM[family]}-{node.backend}-restore", stdin=saved)


def test_an_old_chain_of_ours_goes(node: Node, family: int) -> None:
    """What an earlier version left is swept, jumps into it included."""
    node.iptables(family, "-N", "NODEAGENT-OLD")
    node.iptables(family, "-A", "NODEAGENT-OLD", "-j", "RETURN")
    node.iptables(family, "-A", "PREROUTING", "-j", "NODEAGENT-OLD")
    node.ensure(wanted(family))
    assert node.read(family).state == wanted(family)
    assert not any("NODEAGENT" in line for line in order(node, family, "PREROUTING"))


def test_counters_of_equal_chains_and_of_others_live_on(node: Node, family: int) -> None:
    """Writing one chain anew zeroes that chain alone: A14, counters reset by a sync."""
    node.ensure(wanted(family))
    node.iptables(family, "-A", "POSTROUTING", "-m", "comment", "--comment", "theirs")
    node.world.inside("node", send, INTERNET[family], 20)
    assert node.ensure(wanted(family)) == ()
    assert (counted(node, family, "theirs") >= 20, counted(node, family, TOTAL) >= 20) == (True, True)
    node.iptables(family, "-F", EGRESS)
    assert all(EGRESS in line for line in node.ensure(wanted(family)))
    assert (counted(node, family, "theirs") >= 20, counted(node, family, TOTAL) >= 20) == (True, True)
    assert node.read(family).by_comment[TOTAL].packets >= 20
    assert node.read(family).by_comment[TOTAL].bytes >= 20 * 29
    node.iptables(family, "-D", "POSTROUTING", "-m", "comment", "--comment", "theirs")


def test_a_refused_write_changes_nothing(node: Node, family: int) -> None:
    """A set that is not there: absent, and not one chain or jump of the write is left behind."""
    state = wanted(family)
    rule = Rule(chain=HOST_OUT, arguments=f"-m set --match-set nodeagent-none{family} dst")
    before = node.world.dump()
    with pytest.raises(DriverError) as refused:
        node.ensure(msgspec.structs.replace(state, rules=(*state.rules, rule)))
    assert refused.value.kind is ErrorKind.ABSENT
    assert f"nodeagent-none{family}" in refused.value.detail
    assert node.world.dump() == before


def test_lines_are_appended_and_deleted_one_by_one(node: Node, family: int) -> None:
    """Rules of the chain of host pods come and go without a rewrite; ensure leaves them as they are."""
    node.ensure(wanted(family))
    lines = [f'-m comment --comment "host pod {name}"' for name in ("a", "b", 'c "quoted"')]
    lines[2] = canonical(lines[2].replace(' "quoted""', ' \\"quoted\\""'))
    assert node.ensure_lines(family, *lines[:2]) == {}
    node.iptables(family, "-A", HOST_PODS, "-j", "RETURN")
    assert node.ensure_lines(family, *lines[1:]) == {}
    held = [rule.arguments for rule in node.read(family).state.rules if rule.chain == HOST_PODS]
    assert held == lines[1:]
    assert node.ensure(wanted(family)) == ()
    assert node.ensure_lines(family) == {}
    assert node.read(family).state == wanted(family)


def test_lines_need_their_chain(node: Node, family: int) -> None:
    """Without the chain it is absent; to have no line in no chain is fine."""
    with pytest.raises(DriverError) as refused:
        node.ensure_lines(family, '-m comment --comment "host pod"')
    assert refused.value.kind is ErrorKind.ABSENT
    assert node.ensure_lines(family) == {}


def test_a_line_whose_cgroup_is_gone_takes_no_other_with_it(node: Node, family: int) -> None:
    """nft: refused alone, deleted when its cgroup has ended. Legacy takes none: it would stop all writers."""
    node.ensure(wanted(family))
    with cgroup("pod 1") as path:
        there, gone = f'-m cgroup --path "{path}"', "-m cgroup --path nodeagent-test/none"
        plain = '-m comment --comment "plain"'
        refused = node.ensure_lines(family, gone, there, plain)
        assert {error.kind for error in refused.values()} == {ErrorKind.ABSENT}
        assert set(refused) == ({gone} if node.backend == "nft" else {gone, there})
        held = {rule.arguments for rule in node.read(family).state.rules if rule.chain == HOST_PODS}
        assert held == {gone, there, plain} - set(refused)
    node.iptables(family, "-A", "FORWARD", "-j", "ACCEPT")
    node.iptables(family, "-D", "FORWARD", "-j", "ACCEPT")
    assert node.ensure_lines(family) == {}


BAD = {
    "a foreign chain": MarkState(family=4, chains=("KUBE-SERVICES",)),
    "a name too long": MarkState(family=4, chains=("NODEAGENT-" + "X" * 19,)),
    "a rule of a foreign chain": MarkState(family=4, rules=(Rule(chain="FORWARD", arguments="-j DROP"),)),
    "a jump from a foreign chain": MarkState(
        family=4, chains=(EGRESS,), jumps=(Rule(chain="KUBE-FORWARD", arguments=f"-j {EGRESS}"),)
    ),
    "a jump to a foreign target": MarkState(family=4, jumps=(Rule(chain="FORWARD", arguments="-j DROP"),)),
    "two lines in one": MarkState(
        family=4, chains=(EGRESS,), rules=(Rule(chain=EGRESS, arguments="-j RETURN\n-F FORWARD"),)
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_not_ours_is_never_written(node: Node, bad: str) -> None:
    """The driver itself refuses it, whoever asks."""
    with pytest.raises(DriverError) as refused:
        node.ensure(BAD[bad])
    assert refused.value.kind is ErrorKind.INVALID
