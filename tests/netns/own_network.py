"""The node of a world as the host worker sees it, judged on virtual time: a real kernel, and no waiting."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from nodeagent import wire
from nodeagent.model import CheckRow
from nodeagent.settings import Settings
from tests.drivers.host_channel import read_network
from tests.netns.world import World
from tests.scenarios import world as scenario

SIGNALS = tuple(f"{signal.partition('@')[0]}@" for signal in scenario.healthy_network())


class OwnNetwork:
    """Polls of 15 s, each of which reads the namespace anew."""

    def __init__(self, world: World, settings: Settings | None = None, **arguments: Any) -> None:
        """`arguments`: of the host worker's read-all."""
        self._world = world
        self._arguments = wire.HostArguments(**arguments)
        self.node = scenario.World(settings=settings)
        self.values: dict[str, Any] = {}

    def poll(self, count: int = 1) -> None:
        """Read and judge so often."""
        for _ in range(count):
            self.values = self._world.inside("node", read_network, self._arguments)
            others = {name: value for name, value in self.node.values.items() if not _is_network(name)}
            read = {name.removesuffix("@node"): value for name, value in self.values.items()}
            self.node.values = {**others, **read}
            self.node.cycle()

    def row(self, check: str, target: str) -> CheckRow:
        """The row that `nodeagent check` shows."""
        return self.node.row(check, target)


def _is_network(name: str) -> bool:
    return f"{name.partition('@')[0]}@" in SIGNALS


def send_to(address: str, count: int = 1) -> None:
    """Datagrams to ports of an address, so that the kernel looks for the way and tracks the connection."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for port in range(20_000, 20_000 + count):
            sender.sendto(b"x", (address, port))


def carrier(world: World, *, up: bool, namespace: str = "node", device: str = "eth0") -> None:
    """Plug the cable of the node's uplink in or out, at its other end; returns when the kernel shows it."""
    world.command("switch", "ip", "link", "set", "node", "up" if up else "down")
    end_seconds = time.monotonic() + 10
    while world.inside(namespace, read_text, f"/sys/class/net/{device}/carrier") != str(int(up)):
        assert time.monotonic() < end_seconds, "the carrier did not change"


def read_text(path: str) -> str:
    """Content without blanks."""
    return Path(path).read_text(encoding="ascii").strip()


def proc_tree(root: Path, **limits: str) -> Path:
    """A /proc in which `limits` (path, `__` for the slash) are scripted and net/ is the kernel's own."""
    for name, text in limits.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    (root / "net").symlink_to("/proc/net")
    return root
