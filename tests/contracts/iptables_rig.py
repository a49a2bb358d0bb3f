"""Both writers in a private node with neighbours: the wanted state, and verbs to run inside it."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from nodeagent.drivers.ipset import IpSets, SetSpec
from nodeagent.drivers.iptables import ChainReading, RuleWriter, choose_backend, open_rules
from nodeagent.errors import DriverError
from nodeagent.traffic import MarkState, Rule
from tests.netns.world import World

EGRESS, HOST_OUT, HOST_PODS = "NODEAGENT-EGRESS", "NODEAGENT-HOST-OUT", "NODEAGENT-HOST-PODS"
_MOUNTS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
CGROUP2 = next((path for path in _MOUNTS if Path(path, "cgroup.procs").exists()), _MOUNTS[1])
# Loading python-iptables takes a third of a second: once here, not in each child.
importlib.import_module("nodeagent.drivers.iptables.legacy")
PROGRAM = {4: "iptables", 6: "ip6tables"}


def wanted(family: int, uplinks: tuple[str, ...] = ("eth0",)) -> MarkState:
    """One of each kind of rule that the agent has."""

    def rule(chain: str, arguments: str) -> Rule:
        return Rule(chain=chain, arguments=arguments)

    return MarkState(
        family=family,
        chains=(EGRESS, HOST_OUT, HOST_PODS),
        rules=(
            rule(EGRESS, f"-d {'10.0.0.0/8' if family == 4 else 'fc00::/7'}"
                         ' -m comment --comment "nodeagent pods traffic=cluster-out" -j RETURN'),
            rule(EGRESS, f"-s {'192.0.2.7/32' if family == 4 else '2001:db8::7/128'}"),
            rule(EGRESS, f"-m set --match-set nodeagent-cluster{family} dst"
                         ' -m comment --comment "nodeagent pods traffic=cluster-out" -j RETURN'),
            rule(EGRESS, '-m comment --comment "nodeagent pods traffic=internet-out"'
                         " -j CLASSIFY --set-class 4e:f"),
            rule(EGRESS, f"-j SET --map-set nodeagent-out{family} src --map-mark --map-prio"),
            rule(EGRESS, f"-m set --match-set nodeagent-out{family} src"),
            rule(HOST_OUT, '-m comment --comment "iptables-exporter node traffic=internet-out"'),
            rule(HOST_OUT, f"-j {HOST_PODS}"),
        ),
        jumps=(
            *(rule("FORWARD", f"-o {uplink} -j {EGRESS}") for uplink in uplinks),
            *(rule("POSTROUTING", f"-o {uplink} -j {HOST_OUT}") for uplink in uplinks),
        ),
    )  # fmt: skip


class Node:
    """The node of a world with neighbours, whose iptables is of one backend."""

    def __init__(self, world: World, backend: str) -> None:
        self.world, self.backend = world, backend
        world.neighbours(backend)
        self.before = world.dump()
        world.inside("node", _make_sets)

    def iptables(self, family: int, *words: str) -> str:
        """Run the backend's own program on mangle."""
        return self.world.command("node", f"{PROGRAM[family]}-{self.backend}", "-w", "-t", "mangle", *words)

    def ensure(self, state: MarkState) -> tuple[str, ...]:
        """The verb, in the node."""
        return self.world.inside("node", _with_writer, self.backend, lambda w: w.ensure(state))

    def ensure_lines(self, family: int, *arguments: str) -> dict[str, DriverError]:
        """The verb on the chain of hostNetwork pods."""
        rules = tuple(Rule(chain=HOST_PODS, arguments=text) for text in arguments)
        return self.world.inside(
            "node", _with_writer, self.backend, lambda w: w.ensure_lines(family, HOST_PODS, rules)
        )

    def read(self, family: int) -> ChainReading:
        """The verb, in the node."""
        return self.world.inside("node", _with_writer, self.backend, lambda w: w.read(family))

    def remove(self, family: int) -> tuple[str, ...]:
        """The verb, in the node."""
        return self.world.inside("node", _with_writer, self.backend, lambda w: w.remove(family))

    def mark_users(self, mask: int) -> tuple[str, ...]:
        """The verb, in the node."""
        return self.world.inside("node", _with_writer, self.backend, lambda w: w.mark_users(mask))

    def expect_as_before(self) -> None:
        """Remove what is ours; everything else must be as the neighbours left it."""
        assert self.world.inside("node", _remove_all, self.backend) == [(), ()]
        assert self.world.dump() == self.before


async def _with_writer(backend: str, verb: Callable[[RuleWriter], Awaitable[object]]) -> object:
    return await verb(open_rules(await choose_backend(f"/usr/sbin/iptables-{backend}")))


async def _make_sets() -> None:
    for family in (4, 6):
        await IpSets().ensure(SetSpec(name=f"nodeagent-cluster{family}", kind="hash:net", family=family))
        out = SetSpec(name=f"nodeagent-out{family}", family=family, counters=True, comment=True, skbinfo=True)
        await IpSets().ensure(out)


async def _remove_all(backend: str) -> list[tuple[str, ...]]:
    """What a second removal of each family writes; the sets can go only when no rule names them."""
    writer = open_rules(await choose_backend(f"/usr/sbin/iptables-{backend}"))
    for family in (4, 6):
        await writer.remove(family)
    again = [await writer.remove(family) for family in (4, 6)]
    for name in await IpSets().read():
        await IpSets().destroy(name)
    return again


@contextlib.contextmanager
def cgroup(name: str) -> Iterator[str]:
    """A cgroup of version 2 while the body runs; its path as a rule names it."""
    path = Path(CGROUP2, f"nodeagent-test-{os.getpid()}", name)
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield str(path.relative_to(CGROUP2))
    finally:
        for folder in (path, path.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()
