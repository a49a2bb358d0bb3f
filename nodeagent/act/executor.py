"""One serial executor: holds at most one plan, tries each op once, returns every outcome.

No retry and no sleep live here: a failed op is an Outcome in the inbox, and a later cycle plans
again. A newer plan replaces what is left of an older one between two ops, never inside one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import Op, Plan
from nodeagent.signals import Outcome

Perform = Callable[[Op], Awaitable[str]]
"""Carries out one op; returns a detail for people, raises DriverError."""
Deliver = Callable[[Outcome], object]
"""Puts an outcome into the inbox, urgently."""


class Executor:
    """Runs plans of one outside world. `perform` knows the ops, the executor knows the order."""

    def __init__(
        self, name: str, perform: Perform, deliver: Deliver, settled: Callable[[], None] = lambda: None
    ) -> None:
        """`settled` is called after each plan: what it left is worth reading back."""
        self.name = name
        self._perform = perform
        self._deliver = deliver
        self._settled = settled
        self._latest: Plan | None = None
        self._current: Op | None = None
        self._wake = asyncio.Event()

    def submit(self, plan: Plan) -> None:
        """Make `plan` the latest; an op that is already running is not started twice."""
        if self._current is not None and plan.ops[:1] == (self._current,):
            return
        self._latest = plan
        self._wake.set()

    async def run(self) -> None:
        """Serve plans until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            plan, self._latest = self._latest, None
            for op in plan.ops if plan is not None else ():
                if self._latest is not None:
                    break
                self._deliver(await self._attempt(op))
            self._settled()

    async def _attempt(self, op: Op) -> Outcome:
        self._current = op
        try:
            async with asyncio.timeout(op.deadline_seconds):
                detail = await self._perform(op)
        except TimeoutError:
            return Outcome(op=op.kind, target=op.target, ok=False, error_kind=ErrorKind.TIMEOUT,
                           detail=f"no end within {op.deadline_seconds:.0f} s")
        except DriverError as error:
            return Outcome(op=op.kind, target=op.target, ok=False, error_kind=error.kind, detail=str(error),
                           is_stale=error.is_stale, retry_after_seconds=error.retry_after_seconds)
        finally:
            self._current = None
        return Outcome(op=op.kind, target=op.target, ok=True, detail=detail)
