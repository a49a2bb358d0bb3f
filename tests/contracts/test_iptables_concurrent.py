"""Others write at the same time: nobody's change is lost, and nobody is waited for."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.drivers.iptables import choose_backend, open_rules
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import MarkState
from tests import processes
from tests.contracts.iptables_rig import PROGRAM, Node, wanted

WRITES = 25


@contextlib.contextmanager
def locked(node: Node) -> Iterator[None]:
    """The lock of iptables, held by a process that is not the agent."""
    with Path(node.world.environment["XTABLES_LOCKFILE"]).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def foreign_writer(node: Node, family: int) -> subprocess.Popen[bytes]:
    """Another agent that appends its rules one by one, each waiting for its turn."""
    program = f"{PROGRAM[family]}-{node.backend} -w -t mangle"
    rule = f"{program} -A KUBE-PROXY-CANARY -m comment --comment theirs-$n"
    script = f"for n in $(seq {WRITES}); do {rule} || exit 1; done"
    return node.world.start("node", ["sh", "-c", script])


async def write_while(backend: str, family: int, pid: int) -> dict[str, int]:
    """Write our rules and take them back while the process lives; how often each thing came of it."""
    writer = open_rules(await choose_backend(f"/usr/sbin/iptables-{backend}"))
    outcomes: dict[str, int] = {}
    while processes.state(pid) not in ("", "Z"):
        for state in (wanted(family), MarkState(family=family)):
            try:
                await writer.ensure(state)
                outcome = "written"
            except DriverError as error:
                outcome = error.kind.value
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def test_no_change_of_another_process_is_undone(node: Node, family: int) -> None:
    """Each of its rules is there at the end, though we wrote in between, again and again."""
    writer = foreign_writer(node, family)
    outcomes = node.world.inside("node", write_while, node.backend, family, writer.pid)
    assert writer.wait() == 0
    assert outcomes.get("written", 0) >= 2
    assert set(outcomes) <= {"written", "busy"}
    listed = node.iptables(family, "-S", "KUBE-PROXY-CANARY")
    assert [f"theirs-{n}" for n in range(1, WRITES + 1) if f"theirs-{n}\n" not in f"{listed}\n"] == []
    node.iptables(family, "-F", "KUBE-PROXY-CANARY")


def test_a_held_lock_is_busy_at_once(node: Node, family: int) -> None:
    """Legacy: A10, the xtables lock held by somebody else. Nothing is written; nft has no such lock."""
    before = node.world.dump()
    with locked(node):
        if node.backend == "nft":
            assert node.ensure(wanted(family)) != ()
            return
        with pytest.raises(DriverError) as refused:
            node.ensure(wanted(family))
        assert refused.value.kind is ErrorKind.BUSY
        assert refused.value.detail == "another process holds the xtables lock"
        assert node.read(family).state == MarkState(family=family)
        assert node.world.dump() == before
    assert node.ensure(wanted(family)) != ()


def test_a_look_needs_no_lock(node: Node, family: int) -> None:
    """What is as wanted is neither written nor locked, however long somebody else holds the lock."""
    node.ensure(wanted(family))
    with locked(node):
        assert node.ensure(wanted(family)) == ()
        assert node.read(family).state == wanted(family)


def test_the_lock_is_free_after_a_write_and_after_a_refusal(node: Node, family: int) -> None:
    """iptables itself gets it without waiting."""
    node.ensure(wanted(family))
    with pytest.raises(DriverError):
        node.ensure(MarkState(family=family, chains=("FORWARD",)))
    node.world.command("node", f"{PROGRAM[family]}-{node.backend}", "-t", "mangle", "-S")
    with Path(node.world.environment["XTABLES_LOCKFILE"]).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
