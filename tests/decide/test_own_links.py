"""What is remembered of links and counters: over restarts, over a boot, over devices that change."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.decide import growth
from nodeagent.memory import Memory
from nodeagent.model import State
from nodeagent.net_memory import Growth
from nodeagent.net_signals import IbCounters, NetAdapters
from nodeagent.signals import Reading, SignalKey, Snapshot
from tests.decide.build import now
from tests.decide.links_build import ADAPTER, PCI, PORT, device, port
from tests.scenarios.world import World

DOWN = {"link.devices": (device(carrier=False),), f"ib.port@{PORT}": port("DOWN", "Polling")}
UP = {"link.devices": (device(),), f"ib.port@{PORT}": port()}


def test_a_restart_of_the_agent_forgets_neither_the_loss_nor_its_time() -> None:
    """Raised before and after with the same words, also when it was pending at the restart."""
    world = World()
    world.put(UP)
    world.run(60)
    world.put(DOWN)
    world.run(45)
    before = [world.row("link.down", "eth0").sentence, world.row("ib.down", PORT).sentence]
    world.restart()
    world.run(45)

    assert [world.row("link.down", "eth0").sentence, world.row("ib.down", PORT).sentence] == before
    assert {"link.down|eth0", f"ib.down|{PORT}"} <= world.raised()


def test_a_boot_forgets_what_was_up() -> None:
    """After a reboot a device without carrier may have lost its cable by intention: it does not apply."""
    world = World()
    world.put(UP)
    world.run(60)
    world.reboot(uptime_seconds=600.0)
    never = device(carrier=False, up_count=0, down_count=0)
    world.put({"link.devices": (never,), f"ib.port@{PORT}": port("DOWN", "Polling")})
    world.run(60)

    assert [world.state("link.down", "eth0"), world.state("ib.down", PORT)] == [State.NOT_APPLICABLE] * 2
    assert world.memory.net.links["eth0"].had_carrier is False


def test_a_taint_is_never_asked_for() -> None:
    """Every fault of the node's own network is a warning, and no more."""
    world = World()
    world.put(UP)
    world.run(60)
    world.put({**DOWN, "net.adapters": NetAdapters(addresses=())})
    world.run(600)

    assert world.raised() == {"link.down|eth0", f"ib.down|{PORT}"}
    assert world.taints() == []


def test_a_renamed_device_is_not_missed_under_its_old_name() -> None:
    """The same index under another name: the old one is forgotten."""
    world = World()
    world.put(UP)
    world.run(15)
    world.put({"link.devices": (device("ens1"),), "net.adapters": NetAdapters(addresses=(PCI, ADAPTER))})
    world.run(60)

    assert set(world.memory.net.links) == {"ens1"}
    assert [row.target for row in world.cycle().rows if row.id == "link.down"] == ["ens1"]


def test_an_adapter_that_falls_off_the_bus_takes_its_links_with_it() -> None:
    """The device and the port vanish with their adapter; each is bad by its name, and ok when it is back."""
    world = World()
    world.put(UP)
    world.run(15)
    world.put({"link.devices": (), f"ib.port@{PORT}": None, f"ib.counters@{PORT}": None,
               "net.adapters": NetAdapters(addresses=())})  # fmt: skip
    world.run(60)
    gone = world.raised()
    world.put({**UP, "net.adapters": NetAdapters(addresses=(PCI, ADAPTER))})
    world.run(600)

    assert gone == {"link.down|eth0", f"ib.down|{PORT}"}
    assert world.raised() == set()


def test_a_drop_and_a_flap_are_told_apart() -> None:
    """A port that stays down is ib.down, its flaps muted; one that comes back often is ib.flaps alone."""
    world = World()
    world.put(UP)
    world.run(15)
    world.put({**UP, f"ib.counters@{PORT}": IbCounters(link_downed_count=4)})
    world.run(15)
    flapping = world.raised()
    world.put({**DOWN, f"ib.counters@{PORT}": IbCounters(link_downed_count=5)})
    world.run(60)

    assert flapping == {f"ib.flaps|{PORT}"}
    assert (world.state("ib.down", PORT), world.state("ib.flaps", PORT)) == (State.WARNING, State.MUTED)


def counted(*counts: int, apart_seconds: float = 15.0, key: str = "ib.counters") -> dict[str, Growth]:
    """What is remembered after reads of these counts."""
    growths: dict[str, Growth] = {}
    for number, count in enumerate(counts):
        at = now(1000.0 + apart_seconds * number)
        value: Any = IbCounters(link_downed_count=count)
        reading = Reading(value=value, read_at_seconds=at.at.monotonic_seconds, sequence=number)
        growths = growth.remember(
            growths, Snapshot(now=at, node_name="a", readings={SignalKey(key, PORT): reading})
        )
    return growths


# counts as they are read, and the growth that is remembered of them
COUNTS = [
    ("a baseline", (250,), []), ("no growth", (7, 7, 7), []), ("growth", (7, 8, 8, 11), [1, 3]),
    ("a counter that was cleared", (200, 0, 0), []), ("growth before and after that", (5, 6, 0, 2), [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "steps"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS])
def test_only_growth_is_remembered(counts: tuple[int, ...], steps: list[int]) -> None:
    """The first sample, and the first after a fall, say nothing."""
    known = counted(*counts)[f"link_downed|{PORT}"]

    assert [step for _, step in known.steps] == steps
    assert known.last_count == counts[-1]


def test_what_is_remembered_has_an_end() -> None:
    """A counter that grows for ever keeps so many steps, none older than a day; one not read is forgotten."""
    many = counted(*range(1000))[f"link_downed|{PORT}"]
    old = counted(*range(5), apart_seconds=growth.KEPT_SECONDS / 2)[f"link_downed|{PORT}"]
    later = Snapshot(now=now(1000.0 + 10 * growth.KEPT_SECONDS), node_name="a", readings={})

    assert len(many.steps) == growth.KEPT_STEPS
    assert len(old.steps) == 2
    assert growth.remember(counted(1, 2), later) == {}


def test_the_memory_survives_its_file() -> None:
    """What was counted is the same after it was written and read."""
    world = World()
    world.put({**DOWN, f"ib.counters@{PORT}": IbCounters(link_downed_count=4)})
    world.run(30)
    world.put({f"ib.counters@{PORT}": IbCounters(link_downed_count=9)})
    world.run(15)
    before: Memory = world.memory
    world.restart()

    assert world.memory.net == before.net
    assert before.net.growths[f"link_downed|{PORT}"].steps[0][1] == 5
