"""What the socket answers: the last cycle's result, looked at from the moment of the request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from nodeagent import __version__
from nodeagent.drivers import users
from nodeagent.drivers.clock import Clock
from nodeagent.memory import Memory
from nodeagent.model import NODE, Decision, Now
from nodeagent.net_surface import NetSurface, Network
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.report import metrics, schema, status
from nodeagent.report.given import ReportInput
from nodeagent.report.server import BadRequest, CommandAnswer
from nodeagent.settings import Settings
from nodeagent.signals import (
    GpuCommand,
    NodeCommand,
    SignalKey,
    SilenceCommand,
    Snapshot,
    WorkerStatus,
    read_as,
)
from nodeagent.silence_surface import SilenceSurface

FRESH_DEADLINE_SECONDS = 10.0
RELEASE_DEADLINE_SECONDS = 20.0
HEALTHY_SECONDS = 60.0
"""A cycle older than this means that the loop does not tick."""


class Refreshable(Protocol):
    """A sampler that can be asked to read at once."""

    def request_now(self) -> None:
        """Read as soon as the worker is free."""


class AgentSurface:
    """Implements the server's Surface over the daemon's parts."""

    def __init__(
        self, *, clock: Clock, board: Board, inbox: Inbox, samplers: tuple[Refreshable, ...],
        known_checks: frozenset[str], network: Network,
    ) -> None:
        self._clock = clock
        self._board = board
        self._inbox = inbox
        self._samplers = samplers
        self._known_checks = known_checks
        self._cycled = asyncio.Event()
        self._given: ReportInput | None = None
        self._net = NetSurface(network, self._now_given, clock.monotonic_seconds)
        self.silencing = SilenceSurface(
            given=self._now_given, inbox=inbox, next_cycle=self._next_cycle, known_checks=known_checks,
            user_name=users.user_name,
        )
        self.is_ready = False
        self.requests_refused: Mapping[str, int] = {}
        """Counted by the server."""

    def publish(
        self, decision: Decision | None, memory: Memory, snapshot: Snapshot, settings: Settings, *,
        cycle_number: int, cycles_seconds_total: float, config_files: tuple[str, ...],
        config_error: str,
    ) -> ReportInput:
        """Make this cycle's result the one that is answered with; decision None: none has ended."""
        self._given = ReportInput(
            decision=decision, memory=memory, snapshot=snapshot, settings=settings,
            version=__version__, ready=self.is_ready, cycle_number=cycle_number,
            cycles=cycle_number, cycles_seconds_total=cycles_seconds_total,
            config_files=config_files, config_error=config_error,
        )
        self._cycled.set()
        self._cycled = asyncio.Event()
        return self._given

    def _now_given(self) -> ReportInput:
        if self._given is None:
            raise BadRequest("the first cycle has not ended yet; ask again in a few seconds")
        snapshot = self._given.snapshot
        now = Now(at=self._clock.instant(), clock_synchronized=snapshot.now.clock_synchronized)
        return msgspec.structs.replace(
            self._given, now=now, ready=self.is_ready, requests_refused=dict(self.requests_refused)
        )

    def status_json(self) -> bytes:
        """The status report, schema nodeagent/status/v1."""
        return schema.encode(status.build_status(self._now_given()))

    def checks_json(self) -> bytes:
        """Every row, schema nodeagent/check/v1."""
        return schema.encode(status.build_check(self._now_given()))

    def history_json(self, since_seconds: float | None) -> bytes:
        """Transitions of the last `since_seconds`, None = all that are kept."""
        return schema.encode(status.build_history(self._now_given(), since_seconds=since_seconds))

    def metrics_text(self) -> tuple[bytes, str]:
        """The exposition page and its content type."""
        return metrics.exposition(self._now_given())

    async def net_top(self) -> bytes:
        """Pods with their bytes, read now."""
        return await self._net.top()

    async def net_show(self, pod: str) -> bytes:
        """One pod, read now."""
        return await self._net.show(pod)

    async def net_diff(self) -> bytes:
        """What is pending, read now."""
        return await self._net.diff()

    def healthy(self) -> bool:
        """True while cycles end."""
        if self._given is None:
            return False
        then = self._given.snapshot.now.at
        return self._clock.monotonic_seconds() - then.monotonic_seconds < HEALTHY_SECONDS

    def ready(self) -> bool:
        """True once every signal was tried and judged."""
        return self.is_ready and self._given is not None and self._given.decision is not None

    async def check_now(self, ids: tuple[str, ...]) -> bytes:
        """Read now, judge, answer the rows of `ids` (all when empty)."""
        unknown = sorted(set(ids) - self._known_checks)
        if unknown:
            raise BadRequest(f"no check {unknown[0]!r}; known are {', '.join(sorted(self._known_checks))}")
        began_seconds = time.monotonic()
        asked_seconds = self._clock.monotonic_seconds()
        for sampler in self._samplers:
            sampler.request_now()
        await self._until(lambda: self._fresh_since(asked_seconds), FRESH_DEADLINE_SECONDS)
        await self._next_cycle()
        taken_seconds = time.monotonic() - began_seconds
        report = status.build_check(self._now_given(), ids, duration_seconds=taken_seconds)
        return schema.encode(report)

    def _fresh_since(self, asked_seconds: float) -> bool:
        """True when no worker has a request of ours outstanding."""
        readings = self._board.readings()
        wanted = [SignalKey("clock.sync", NODE)]
        nvml = readings.get(SignalKey("worker.nvml", NODE))
        if nvml is not None and nvml.value.state in ("idle", "reading"):
            wanted.append(SignalKey("gpu.driver", NODE))
        return all(k in readings and readings[k].read_at_seconds >= asked_seconds for k in wanted)

    async def command(self, command: GpuCommand) -> CommandAnswer:
        """Hand a command to the next cycle and answer when it has been carried out."""
        given = self._now_given()
        if command.verb == "repaired":
            command = msgspec.structs.replace(command, target=_pci_address(command.target, given.memory))
        self._inbox.put(command, urgent=True)
        await self._next_cycle()
        if command.verb == "repaired":
            return CommandAnswer(ok=True, sentence=f"{command.target} is taken as repaired; "
                                 "faults that reads do not show again will clear")
        wanted = command.verb == "release"
        done = await self._until(lambda: self._is_released() is wanted, RELEASE_DEADLINE_SECONDS)
        return _answer(wanted, done, self._now_given(), self._nvml())

    async def node_command(self, command: NodeCommand) -> CommandAnswer:
        """Hand a command on writes to the Node to the next cycle; answer what holds from then on."""
        self._now_given()
        self._inbox.put(command, urgent=True)
        await self._next_cycle()
        given = self._now_given()
        held = given.decision.node_writes.held if given.decision is not None else ""
        sentence = {
            "pause": f"nothing is written to the API server: {held}",
            "unpause": f"still nothing is written: {held}" if held else "writes to the API server go on",
            "release": "our taints, ledger and conditions are taken off the Node"
            + (f", once it may be written: {held}" if held else "") + "; undo: nodeagent node resume",
            "resume": "faults are written to the Node again",
        }[command.verb]
        return CommandAnswer(ok=True, sentence=sentence)
    def silences_json(self) -> bytes:
        """Silences that stand, schema nodeagent/silence/v1."""
        return self.silencing.report()

    async def silence(self, asked: tuple[SilenceCommand, ...]) -> CommandAnswer:
        """Begin silences, or end them; answered when that is done and saved."""
        ends = any(command.ends is not None for command in asked)
        return await (self.silencing.end(asked) if ends else self.silencing.begin(asked))

    def _nvml(self) -> WorkerStatus | None:
        return read_as(self._board.readings().get(SignalKey("worker.nvml", NODE)), WorkerStatus)

    def _is_released(self) -> bool:
        nvml = self._nvml()
        return nvml is not None and nvml.state == "released"

    async def _next_cycle(self) -> None:
        """Wait until a cycle that saw everything put so far has ended."""
        cycled = self._cycled
        self._inbox.wake()
        try:
            async with asyncio.timeout(FRESH_DEADLINE_SECONDS):
                await cycled.wait()
        except TimeoutError:
            raise BadRequest("the agent's cycle did not end in time; ask again") from None

    async def _until(self, holds: Callable[[], bool], deadline_seconds: float) -> bool:
        """Poll a condition of the board until it holds or the deadline passes."""
        end_seconds = time.monotonic() + deadline_seconds
        while not holds():
            if time.monotonic() > end_seconds:
                return False
            await asyncio.sleep(0.05)
        return True


