"""A node with neighbours in tc, the shaper's verbs run in it, and what is asked of both."""

from __future__ import annotations

import re
from typing import Any

from nodeagent.drivers.tc import Matcher, Shaper
from nodeagent.drivers.tc.write import PREFERENCE
from nodeagent.shape import IFB_NAME, ROOT_MINOR, ShapeClass, ShapeReading
from nodeagent.traffic import DEFAULT_MINOR
from tests.netns.world import World

FOREIGN = (
    ("link", "add", "foreign0", "type", "ifb"),
    ("link", "set", "foreign0", "up"),
)
FOREIGN_TC = (
    ("qdisc", "add", "dev", "foreign0", "root", "handle", "7:", "htb", "default", "1"),
    ("class", "add", "dev", "foreign0", "parent", "7:", "classid", "7:1", "htb", "rate", "1mbit"),
    ("qdisc", "add", "dev", "eth0", "root", "handle", "8:", "pfifo", "limit", "321"),
)
FOREIGN_CLSACT = (
    ("qdisc", "add", "dev", "eth0", "clsact"),
    *(
        ("filter", "add", "dev", "eth0", side, "pref", pref, "protocol", "ip", "u32",
         "match", "ip", "dst", "192.0.2.0/24", "flowid", "1:1")
        for side in ("egress", "ingress") for pref in ("10", "49000")
    ),
)  # fmt: skip


def shape_class(minor: int, parent: int = ROOT_MINOR, **fields: Any) -> ShapeClass:
    """A leaf of 8 Mbit/s under the root class."""
    return ShapeClass(**{
        "minor": minor, "parent": parent, "rate_bytes_per_second": 125_000,
        "ceil_bytes_per_second": 1_000_000, "burst_bytes": 65_536, "cburst_bytes": 65_536,
        "quantum_bytes": 1_500, "leaf_limit_bytes": 50_000, **fields,
    })  # fmt: skip


def root_class(bytes_per_second: int = 125_000_000) -> ShapeClass:
    """The budget."""
    return shape_class(
        ROOT_MINOR, 0, rate_bytes_per_second=bytes_per_second, ceil_bytes_per_second=bytes_per_second,
        burst_bytes=bytes_per_second // 200, cburst_bytes=bytes_per_second // 200, quantum_bytes=0,
        leaf_limit_bytes=0,
    )  # fmt: skip


class Tc:
    """The verbs of a shaper, each by a fresh one: nothing is remembered but by the kernel."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tag = Matcher().load()[1]

    def __getattr__(self, verb: str) -> Any:
        return lambda *arguments: self.world.inside("node", _call, verb, arguments)

    def run(self, *words: str, check: bool = True) -> str:
        """`tc` on the node."""
        return self.world.command("node", "tc", *words, check=check)

    def ready(self, *classes: ShapeClass) -> None:
        """Make ifb, HTB, root and default class, and these."""
        self.ensure_ifb()
        self.ensure_htb(DEFAULT_MINOR)
        for one in (root_class(), shape_class(DEFAULT_MINOR), *classes):
            self.put_class(one)

    def put_filter(self, device: str = "eth0") -> bool:
        """Our filter, with our tag."""
        return bool(self.ensure_filter(device, self.tag))

    def held(self) -> ShapeReading:
        """What is there of ours."""
        reading = self.read()
        assert isinstance(reading, ShapeReading)
        return reading

    def remove_all(self) -> None:
        """Take away everything of ours in the order that loses nothing."""
        for one in self.held().state.filters:
            self.delete_filter(one.device)
        self.delete_ifb()

    def foreign_state(self) -> str:
        """The node's state without what is ours."""
        blocks = self.world.dump().split("== ")
        kept = [block for block in blocks if f"dev {IFB_NAME}" not in block.partition("\n")[0]]
        own = re.compile(rf".*(pref {PREFERENCE} |{IFB_NAME}).*\n(\tindex .*\n)?")
        lines = own.sub("", "== ".join(kept)).splitlines()
        return "\n".join(line.rstrip() for line in lines)


async def _call(verb: str, arguments: tuple[Any, ...]) -> object:
    return await getattr(Shaper(), verb)(*arguments)


def add_neighbours(world: World, *, clsact: bool = True) -> None:
    """A foreign ifb with HTB, a root qdisc on the uplink and, if asked, filters on both sides of clsact."""
    for words in FOREIGN:
        world.command("node", "ip", *words)
    for words in (*FOREIGN_TC, *(FOREIGN_CLSACT if clsact else ())):
        world.command("node", "tc", *words)
