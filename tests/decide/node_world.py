"""A node whose faults, Node object and clock a test drives by hand; decide is real, time is virtual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from nodeagent.decide import node_write
from nodeagent.decide.node_write import WriteOptions, Written
from nodeagent.memory import Hold, Memory
from nodeagent.model import NODE, Instant, NodeClass, Now, Op, State, Taint
from nodeagent.signals import Event, Reading, SignalKey, Snapshot
from tests.decide.api_model import ApiModel

GPU, DISK = "gpu-unhealthy", "node-unhealthy"
CHECKS = {"xid": GPU, "ecc.uncorrected": GPU, "disk.read_only": DISK}
"""Check -> the taint it asks for."""


class NodeWorld:
    """Memory, clock and API server."""

    def __init__(self, api: ApiModel | None = None) -> None:
        self.api = api or ApiModel()
        self.memory = Memory()
        self.saved = Memory()
        self.now_seconds = 1000.0
        self.boot_id = "boot-1"
        self.faults: dict[str, str] = {}
        """"check|target" -> check."""
        self.verdict = State.OK
        self.options = WriteOptions(enabled=True)
        self.entropy = 0.5
        self.events: list[Event] = []
        self.shown: Any = None
        """What the watch shows; None: the Node as it is."""
        self.written: Written | None = None

    def now(self) -> Now:
        """The moment."""
        return Now(at=Instant(boot_id=self.boot_id, monotonic_seconds=self.now_seconds,
                              wall_seconds=1.8e9 + self.now_seconds))

    def wanted(self) -> dict[str, node_write.Wanted]:
        """What the faults ask for: the first in order of name gives the value."""
        by_key: dict[str, list[str]] = {}
        for name, check in sorted(self.faults.items()):
            by_key.setdefault(f"nodeagent.io/{CHECKS[check]}", []).append(name)
        taints = tuple(
            Taint(key=key, value=names[0].partition("|")[0], effect="NoSchedule")
            for key, names in sorted(by_key.items()))
        return node_write.by_identity(taints, {key: tuple(names) for key, names in by_key.items()})

    def holds(self) -> dict[str, Hold]:
        """The same as holds."""
        return {name: Hold(state=State.CRITICAL, since=self.now().at, node_class=NodeClass.RESET)
                for name in self.faults}

    def decide(self, read_age_seconds: float = 0.0) -> tuple[Op, ...]:
        """One cycle; the ops of its plan."""
        reading = Reading(value=self.shown or self.api.node(), sequence=1,
                          read_at_seconds=self.now_seconds - read_age_seconds)
        snapshot = Snapshot(now=self.now(), node_name="gpu-a17", events=tuple(self.events),
                            readings={SignalKey("cluster.node", NODE): reading}, entropy=self.entropy)
        self.events = []
        memory = msgspec.structs.replace(self.memory, holds=self.holds())
        verdict = State.CRITICAL if self.faults else self.verdict
        self.written = node_write.step(
            self.options, snapshot, memory, self.wanted(), verdict, prefix="nodeagent.io")
        self.memory = self.written.memory
        return self.written.plan.ops if self.written.plan is not None else ()

    def save(self) -> None:
        """What the state file holds from now on."""
        self.saved = msgspec.json.decode(msgspec.json.encode(self.memory), type=Memory)

    def restart(self) -> None:
        """kill -9 and start: only what was saved is known, and no outcome is."""
        self.memory, self.events = self.saved, []

    def cycle(self, before: Callable[[Op], bool] = lambda _: True, seconds: float = 15.0) -> tuple[Op, ...]:
        """Decide, save, carry out, let time pass; `before` an op returns False for a kill."""
        ops = self.decide()
        self.save()
        for op in ops:
            if not before(op):
                self.restart()
                break
            self.events.append(self.api.perform(op))
        self.now_seconds += seconds
        return ops

    def settle(self, cycles: int = 12, before: Callable[[Op], bool] = lambda _: True) -> None:
        """Cycles until nothing more happens."""
        for _ in range(cycles):
            self.cycle(before)

    def state(self) -> tuple[object, ...]:
        """What an API server can be asked: taints, ledger without times, conditions without times, events."""
        conditions = {
            kind: (c["status"], c.get("reason"), c.get("message")) for kind, c in self.api.conditions.items()}
        ledger = {k: [(e["key"], e.get("value")) for e in msgspec.json.decode(v).get("taints", [])]
                  for k, v in self.api.annotations.items() if k.startswith("nodeagent.io/")}
        events = sorted((e["reason"], e["note"]) for e in self.api.events.values())
        return self.api.taints, ledger, conditions, events
