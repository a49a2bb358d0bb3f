"""Marks read back from a real kernel, both backends: what was written is what the reading holds."""

from __future__ import annotations

import pytest

from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.ipset import IpSets, SetEntry, SetSpec
from nodeagent.drivers.iptables import choose_backend, open_rules
from nodeagent.observe.marks import MarkReader
from nodeagent.traffic import MarkReading, MarkState, PodEntry, Rule
from tests.netns.world import POD_A, World

COMMENT = "shop/web-0/0b7c"
COUNTING = '-m comment --comment "iptables-exporter node traffic=internet-in"'


async def written_and_read(backend: str) -> MarkReading:
    """Write a chain, a jump and the pod sets of both families, and read them."""
    rules, sets = open_rules(await choose_backend(f"/usr/sbin/iptables-{backend}")), IpSets()
    for family in (4, 6):
        await rules.ensure(
            MarkState(
                family=family, chains=("NODEAGENT-HOST-IN",),
                rules=(Rule(chain="NODEAGENT-HOST-IN", arguments=COUNTING),),
                jumps=(Rule(chain="INPUT", arguments="-i eth0 -j NODEAGENT-HOST-IN"),),
            )
        )
        for name in ("out", "in"):
            spec = SetSpec(
                name=f"nodeagent-{name}{family}", kind="hash:ip", family=family, counters=True, comment=True,
                skbinfo=True,
            )
            await sets.ensure(spec)
            entry = SetEntry(
                value=POD_A[family], priority=0x4E0010, mark=0x10000, mark_mask=0xFF0000, comment=COMMENT
            )
            await sets.add(spec, [entry])
    return await MarkReader(rules, sets, SystemClock(), 0xFF0000).read()


@pytest.mark.root
@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_what_was_written_is_read(world: World, backend: str) -> None:
    """Chains, rules, jumps, entries and totals of both families come back equal."""
    reading: MarkReading = world.inside("node", written_and_read, backend)

    assert reading.backend == backend and reading.mark_users == ()
    for state in reading.states:
        assert state.chains == ("NODEAGENT-HOST-IN",)
        assert state.rules == (Rule(chain="NODEAGENT-HOST-IN", arguments=COUNTING),)
        assert state.jumps == (Rule(chain="INPUT", arguments="-i eth0 -j NODEAGENT-HOST-IN"),)
        address = POD_A[state.family]
        assert state.pods == (PodEntry(address=address, minor=0x10, mark=0x10000, comment=COMMENT),)
        assert address in reading.out and address in reading.received
        assert f"{state.family} iptables-exporter node traffic=internet-in" in reading.totals
