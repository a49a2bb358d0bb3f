"""The serial executor: one plan, one attempt an op, every outcome delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nodeagent.act import gpu
from nodeagent.act.executor import Executor
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import Op, Plan
from nodeagent.signals import Outcome


def op(kind: str, deadline_seconds: float = 5.0) -> Op:
    """An op of this kind."""
    return Op(kind=kind, target="nvml", deadline_seconds=deadline_seconds)


def plan(*kinds: str) -> Plan:
    """A plan of ops of these kinds."""
    return Plan(executor="gpu", ops=tuple(op(kind) for kind in kinds))


def outcomes_of(
    perform: Callable[[Op], Awaitable[str]], script: Callable[[Executor], Awaitable[None]], count: int
) -> list[Outcome]:
    """Run a script against an executor until it has delivered `count` outcomes."""
    delivered: list[Outcome] = []

    async def play() -> None:
        executor = Executor("gpu", perform, delivered.append)
        running = asyncio.create_task(executor.run())
        await script(executor)
        async with asyncio.timeout(5):
            while len(delivered) < count:
                await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())
    return delivered


async def fails_by_kind(wanted: Op) -> str:
    """Refuse what is named after an error kind, do everything else."""
    if wanted.kind == "hang":
        await asyncio.sleep(60)
    if wanted.kind in list(ErrorKind):
        raise DriverError(ErrorKind(wanted.kind), wanted.target, wanted.kind, "scripted")
    return "done"


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_a_failed_op_is_an_outcome_and_the_next_op_still_runs(kind: ErrorKind) -> None:
    """Each kind of failure is delivered once, without a retry, and does not end the plan."""
    async def script(executor: Executor) -> None:
        executor.submit(plan(kind.value, "fine"))

    failed, fine = outcomes_of(fails_by_kind, script, 2)

    assert (failed.ok, failed.error_kind, fine.ok, fine.detail) == (False, kind, True, "done")


def test_an_op_that_hangs_ends_at_its_deadline() -> None:
    """A deadline turns a hang into a timeout outcome."""
    async def script(executor: Executor) -> None:
        executor.submit(Plan(executor="gpu", ops=(op("hang", deadline_seconds=0.02),)))

    (outcome,) = outcomes_of(fails_by_kind, script, 1)

    assert (outcome.ok, outcome.error_kind) == (False, ErrorKind.TIMEOUT)


def test_a_newer_plan_replaces_the_rest_of_an_older_one() -> None:
    """What is left of the older plan is not attempted; the op in flight is never torn."""
    gate = asyncio.Event()

    async def perform(wanted: Op) -> str:
        if wanted.kind == "first":
            await gate.wait()
        return wanted.kind

    async def script(executor: Executor) -> None:
        executor.submit(plan("first", "stale"))
        await asyncio.sleep(0.01)
        executor.submit(plan("newer"))
        gate.set()

    delivered = outcomes_of(perform, script, 2)

    assert [outcome.detail for outcome in delivered] == ["first", "newer"]


def test_the_op_in_flight_is_not_started_twice() -> None:
    """A plan that begins with the op in flight is what is being done already."""
    started: list[str] = []
    gate = asyncio.Event()

    async def perform(wanted: Op) -> str:
        started.append(wanted.kind)
        await gate.wait()
        return ""

    async def script(executor: Executor) -> None:
        executor.submit(plan("first"))
        await asyncio.sleep(0.01)
        executor.submit(plan("first"))
        gate.set()
        await asyncio.sleep(0.02)

    outcomes_of(perform, script, 1)

    assert started == ["first"]


class Hold:
    """Records what was asked of NVML."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def release(self) -> None:
        """Let go."""
        self.asked.append("release")

    def resume(self) -> None:
        """Take up."""
        self.asked.append("resume")


@pytest.mark.parametrize(("kind", "asked"), [("nvml.release", ["release"]), ("nvml.resume", ["resume"])])
def test_gpu_ops_reach_the_hold_on_nvml(kind: str, asked: list[str]) -> None:
    """Each op of the gpu executor is one call on the hold."""
    hold = Hold()
    asyncio.run(gpu.perform(hold, op(kind)))

    assert hold.asked == asked


def test_an_op_the_executor_does_not_know_is_refused() -> None:
    """An unknown op is invalid, and nothing is done."""
    hold = Hold()
    with pytest.raises(DriverError) as refused:
        asyncio.run(gpu.perform(hold, op("nvml.format")))

    assert (refused.value.kind, hold.asked) == (ErrorKind.INVALID, [])
