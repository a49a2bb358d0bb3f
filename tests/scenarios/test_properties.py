"""What must hold for every script and every snapshot, not only for those somebody thought of."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.decide.decide import decide
from nodeagent.decide.xid_table import NUMBER_CHECKS
from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.model import State
from nodeagent.settings import Settings
from nodeagent.signals import Event, Unread
from tests.scenarios import strategies as some
from tests.scenarios.world import CHECKS, POLL_SECONDS, TABLE, World, healthy

BLIND_IS_A_FAULT = "agent.state|node"
"""The one check that an unread signal may raise: it says that the agent is blind, and never taints."""
RAISED = {State.WARNING, State.CRITICAL}
ways = st.tuples(st.sampled_from(["dropped", "unread"]), some.KINDS)
few = settings(
    max_examples=80, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def play(world: World, script: list[tuple[str, Any]]) -> list[Any]:
    """Run a script; what people saw after each step."""
    seen = []
    for verb, argument in script:
        if verb == "put":
            world.put(argument)
            world.run(2 * POLL_SECONDS)
        elif verb == "heal":
            world.put(healthy())
        elif verb == "run":
            world.run(argument * POLL_SECONDS)
        elif verb == "xid":
            world.emit(msgspec.structs.replace(argument, at_seconds=world.monotonic_seconds))
        elif verb == "emit":
            world.emit(argument)
        elif verb == "step_wall":
            world.step_wall(argument)
        else:
            world.reboot()
        world.cycle()
        seen.append(world.trace())
    return seen


def hidden(value: str, kind: ErrorKind) -> Any:
    """A reading that was not read, or None: taken off the board."""
    return None if value == "dropped" else Unread(kind=kind, reason="not read")


@given(some.timelines, st.lists(ways, min_size=20, max_size=20), st.integers(1, 40))
@few
def test_unknown_never_lifts_or_adds(script: list, how: list, cycles: int) -> None:
    """With every reading gone, in whatever way, for however long, faults and taints stay as they were."""
    world = World()
    play(world, script)
    raised, taints = world.raised() - {BLIND_IS_A_FAULT}, world.taints()
    for (value, kind), name in zip(itertools.cycle(how), sorted(world.values), strict=False):
        world.put({name: hidden(value, kind)})
    standing_xids = {key for key in raised if key.partition("|")[0] in NUMBER_CHECKS}
    # An Xid whose class waits for its time to pass gets it without any reading.
    due = {"gpu-unhealthy=xid"} if any(xid.held for xid in world.memory.xids.values()) else set()
    for _ in range(cycles):
        world.cycle()

    assert set(world.taints()) - due == set(taints) - due
    assert world.raised() - {BLIND_IS_A_FAULT} - standing_xids == raised - standing_xids


@given(some.timelines, st.sets(st.sampled_from(sorted(some.WORSE))), some.KINDS)
@few
def test_an_unread_signal_moves_no_check_of_its_own(script: list, names: set[str], kind: ErrorKind) -> None:
    """Whatever else is read, a check and target whose readings are gone stays raised or not, as it was."""
    world = World()
    play(world, script)
    before = world.raised()
    world.put({name: Unread(kind=kind, reason="not read") for name in names})
    world.run(600)

    for name in names:
        signal, _, target = name.partition("@")
        for check in CHECKS.values():
            key = f"{check.id}|{target or 'node'}"
            if check.signals == (signal,) and check.id not in NUMBER_CHECKS:
                assert (key in world.raised()) == (key in before), key


@given(some.timelines)
@few
def test_a_restart_at_any_cycle_changes_nothing(script: list) -> None:
    """An agent that restarts after every cycle says the same as one that never does."""
    assert play(World(restarts_always=True), script) == play(World(), script)


@given(some.timelines)
@few
def test_no_flap_is_faster_than_the_hold(script: list) -> None:
    """Between a fault's raising and its clearing lies at least the check's minimum time."""
    world = World()
    play(world, [step for step in script if step[0] != "reboot"] + [("run", 60)])
    raised_at: dict[tuple[str, str], float] = {}
    for line in world.memory.history:
        key, at_seconds = (line.check, line.target), line.at.monotonic_seconds
        if line.previous not in RAISED and line.state in RAISED:
            raised_at.setdefault(key, at_seconds)
        elif line.previous in RAISED and line.state is State.OK:
            assert at_seconds - raised_at.pop(key) >= CHECKS[line.check].hold.minimum_seconds - POLL_SECONDS


@given(some.timelines)
@few
def test_the_same_input_gives_the_same_output_and_stays_as_it_was(script: list) -> None:
    """Judgement is a function: no input changes, a second call agrees."""
    world = World()
    play(world, script)
    snapshot, memory = world.snapshot(), world.memory
    before = (msgspec.json.encode(memory), repr(snapshot))
    first, second = (decide(Settings(), snapshot, memory, TABLE, checks=CHECKS) for _ in range(2))

    assert first == second
    assert before == (msgspec.json.encode(memory), repr(snapshot))


@given(st.lists(st.tuples(some.boards, some.events), min_size=1, max_size=3), st.floats(0.0, 1e6))
@settings(few, max_examples=200)
def test_no_well_typed_snapshot_makes_it_raise(story: list[tuple[dict, list[Event]]], seconds: float) -> None:
    """Odd names, negative counts and absurd times end in a Decision and a Memory that can be saved."""
    world = World()
    for board, happened in story:
        world.values = {}
        world.put(board)
        for event in happened:
            world.emit(event)
        decision = world.cycle(seconds)

        assert decision.rows
        assert msgspec.json.decode(msgspec.json.encode(world.memory), type=Memory).schema == 1
