"""A node's pods, links and kernel over time, driven through the one call that decides on pod traffic."""

from __future__ import annotations

import msgspec

from nodeagent.decide import network
from nodeagent.decide.limits import ShapeOptions
from nodeagent.decide.marks import MarkOptions
from nodeagent.memory import Memory
from nodeagent.model import NODE, Op, Plan
from nodeagent.signals import Reading, SignalKey, Snapshot, Unread
from nodeagent.traffic import LinkState, MarkReading, Pod, PodLink, PodList, PodPhase, Uplink
from tests.decide.build import BOOT, now
from tests.decide.mark_kernel import Kernel, Refused
from tests.decide.shape_kernel import KINDS, TrafficControl

OPTIONS = MarkOptions()


def pod(number: int, *addresses: str, **more: object) -> Pod:
    """A running pod; without addresses it is dual-stack with addresses of its own."""
    fields: dict[str, object] = {
        "uid": f"uid-{number:04}", "namespace": f"team-{number % 3}", "name": f"pod-{number}",
        "phase": PodPhase.RUNNING,
        "addresses": addresses or (f"10.244.1.{number}", f"fd00:244:1::{number:x}"),
    }
    return Pod(**(fields | more))  # type: ignore[arg-type]


def pod_list(*pods: Pod, skipped: int = 0) -> PodList:
    """A list from a file."""
    return PodList(source="file", pods=pods, skipped=skipped)


def links(*pod_links: PodLink, uplinks: tuple[str, ...] = ("eth0",), sent_bytes: int = 0) -> LinkState:
    """One uplink on 192.0.2.0/24, which no fixed prefix covers."""
    return LinkState(
        uplinks=tuple(
            Uplink(
                name=name, index=2 + i, mtu=1500, operational=True, rx_bytes=sent_bytes, tx_bytes=sent_bytes
            )
            for i, name in enumerate(uplinks)
        ),
        on_link_prefixes=("192.0.2.0/24",), own_addresses=("192.0.2.2", "2001:db8::2"),
        pod_links=pod_links, host_namespace=True,
    )


class World:
    """Pods, links, kernel and agent; each cycle is `step_seconds` later.

    A minute by default, which is the pace of the comparison, and after which a contested part is repaired.
    """

    def __init__(self, options: MarkOptions = OPTIONS, *, step_seconds: float = 61.0) -> None:
        self.step_seconds = step_seconds
        self.options = options
        self.kernel = Kernel()
        self.memory = Memory()
        self.saved = Memory()
        self.seconds = 1000.0
        self.boot_id = BOOT
        self.pods: PodList | Unread | None = pod_list()
        self.links: LinkState | Unread | None = links()
        self.users: tuple[str, ...] = ()
        self.sequence = 0
        self.last_readings: dict[SignalKey, Reading] = {}
        self.tc: TrafficControl | None = None
        """None: nothing reads or writes tc."""
        self.old_shape: Reading | None = None
        """What tc was when it was last read, where that is not now."""

    def reading(self) -> MarkReading:
        """The kernel as it would be read now."""
        return self.kernel.read(users=self.users)

    def decide(self, marks: MarkReading | Unread | None = None) -> Plan | None:
        """One cycle; the memory it leaves is saved, as before every plan."""
        self.seconds += self.step_seconds
        self.sequence += 1
        values = {
            "pods": self.pods, "net.links": self.links, "net.marks": marks or self.reading(),
            "net.shape": self.tc.read() if self.tc is not None else None,
        }  # fmt: skip
        readings = {
            SignalKey(name, NODE): Reading(value=value, read_at_seconds=self.seconds, sequence=self.sequence)
            for name, value in values.items() if value is not None
        }
        if self.old_shape is not None:
            readings[SignalKey("net.shape", NODE)] = self.old_shape
        self.last_readings = readings
        snapshot = Snapshot(
            now=now(self.seconds, boot_id=self.boot_id), node_name="gpu-a17", readings=readings
        )
        self.memory, plan = network.step(self.options, snapshot, self.memory)
        self.saved = self.memory
        return plan

    def cycle(self, cut: int | None = None, refuse: frozenset[int] = frozenset()) -> tuple[Op, ...]:
        """Decide and carry out the plan: at most `cut` ops of it, without those at the places in `refuse`."""
        plan = self.decide()
        ops = plan.ops if plan is not None else ()
        for place, op in enumerate(ops[:cut]):
            if place not in refuse:
                try:
                    self.apply(op)
                except Refused:
                    continue
        return ops

    def apply(self, op: Op) -> None:
        """Carry out one op; raises Refused."""
        if self.tc is not None and op.kind in KINDS:
            self.tc.apply(op)
        else:
            self.kernel.apply(op)

    def settle(self) -> int:
        """Cycles until nothing is planned or drains; fails when that takes more than four, eight with tc."""
        for count in range(5 if self.tc is None else 9):
            if not self.cycle() and not self.memory.shape.draining_seconds:
                return count
        raise AssertionError(f"still planning: {self.cycle()}")

    def restart(self) -> None:
        """Kill the agent and start it: what was saved goes through the file's form."""
        loaded = msgspec.json.decode(msgspec.json.encode(self.saved), type=Memory)
        self.memory = network.begin_run(loaded)

    def reboot(self) -> None:
        """A new boot: the kernel is empty, its clock starts anew."""
        self.restart()
        self.kernel, self.boot_id, self.seconds = Kernel(), self.boot_id + "x", 30.0
        self.tc = None if self.tc is None else TrafficControl()


def shaping_world(*, step_seconds: float = 61.0, **shaping: object) -> World:
    """A world with a budget of 1 Gbit/s, unless told otherwise."""
    asked = ShapeOptions(**({"budget_bits_per_second": 10**9} | shaping))  # type: ignore[arg-type]
    world = World(MarkOptions(shaping=asked), step_seconds=step_seconds)
    world.tc = TrafficControl()
    return world
