"""The world that other tests stand on: it is joined as drawn, tells what changed, and goes away."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from nodeagent.errors import DriverError, ErrorKind
from tests.netns.conftest import MakeWorld
from tests.netns.world import BACKENDS, INSIDE_POD, INTERNET, INTERNET_SECOND, NODE, POD_A, POD_B, World

PATHS = [
    ("pod-a", POD_B), ("pod-a", INSIDE_POD), ("pod-a", INTERNET), ("pod-b", INTERNET_SECOND),
    ("node", INTERNET), ("node", POD_A), ("outside", POD_A), ("inside", POD_B), ("pod-a", NODE),
]  # fmt: skip


def refuses(address: str) -> bool:
    """True when a connection is answered with a refusal: packets went there and came back."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as connection:
        connection.settimeout(5)
        return connection.connect_ex((address, 9)) == 111


def devices() -> list[str]:
    """Network devices as /sys names them."""
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def fail_as_a_driver() -> None:
    """An error that is made of more than its text."""
    raise DriverError(ErrorKind.BUSY, "mangle", "write", "the lock is taken")


def test_everything_is_joined_in_both_families(make_world: MakeWorld) -> None:
    """Each pair that is drawn together exchanges packets."""
    world = make_world(masquerade=True, second_uplink=True)
    lost = [(name, to[f]) for f in (4, 6) for name, to in PATHS[:6] if not world.inside(name, refuses, to[f])]
    assert lost == []


def test_pods_are_reached_from_outside_without_masquerade(world: World) -> None:
    """The routes back exist, so that a test may choose to have no address translation."""
    lost = [(name, to[f]) for f in (4, 6) for name, to in PATHS if not world.inside(name, refuses, to[f])]
    assert lost == []


def test_a_child_is_in_its_namespace_and_the_test_is_not(world: World) -> None:
    """It sees the namespace's devices in /sys; this process goes on seeing its own."""
    before = devices()
    assert world.inside("pod-a", devices) == ["eth0", "lo"]
    assert world.inside("node", devices) == ["eth0", "lo", "vetha", "vethb"]
    assert devices() == before


def test_an_error_comes_back_as_what_it_was(world: World) -> None:
    """Kind and detail of a DriverError cross the process border."""
    with pytest.raises(DriverError) as failed:
        world.inside("node", fail_as_a_driver)
    assert (failed.value.kind, failed.value.detail) == (ErrorKind.BUSY, "the lock is taken")


def test_a_child_that_dies_fails_the_call(world: World) -> None:
    """An end without an answer is not a result."""
    with pytest.raises(RuntimeError, match="died"):
        world.inside("node", os._exit, 1)


CHANGES = [
    ("iptables-nft", "-t", "mangle", "-A", "FORWARD", "-j", "ACCEPT"),
    ("iptables-legacy", "-t", "nat", "-N", "LEFT"),
    ("ip6tables-nft", "-t", "filter", "-P", "FORWARD", "DROP"),
    ("ip6tables-legacy", "-t", "mangle", "-I", "FORWARD"),
    ("nft", "add", "table", "inet", "left"),
    ("ipset", "add", "KUBE-CLUSTER-IP", "10.0.0.9,tcp:1"),
    ("tc", "qdisc", "add", "dev", "vetha", "clsact"),
    ("ip", "link", "set", "eth0", "mtu", "1400"),
    ("ip", "address", "add", "10.9.9.9/32", "dev", "eth0"),
    ("ip", "route", "add", "192.0.2.0/24", "dev", "eth0"),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_dump_shows_every_change_and_nothing_else(make_world: MakeWorld, backend: str) -> None:
    """Traffic, a look at empty tables and time change nothing; one rule, set, filter or link does."""
    world = make_world(masquerade=True)
    world.neighbours(backend)
    before = world.dump()
    assert world.inside("pod-a", refuses, INTERNET[4])
    world.command("node", "iptables-legacy", "-t", "mangle", "-L")
    world.command("node", "iptables-nft", "-t", "raw", "-L")
    assert world.dump() == before
    for change in CHANGES:
        world.command("node", *change)
        after = world.dump()
        assert after != before, change
        before = after


def test_nothing_is_left_when_a_test_fails(make_world: MakeWorld) -> None:
    """Namespaces, processes and files go also when the body raises."""
    with pytest.raises(KeyError), World() as world:
        sleeper = world.start("pod-a", ["sleep", "60"])
        raise KeyError
    assert sleeper.returncode is not None
    assert not world.folder.exists()
    assert [path for path in Path("/run/netns").iterdir() if path.name.startswith(world.prefix)] == []
    assert make_world is not None


def test_what_a_killed_run_left_goes_with_the_next_world(make_world: MakeWorld) -> None:
    """Namespaces named after a process that is no more are removed."""
    first = make_world()
    left = f"nanet{_dead_pid()}x0-node"
    first.command("node", "ip", "netns", "add", left)
    make_world()
    assert not (Path("/run/netns") / left).exists()
    assert (Path("/run/netns") / first.name("node")).exists()


def _dead_pid() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid
