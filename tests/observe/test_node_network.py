"""The host worker and the node's own network: a port or a device that hangs costs itself alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import ErrorKind
from nodeagent.net_signals import IbCounters, IbPort, TcpTarget
from nodeagent.observe.node import NET_SIGNALS, NetworkAsked
from nodeagent.signals import Unread
from tests.drivers.fuse import DeadMount
from tests.drivers.rig import until
from tests.drivers.sysfs import Sysfs, answers
from tests.observe.test_node import Rig, needs_fuse, sampling


def test_every_signal_of_the_network_is_read(tmp_path: Path) -> None:
    """Of the node, of each port, of each family and of the way out; ports that vanish are dropped."""
    tree = Sysfs(tmp_path)
    port = tree.port("mlx5_0", "0000:9a:00.0")

    async def main(rig: Rig) -> None:
        await until(lambda: all(rig.reading(name) for name in NET_SIGNALS))
        await until(lambda: isinstance(rig.value("ib.port", "mlx5_0/1"), IbPort))
        await until(lambda: rig.reading("neighbour.table", "ipv4") and rig.reading("neighbour.table", "ipv6"))
        (tree.root / "class/infiniband/mlx5_0").unlink()
        await until(lambda: rig.value("ib.port", "mlx5_0/1") is None)
        assert port.exists()

    sampling(main, sys_root=str(tmp_path))


def test_targets_are_read_from_the_next_poll_on() -> None:
    """What a reload names is tried; the gateways are left alone then."""

    async def main(rig: Rig) -> None:
        rig.sampler.set_network(NetworkAsked(targets=("127.0.0.1:1",), deadline_seconds=0.5))
        await until(lambda: isinstance(rig.value("net.target", "127.0.0.1:1"), TcpTarget))
        assert not [key for key in rig.board.readings() if key.signal == "net.gateway"]

    sampling(main)


@needs_fuse
@pytest.mark.parametrize(("file", "call", "lost"), [
    ("counters", "read RDMA counters mlx5_0/1", "ib.counters"),
    ("state", "read RDMA port mlx5_0/1", "ib.port"),
])
def test_a_port_that_hangs_is_named_and_left_alone(tmp_path: Path, file: str, call: str, lost: str) -> None:
    """One worker is replaced, the port's signal says why it is not read, the other port goes on."""
    tree = Sysfs(tmp_path / "sys")
    port = tree.port("mlx5_0", "0000:9a:00.0")
    tree.port("mlx5_1", "0000:9b:00.0")
    if file == "state":
        (port / file).unlink()
    else:
        (port / "counters/link_downed").unlink()
        (port / "counters").rmdir()
    (port / file).symlink_to(tmp_path / "dead")

    async def main(rig: Rig) -> None:
        await until(lambda: rig.worker.status.pending_call == call)
        await until(lambda: rig.worker.status.restarts == 1)
        await until(lambda: isinstance(rig.value("ib.counters", "mlx5_1/1"), IbCounters))
        shown = rig.value(lost, "mlx5_0/1")
        assert isinstance(shown, Unread) and shown.kind is ErrorKind.TIMEOUT
        before = rig.sequence("ib.counters", "mlx5_1/1")
        await until(lambda: rig.sequence("ib.counters", "mlx5_1/1") > before)
        assert rig.worker.status.restarts == 1

    with DeadMount(tmp_path / "dead"):
        sampling(main, sys_root=str(tree.root))


def test_a_counter_is_read_again_when_it_answers(tmp_path: Path) -> None:
    """The file that was garbage is a count at last; nothing was restarted for it."""
    tree = Sysfs(tmp_path)
    file = tree.port("mlx5_0", "0000:9a:00.0", link_downed="7") / "counters/link_downed"

    async def main(rig: Rig) -> None:
        await until(lambda: rig.value("ib.counters", "mlx5_0/1") == IbCounters(link_downed_count=7))
        answers(file, "8")
        await until(lambda: rig.value("ib.counters", "mlx5_0/1") == IbCounters(link_downed_count=8))
        assert rig.worker.status.restarts == 0

    sampling(main, sys_root=str(tmp_path))
