"""RDMA ports as sysfs shows them; a port in trouble is asked less and less often."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nodeagent.drivers.host.infiniband import COUNTERS_CALL, PORT_CALL, PortReader
from nodeagent.errors import ErrorKind
from nodeagent.net_signals import IbCounters, IbPort
from nodeagent.signals import Unread
from tests.drivers.host_channel import Heard
from tests.drivers.sysfs import Sysfs, answers, breaks

ADAPTER = "0000:9a:00.0"
PORT = "mlx5_0/1"


class Rig:
    """A reader of a scripted tree, on a clock that only the test moves."""

    def __init__(self, root: Path) -> None:
        self.tree, self.heard, self.seconds = Sysfs(root), Heard(), 1000.0
        self.reader = PortReader(self.heard, lambda: self.seconds)  # type: ignore[arg-type]

    def read(self, *skip: str) -> dict[str, object]:
        """What one read-all said."""
        self.heard.clear()
        self.reader.read(msgspec.structs.replace(self.tree.arguments, skip=skip))
        return dict(self.heard.values)

    @property
    def asked(self) -> bool:
        """True when the last read-all read the port's counters."""
        return f"{COUNTERS_CALL} {PORT}" in self.heard.marks


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """An empty one."""
    yield Rig(tmp_path)


def test_a_port_is_read_with_its_counter_and_its_adapter(rig: Rig) -> None:
    """State by its word, the counter as a number, the PCI address from the path."""
    rig.tree.port("mlx5_0", ADAPTER, link_downed="3")

    assert rig.read() == {
        f"ib.port@{PORT}": IbPort(
            state="ACTIVE", phys_state="LinkUp", link_layer="InfiniBand", pci_address=ADAPTER
        ),
        f"ib.counters@{PORT}": IbCounters(link_downed_count=3),
    }
    assert rig.heard.marks == [f"{PORT_CALL} {PORT}", f"{COUNTERS_CALL} {PORT}"]


@pytest.mark.parametrize("tree", ["none", "empty"])
def test_a_node_without_rdma_is_absent(rig: Rig, tree: str) -> None:
    """Neither the missing class nor an empty one is a port that is down."""
    if tree == "none":
        (rig.tree.root / "class/infiniband").rmdir()
    said = rig.read()

    assert set(said) == {"ib.port@node", "ib.counters@node"}
    assert {value.kind for value in said.values() if isinstance(value, Unread)} == {ErrorKind.ABSENT}


def test_an_ethernet_port_leaves_its_counters_to_its_device(rig: Rig) -> None:
    """Where the network device is in this namespace; in a pod's it is read as any other."""
    rig.tree.port("mlx5_0", ADAPTER, link_layer="Ethernet")
    alone = rig.read()
    (rig.tree.adapter(ADAPTER) / "net/eth2").mkdir(parents=True)
    beside = rig.read()

    assert isinstance(alone[f"ib.counters@{PORT}"], IbCounters)
    assert getattr(beside[f"ib.port@{PORT}"], "net_device", "") == "eth2"
    counters = beside[f"ib.counters@{PORT}"]
    assert isinstance(counters, Unread) and counters.kind is ErrorKind.ABSENT and "eth2" in counters.reason


def test_counters_that_fail_are_left_alone_for_longer_and_longer(rig: Rig) -> None:
    """An I/O error is asked again after 1, 2, 4 ... minutes, at last hourly; the state is read on."""
    file = rig.tree.port("mlx5_0", ADAPTER) / "counters/link_downed"
    breaks(file)
    asked = []
    for _ in range(4 * 60 * 6):
        said = rig.read()
        asked += [rig.seconds - 1000.0] if rig.asked else []
        counters = said[f"ib.counters@{PORT}"]
        assert isinstance(counters, Unread) and counters.kind is ErrorKind.LOST
        assert isinstance(said[f"ib.port@{PORT}"], IbPort)
        rig.seconds += 15.0

    waits = [after - before for before, after in itertools.pairwise(asked)]
    assert waits[:7] == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0]
    assert set(waits[7:]) <= {3600.0}


def test_counters_that_answer_again_are_read_at_every_poll(rig: Rig) -> None:
    """One good answer ends the waiting, and the next failure begins with the shortest wait."""
    file = rig.tree.port("mlx5_0", ADAPTER) / "counters/link_downed"
    breaks(file)
    rig.read()
    answers(file, "5")
    early = rig.read()[f"ib.counters@{PORT}"]
    rig.seconds += 60.0
    later = rig.read()[f"ib.counters@{PORT}"]
    breaks(file)
    rig.read()
    rig.seconds += 60.0
    rig.read()

    assert isinstance(early, Unread) and later == IbCounters(link_downed_count=5)
    assert rig.asked


def test_one_bad_port_costs_no_other(rig: Rig) -> None:
    """Garbage in the state of one port is that port's."""
    rig.tree.port("mlx5_0", ADAPTER, state="")
    rig.tree.port("mlx5_1", "0000:9b:00.0", link_downed=None)
    said = rig.read()

    bad, uncounted = said[f"ib.port@{PORT}"], said["ib.counters@mlx5_1/1"]
    assert isinstance(bad, Unread) and bad.kind is ErrorKind.INVALID
    assert isinstance(uncounted, Unread) and uncounted.kind is ErrorKind.ABSENT
    assert isinstance(said["ib.port@mlx5_1/1"], IbPort)


@pytest.mark.parametrize("call", [PORT_CALL, COUNTERS_CALL])
def test_a_call_that_did_not_return_is_left_out(rig: Rig, call: str) -> None:
    """It is not made, and its signals say why."""
    rig.tree.port("mlx5_0", ADAPTER)
    said = rig.read(f"{call} {PORT}")
    counters = said[f"ib.counters@{PORT}"]

    assert f"{call} {PORT}" not in rig.heard.marks
    assert isinstance(counters, Unread) and counters.kind is ErrorKind.TIMEOUT
    assert isinstance(said[f"ib.port@{PORT}"], Unread if call == PORT_CALL else IbPort)
