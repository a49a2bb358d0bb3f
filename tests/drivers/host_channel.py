"""What the network part of the host worker says, decoded: a channel that keeps it, and one read-all of it."""

from __future__ import annotations

from typing import Any

from nodeagent import wire
from nodeagent.drivers.host.network import NetworkReader


class Heard:
    """In place of the pipe to the daemon."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.values: dict[str, Any] = {}
        """`signal@target` -> noun or Unread."""

    def send(self, message: wire.Message) -> None:
        """Keep a value as the daemon would decode it."""
        decoded = wire.decode_message(wire.encode(message))
        assert isinstance(decoded, wire.Value | wire.Missing)
        value = decoded.typed() if isinstance(decoded, wire.Value) else decoded.unread
        self.values[f"{decoded.signal}@{decoded.target}"] = value

    def mark(self, call: str, target: str = "") -> None:
        """Keep what is about to be called."""
        self.marks.append(f"{call} {target}".rstrip())

    def clear(self) -> None:
        """Forget what was heard."""
        self.marks.clear()
        self.values.clear()


def read_network(arguments: wire.HostArguments) -> dict[str, Any]:
    """Every signal of one read-all in this process's network namespace."""
    heard = Heard()
    NetworkReader(heard).read(arguments)  # type: ignore[arg-type]  # the same two methods
    return heard.values