def _pci_address(target: str | None, memory: Memory) -> str:
    """The PCI address that a person means by an index, a UUID or an address; a switch, or a GPU that was
    never enumerated, is known by its faults alone."""
    for pci, gpu in memory.gpus.items():
        if target in (pci, gpu.uuid, str(gpu.index)):
            return pci
    if target is not None and any(record.pci_address == target for record in memory.xids.values()):
        return target
    known = ", ".join(f"{gpu.index} = {pci}" for pci, gpu in sorted(memory.gpus.items()))
    raise BadRequest(f"no GPU {target!r} on this node; known are {known or 'none'}")


def _answer(wanted: bool, done: bool, given: ReportInput, nvml: WorkerStatus | None) -> CommandAnswer:
    if nvml is None or nvml.state == "absent":
        return CommandAnswer(ok=True, sentence="no GPU is read on this node; nothing is held")
    if not done:
        call = nvml.pending_call or "an unnamed call"
        return CommandAnswer(ok=False, sentence=f"the NVML worker (pid {nvml.pid}) is still in {call}; "
                             "it is not killed inside a driver call: nodeagent status")
    release = given.memory.release
    if wanted and release is not None and release.until_seconds is not None:
        left_seconds = release.until_seconds - given.moment.at.monotonic_seconds
        return CommandAnswer(ok=True, sentence=f"NVML is released for {left_seconds:.0f} s; "
                             "reset now, then: nodeagent gpu resume")
    return CommandAnswer(ok=True, sentence="NVML is released" if wanted else "NVML is read again")
