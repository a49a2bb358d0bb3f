"""Every check from its first bad poll to raised and back, by its own hold and clear rule.

The readings come from the check's table: its first case over the limit and its healthy one.
"""

from __future__ import annotations

import msgspec
import pytest

from nodeagent.decide.check import Check, CheckInput, run_check
from nodeagent.decide.registry import registry
from nodeagent.decide.rules import effective_limits, effective_rule
from nodeagent.decide.verdict import judge_check
from nodeagent.decide.xid_table import NUMBER_CHECKS
from nodeagent.memory import Hold, Memory
from nodeagent.model import CheckRow, NodeClass, Now, State
from nodeagent.settings import CheckSettings, Settings
from tests.decide.build import Case, now, snapshot
from tests.decide.test_checks import TABLES

POLL_SECONDS = 15.0
RAISED = {State.WARNING, State.CRITICAL}
CHECKS = {
    check_id: check for check_id, check in registry().items()
    if check_id in TABLES and check_id not in NUMBER_CHECKS
}
PROVEN = [c for c in CHECKS.values() if c.hold.proof == "reset" and c.node_class.taints]
NOISY = [c for c in CHECKS.values() if c.hold.bad_polls > 1]
GRACED = [c for c in CHECKS.values() if c.boot_grace_seconds]


class Bench:
    """One check, polled every 15 s on a node that has long been up."""

    def __init__(
        self, check: Check, settings: Settings | None = None, uptime_seconds: float = 3600.0
    ) -> None:
        self.check = check
        self.settings = settings or Settings()
        self.memory = Memory()
        self.seconds = uptime_seconds
        self.read_at_seconds = 0.0
        self.boot_id = "boot-1"
        self.rows: tuple[CheckRow, ...] = ()

    def case(self, beginning: str) -> Case:
        """The table's first case whose name begins so."""
        return next(case for case in TABLES[self.check.id] if case.name.startswith(beginning))

    def poll(self, beginning: str, *, new: bool = True) -> Hold | None:
        """The hold after one more poll of that case; `new` False: the old reading seen once more."""
        self.seconds += POLL_SECONDS if new else 0.2
        self.read_at_seconds = self.seconds - 1.0 if new else self.read_at_seconds
        case, at = self.case(beginning), now(self.seconds, boot_id=self.boot_id)
        given = CheckInput(
            snapshot=snapshot(case.readings, at=at, read_at_seconds=self.read_at_seconds),
            memory=_ended(case.memory, self.read_at_seconds),
            limits=effective_limits(self.check, self.settings) | dict(case.limits),
            gpu_wanted=True,
            gpu_expected_count=case.gpu_expected_count,
        )
        return self._move(given, at)

    def _move(self, given: CheckInput, at: Now) -> Hold | None:
        findings = run_check(self.check, given)
        rule = effective_rule(self.check, self.settings)
        judged = judge_check(self.check, rule, findings, self.memory, now=at, muted=frozenset())
        self.rows = judged.rows
        self.memory = msgspec.structs.replace(
            self.memory, holds=judged.holds, unknown=judged.unknown, last_poll_seconds=judged.polls
        )
        return next(iter(judged.holds.values()), None)

    def raise_it(self) -> Hold:
        """Bad polls until raised."""
        for _ in range(self.check.hold.of_polls):
            hold = self.poll("over the limit")
        assert hold is not None
        assert hold.state in RAISED
        return hold

    def good_for(self, seconds: float) -> Hold | None:
        """Good polls for so long."""
        hold = next(iter(self.memory.holds.values()), None)
        for _ in range(int(seconds / POLL_SECONDS)):
            hold = self.poll("healthy")
        return hold


def _ended(memory: Memory, seconds: float) -> Memory:
    """Memory whose stretch of traffic ends with this poll, where it has one."""
    if memory.traffic.window is None:
        return memory
    window = msgspec.structs.replace(memory.traffic.window, ended_seconds=seconds)
    traffic = msgspec.structs.replace(memory.traffic, window=window)
    return msgspec.structs.replace(memory, traffic=traffic)


every_check = pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.id)


