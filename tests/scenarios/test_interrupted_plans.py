"""A plan that a kill interrupts anywhere ends, after a restart, where an uninterrupted one ends."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from nodeagent.memory import Memory
from nodeagent.model import NODE
from nodeagent.signals import GpuCommand, WorkerStatus
from tests.scenarios.world import World

STEPS = ("decided", "saved", "performed")
"""Where the kill falls: after the decision, after the save, after the op."""
SCRIPTS = {
    "release": ("release",),
    "release and resume": ("release", "resume"),
    "release twice": ("release", "release"),
    "resume without a release": ("resume",),
    "resume between two releases": ("release", "resume", "release"),
}


class Node:
    """The judgement, a state file and the NVML worker, with a kill at a chosen step."""

    def __init__(self, kill_at: tuple[int, str] | None) -> None:
        self.world = World()
        self.on_disk = Memory()
        self.kill_at = kill_at
        self.cycles = 0
        self.show("idle")

    def show(self, state: str) -> None:
        """What the worker is."""
        pid = None if state == "released" else 7
        self.world.put({f"worker.nvml@{NODE}": WorkerStatus(state=state, pid=pid)})

    def dies(self, step: str) -> bool:
        """Kill and restart here if this is the chosen step; a release that was saved keeps NVML shut."""
        if (self.cycles, step) != self.kill_at:
            return False
        self.world.memory = msgspec.json.decode(msgspec.json.encode(self.on_disk), type=Memory)
        self.show("released" if self.world.memory.release is not None else "idle")
        return True

    def cycle(self) -> None:
        """Decide, save, then carry out, as the daemon does."""
        self.cycles += 1
        self.world.cycle()
        if self.dies("decided"):
            return
        self.on_disk = self.world.memory
        if self.dies("saved"):
            return
        for op in itertools.chain.from_iterable(plan.ops for plan in self.world.plans):
            self.show("released" if op.kind == "nvml.release" else "idle")
            if self.dies("performed"):
                return

    def run(self, script: tuple[str, ...]) -> tuple[bool, str]:
        """Each command, given again while a kill lost it before it was saved, then a few quiet cycles."""
        for verb in script:
            before = self.cycles
            self.world.emit(GpuCommand(verb=verb, for_seconds=3600.0, user_id=0))
            self.cycle()
            if self.kill_at == (before + 1, "decided"):
                self.world.emit(GpuCommand(verb=verb, for_seconds=3600.0, user_id=0))
                self.cycle()
        for _ in range(3):
            self.cycle()
        worker = self.world.values[f"worker.nvml@{NODE}"]
        return self.world.memory.release is not None, worker.state


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_plan_interrupted_anywhere_ends_as_the_uninterrupted_one(name: str) -> None:
    """Kill after the decision, the save or the op of each cycle: intent and worker end equal."""
    script = SCRIPTS[name]
    wanted = Node(None).run(script)
    ends = {
        (cycle, step): Node((cycle, step)).run(script)
        for cycle in range(1, len(script) + 4)
        for step in STEPS
    }

    assert {where: end for where, end in ends.items() if end != wanted} == {}
    assert wanted[0] is (wanted[1] == "released")
