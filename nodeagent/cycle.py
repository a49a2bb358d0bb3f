"""One cycle: freeze, decide, hand out. It never waits for anything, so nothing outside can stop it."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping

from nodeagent import __version__
from nodeagent.act.executor import Executor
from nodeagent.act.saver import Saver
from nodeagent.decide import mark_plan, network
from nodeagent.decide.check import Check
from nodeagent.decide.decide import decide
from nodeagent.decide.marks import MarkOptions
from nodeagent.decide.node_write import WriteOptions
from nodeagent.decide.xid_table import XidTable
from nodeagent.drivers.clock import Clock
from nodeagent.memory import Memory
from nodeagent.model import Decision, Notice, Plan
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.pace import woken
from nodeagent.observe.snapshot import freeze
from nodeagent.report import changes
from nodeagent.report.given import ReportInput
from nodeagent.settings import Settings
from nodeagent.signals import Snapshot

PACE_SECONDS = 15.0
"""Health pace: a cycle at least this often."""
GAP_SECONDS = 0.2
"""Least time between two cycles, however urgent."""

Publish = Callable[[Decision, Memory, Snapshot, Settings], None]
Tell = Callable[[Notice], None]


class Cycle:
    """Holds Settings and Memory between cycles; everything else it has is handed to it."""

    def __init__(
        self, *, settings: Settings, memory: Memory, board: Board, inbox: Inbox, clock: Clock,
        table: XidTable, checks: Mapping[str, Check], publish: Publish, tell: Tell,
        marking: Callable[[], MarkOptions | None] = lambda: None,
        writing: Callable[[], WriteOptions | None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.memory = memory
        self.number = 0
        """Cycles ended."""
        self.seconds_total = 0.0
        """Time spent in them."""
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._table = table
        self._checks = checks
        self._publish = publish
        self._tell = tell
        self._marking = marking
        self._writing = writing
        self._before: Snapshot | None = None

    def once(self) -> tuple[Decision, tuple[Plan, ...]]:
        """Run one cycle now; returns the decision and the plans that are due."""
        began_seconds = time.perf_counter()
        snapshot = freeze(self._board, self._inbox, self._clock, self.settings.node.name)
        decision, self.memory, plans = decide(
            self.settings, snapshot, self.memory, self._table, checks=self._checks,
            marking=self._marking(), writing=self._writing(),
        )
        for notice in (*changes.notices(self._before, snapshot), *decision.notices):
            self._tell(notice)
        self._before = snapshot
        self.number += 1
        self.seconds_total += time.perf_counter() - began_seconds
        self._publish(decision, self.memory, snapshot, self.settings)
        return decision, plans

    async def run(
        self, saver: Saver, executors: Mapping[str, Executor], ticked: Callable[[Decision], None],
        pace_seconds: float = PACE_SECONDS,
    ) -> None:
        """Cycle until cancelled; each plan is submitted once the memory it depends on is saved."""
        while True:
            decision, plans = self.once()
            plans = tuple(plan for plan in plans if not self._is_held_back(plan))
            now_seconds = self._clock.monotonic_seconds()
            saver.submit(
                self.memory, now_seconds, functools.partial(_submit, plans, executors), force=bool(plans)
            )
            ticked(decision)
            await asyncio.sleep(GAP_SECONDS)
            await self._until_due(decision, now_seconds + pace_seconds)

    def _is_held_back(self, plan: Plan) -> bool:
        """True for what a dry run does not write."""
        return self.settings.node.dry_run and plan.executor == mark_plan.EXECUTOR

    async def _until_due(self, decision: Decision, pace_due_seconds: float) -> None:
        due_seconds = pace_due_seconds
        if decision.next_due_seconds is not None:
            due_seconds = min(due_seconds, decision.next_due_seconds)
        wait_seconds = max(0.0, due_seconds - self._clock.monotonic_seconds())
        await woken(self._inbox.urgent, wait_seconds)


def _submit(plans: tuple[Plan, ...], executors: Mapping[str, Executor]) -> None:
    for plan in plans:
        executors[plan.executor].submit(plan)


def judge_once(
    settings: Settings, memory: Memory, *, board: Board, inbox: Inbox, clock: Clock, table: XidTable,
    checks: Mapping[str, Check], marking: Callable[[], MarkOptions | None],
) -> ReportInput:
    """What one cycle without a daemon concludes from the board as it is; its plans go nowhere."""
    given: list[ReportInput] = []
    Cycle(
        settings=settings, memory=network.begin_run(memory), board=board, inbox=inbox, clock=clock,
        table=table, checks=checks, tell=lambda _: None, marking=marking,
        publish=lambda d, m, s, c: given.append(
            ReportInput(decision=d, memory=m, snapshot=s, settings=c, version=__version__)
        ),
    ).once()
    return given[0]