@every_check
def test_exactly_the_declared_number_of_bad_polls_raises(check: Check) -> None:
    """One poll before the n-th it is pending, at the n-th it is raised with the class's state."""
    bench = Bench(check)
    states = [bench.poll("over the limit").state for _ in range(check.hold.bad_polls)]

    assert states[:-1] == [State.PENDING] * (check.hold.bad_polls - 1)
    hold = bench.memory.holds.popitem()[1]
    assert states[-1] is (State.CRITICAL if hold.node_class.taints else State.WARNING)


@every_check
def test_one_poll_seen_again_counts_once(check: Check) -> None:
    """A cycle without a new poll moves nothing."""
    bench = Bench(check)
    first = bench.poll("over the limit")
    again = [bench.poll("over the limit", new=False) for _ in range(check.hold.of_polls)]

    assert {hold.polls for hold in again} == {first.polls}


@pytest.mark.parametrize("check", NOISY, ids=lambda check: check.id)
def test_a_single_bad_poll_between_good_ones_is_forgotten(check: Check) -> None:
    """Noise below n of m leaves nothing behind once m good polls have passed."""
    bench = Bench(check)
    bench.poll("over the limit")

    assert bench.good_for(POLL_SECONDS * check.hold.of_polls) is None


@every_check
def test_a_raised_fault_stands_for_its_minimum(check: Check) -> None:
    """Good polls clear it only when it has been good for the minimum time."""
    bench = Bench(check)
    raised = bench.raise_it()
    standing = bench.good_for(check.hold.minimum_seconds - POLL_SECONDS)

    assert standing is not None
    assert (standing.state, standing.since) == (raised.state, raised.since)


@every_check
def test_unread_neither_adds_nor_lifts(check: Check) -> None:
    """Hours without a reading leave pending and raised alike; only the agent's own check differs."""
    bench = Bench(check)
    raised = bench.raise_it()
    for _ in range(1000):
        standing = bench.poll("a signal still missing" if check.id == "agent.state" else "unread")

    assert standing == raised


@pytest.mark.parametrize("check", PROVEN, ids=lambda check: check.id)
def test_a_fault_that_asks_for_a_reset_needs_proof(check: Check) -> None:
    """Days of good polls do not clear it; a new boot with good polls does."""
    bench = Bench(check)
    bench.raise_it()

    assert bench.good_for(86_400.0) is not None

    bench.boot_id, bench.memory = "boot-2", msgspec.structs.replace(bench.memory, last_poll_seconds={})
    assert bench.good_for(check.hold.minimum_seconds + POLL_SECONDS) is None


@pytest.mark.parametrize("check", [c for c in CHECKS.values() if c not in PROVEN], ids=lambda c: c.id)
def test_a_fault_that_asks_for_no_reset_clears_by_good_polls(check: Check) -> None:
    """After the minimum time and enough good polls it is gone."""
    bench = Bench(check)
    bench.raise_it()

    assert bench.good_for(check.hold.minimum_seconds + POLL_SECONDS) is None


@pytest.mark.parametrize("check", GRACED, ids=lambda check: check.id)
def test_nothing_is_raised_in_boot_grace(check: Check) -> None:
    """Bad polls count only from the end of the grace on."""
    bench = Bench(check, uptime_seconds=0.0)
    while bench.seconds + POLL_SECONDS < check.boot_grace_seconds:
        assert bench.poll("over the limit") is None

    assert bench.raise_it().state in RAISED


@every_check
def test_the_operator_may_make_a_fault_harmless(check: Check) -> None:
    """Class ignore raises nothing, and lets go of what stands."""
    settings = Settings(checks={check.id: CheckSettings(node_class=NodeClass.IGNORE)})
    bench = Bench(check)
    bench.raise_it()
    bench.settings = settings

    assert bench.poll("over the limit") is None


@pytest.mark.parametrize("check", NOISY, ids=lambda check: check.id)
def test_what_is_good_again_before_it_is_raised_is_shown_ok(check: Check) -> None:
    """The bad poll still counts towards the next ones, but the row tells what is so now."""
    bench = Bench(check)
    bench.poll("over the limit")
    assert State.PENDING in {row.state for row in bench.rows}

    hold = bench.poll("healthy")

    assert hold is not None
    assert hold.state is State.PENDING
    assert State.PENDING not in {row.state for row in bench.rows}
