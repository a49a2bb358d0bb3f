"""What tests ask of a shaped node: the kernel's own numbers of the classes, by tc and not by the agent."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from msgspec import Struct

from nodeagent.shape import IFB_NAME
from nodeagent.traffic import HTB_MAJOR
from tests.netns.agent import NetAgent, Pod
from tests.netns.world import World

_CLASS = re.compile(
    r"class htb (?P<id>\S+) .*?rate (?P<rate>\S+) ceil (?P<ceil>\S+).*\n"
    r" Sent (?P<sent>\d+) bytes \d+ pkt \(dropped (?P<drops>\d+),"
)
PRODUCTION_PERIODS: dict[str, float] = {}
"""Production's own periods: how soon is part of what is asked."""


class Class(Struct, frozen=True, kw_only=True):
    """One HTB class as tc shows it."""

    ceil_bits_per_second: int
    rate_bits_per_second: int
    sent_bytes: int
    drops_count: int
    began_seconds: float
    ended_seconds: float
    """CLOCK_MONOTONIC before and after it was read: on a busy machine far apart."""


class Rate(Struct, frozen=True, kw_only=True):
    """Bits per second of the wire between two looks, as exactly as the looks were."""

    least: float
    most: float

    def is_within(self, least: float, most: float) -> bool:
        """True unless the rate is certainly outside."""
        return self.most >= least and self.least <= most


def classes(world: World) -> dict[str, Class]:
    """By class id; none where the ifb is not there."""
    began_seconds = time.monotonic()
    text = world.command("node", "tc", "-s", "class", "show", "dev", IFB_NAME, check=False)
    ended_seconds = time.monotonic()
    return {
        one["id"]: Class(
            ceil_bits_per_second=_bits(one["ceil"]), rate_bits_per_second=_bits(one["rate"]),
            sent_bytes=int(one["sent"]), drops_count=int(one["drops"]),
            began_seconds=began_seconds, ended_seconds=ended_seconds,
        )
        for one in _CLASS.finditer(text)
    }


def _bits(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\w*)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}[unit]


def rate(before: Class, after: Class) -> Rate:
    """Between two looks at one class."""
    sent_bits = 8 * (after.sent_bytes - before.sent_bytes)
    return Rate(
        least=sent_bits / (after.ended_seconds - before.began_seconds),
        most=sent_bits / (after.began_seconds - before.ended_seconds),
    )


def class_of(agent: NetAgent, one: Pod) -> str:
    """Class id of a pod, from its entry in the kernel."""
    address = one["status"]["podIPs"][0]["ip"]
    text = agent.world.command("node", "ipset", "save", f"nodeagent-out{6 if ':' in address else 4}")
    entry = re.search(rf"add \S+ {re.escape(address)} .*?skbprio (\w+):(\w+)", text)
    assert entry is not None, text
    assert int(entry[1], 16) == HTB_MAJOR
    return f"{HTB_MAJOR:x}:{int(entry[2], 16):x}"


def limit_of(agent: NetAgent, one: Pod) -> int:
    """Bits per second of a pod's class."""
    return classes(agent.world)[class_of(agent, one)].ceil_bits_per_second


def filters(world: World, device: str = "eth0") -> str:
    """Egress filters of a device."""
    return world.command("node", "tc", "filter", "show", "dev", device, "egress", check=False)


def is_shaped(agent: NetAgent, *pods: Pod, devices: tuple[str, ...] = ("eth0",)) -> bool:
    """True when each pod's class stands under its entry, and every uplink leads to the ifb."""
    held = classes(agent.world)
    return (
        agent.is_settled(*pods, uplinks=len(devices))
        and all(class_of(agent, one) in held for one in pods)
        and all(IFB_NAME in filters(agent.world, device) for device in devices)
    )


def settle(agent: NetAgent, *pods: Pod, devices: tuple[str, ...] = ("eth0",)) -> None:
    """Wait until the pods are marked and shaped."""
    agent.wait(lambda: is_shaped(agent, *pods, devices=devices), "the pods are shaped")


def within(holds: Callable[[], bool], deadline_seconds: float) -> float:
    """Seconds until something holds, or infinity when it does not in time."""
    began_seconds = time.monotonic()
    while time.monotonic() < began_seconds + deadline_seconds:
        if holds():
            return time.monotonic() - began_seconds
        time.sleep(0.02)
    return float("inf")
