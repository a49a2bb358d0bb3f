"""Silences on virtual time: they hold the taint, and nothing else, for as long as they stand."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.decide.silences import MAX_SILENCES
from nodeagent.model import State
from nodeagent.signals import SilenceCommand
from tests.scenarios.test_restarts_and_clocks import PLAIN_HOUR, eventful_hour
from tests.scenarios.world import GPU_A, GPU_B, World, ecc

HOUR_SECONDS = 3600.0


def silence(check: str = "ecc.uncorrected", target: str = "", **more: Any) -> SilenceCommand:
    """What the socket hands in when alice silences a check for an hour."""
    known = {"for_seconds": HOUR_SECONDS, "reason": "swap booked", "user_id": 1000, "user_name": "alice"}
    return SilenceCommand(check=check, target=target, **(known | more))


def broken(target: str = GPU_A) -> World:
    """A node with an uncorrected error, raised and tainted."""
    world = World()
    world.cycle()
    world.put({f"gpu.ecc@{target}": ecc(2)})
    world.run(120)
    assert world.taints() == ["gpu-unhealthy=ecc.uncorrected"]
    return world


COVERS = (
    # check, target, whether the taint is held
    ("ecc.uncorrected", "", True),
    ("ecc.uncorrected", GPU_A, True),
    ("ecc.uncorrected", GPU_B, False),
    ("xid", "", False),
    ("ecc.uncorrected", GPU_A[:-1], False),
)


@pytest.mark.parametrize(("check", "target", "holds"), COVERS)
def test_a_silence_holds_the_taint_of_what_it_names(check: str, target: str, holds: bool) -> None:
    """A check on every target or on one; the taint is shown as held, with the silence's number."""
    world = broken()
    world.emit(silence(check, target))
    decision = world.cycle()

    assert world.taints() == ([] if holds else ["gpu-unhealthy=ecc.uncorrected"])
    held = [(one.taint.value, one.silences) for one in decision.held_taints]
    assert held == ([("ecc.uncorrected", (1,))] if holds else [])
    assert world.state("ecc.uncorrected", GPU_A) is State.CRITICAL
    assert world.row("ecc.uncorrected", GPU_A).silence == (1 if holds else None)
    assert decision.verdict.state is State.CRITICAL


def test_the_taint_stays_for_what_is_not_silenced() -> None:
    """Its value names the fault that asks for it: not the silenced one, though that is older."""
    world = broken()
    world.xid(79, GPU_B)
    world.cycle()
    world.emit(silence())
    decision = world.cycle()

    assert world.taints() == ["gpu-unhealthy=xid"]
    assert decision.held_taints == ()


@pytest.mark.parametrize("restarts_always", [False, True])
def test_silences_change_nothing_but_taints(restarts_always: bool) -> None:
    """An eventful hour with silences that come and go: rows, verdict and since when are as without them."""
    world = World(restarts_always=restarts_always)
    for number, _ in enumerate(eventful_hour(world)):
        if number == 20:
            world.emit(silence("ecc.uncorrected", for_seconds=1500.0))
        if number == 30:
            world.emit(silence("xid", GPU_B, for_seconds=600.0))
        if number == 60:
            world.emit(SilenceCommand(ends=2, user_id=0))
        *rest, taints = world.trace()
        *plain_rest, plain_taints = PLAIN_HOUR[number]
        assert rest == plain_rest, number
        assert world.decision is not None
        held = [f"{h.taint.key.partition('/')[2]}" for h in world.decision.held_taints]
        wanted = [taint.partition("=")[0] for taint in taints]
        assert sorted(wanted + held) == sorted(taint.partition("=")[0] for taint in plain_taints), number

    assert len(world.told("silence_begun")) == 2
    assert [fields["reason"] for fields in world.told("silence_ended")] == [
        "ended by uid 0", "its time is over",
    ]  # fmt: skip


def test_a_silence_ends_by_its_time_to_the_second() -> None:
    """Whatever the wall clock does meanwhile; the fault asks for its taint again at once."""
    world = broken()
    world.emit(silence(for_seconds=100.0))
    world.cycle(1.0)
    world.step_wall(-86_400.0)
    decision = world.cycle(99.0, poll=False)
    assert world.taints() == []
    assert decision.next_due_seconds is not None
    assert decision.next_due_seconds <= world.monotonic_seconds + 1.0
    world.cycle(1.5, poll=False)

    assert world.taints() == ["gpu-unhealthy=ecc.uncorrected"]
    assert world.memory.silences == ()


def test_a_silence_outlives_a_reboot_and_no_longer_than_its_time() -> None:
    """The reboot takes two minutes of the hour; the rest of it goes on counting."""
    world = broken()
    world.emit(silence())
    world.run(600)
    world.reboot(down_seconds=120.0)
    world.put({f"gpu.ecc@{GPU_A}": ecc(2)})
    world.run(1800)
    assert [one.check for one in world.memory.silences] == ["ecc.uncorrected"]
    assert world.taints() == []
    world.run(1800)

    assert world.memory.silences == ()
    assert world.taints() == ["gpu-unhealthy=ecc.uncorrected"]


def test_saying_it_again_moves_the_end_and_keeps_the_number() -> None:
    """One silence for a check and target, with the newest word; another target is another silence."""
    world = broken()
    later = silence(reason="part comes on Monday", user_name="bob")
    for command in (silence(), silence(target=GPU_B), later):
        world.emit(command)
        world.cycle()

    found = [(one.number, one.target, one.reason, one.user_name) for one in world.memory.silences]
    assert found == [(2, GPU_B, "swap booked", "alice"), (1, "", "part comes on Monday", "bob")]


def test_ended_numbers_are_not_given_again() -> None:
    """A number in an old line of the journal means one silence for ever."""
    world = broken()
    world.emit(silence())
    world.cycle()
    world.emit(SilenceCommand(ends=1))
    world.cycle()
    world.restart()
    world.emit(silence())
    world.cycle()

    assert [one.number for one in world.memory.silences] == [2]


def test_there_are_never_more_silences_than_allowed() -> None:
    """Memory stays bounded, whatever comes; what stands can still be extended."""
    world = broken()
    for number in range(MAX_SILENCES + 5):
        world.emit(silence(target=f"/data/{number}"))
    world.cycle()
    assert len(world.memory.silences) == MAX_SILENCES
    world.emit(silence(target="/data/0", reason="longer"))
    world.cycle()

    assert [one.reason for one in world.memory.silences if one.target == "/data/0"] == ["longer"]


def test_history_tells_who_silenced_what() -> None:
    """Both ends are there, with the state that stood."""
    world = broken()
    world.emit(silence())
    world.cycle()
    world.emit(SilenceCommand(ends=1, user_id=0, user_name="root"))
    world.cycle()

    lines = [(line.event, line.state, line.sentence) for line in world.memory.history if line.event]
    assert lines == [
        ("silenced", State.CRITICAL, "silenced by alice (uid 1000): swap booked"),
        ("unsilenced", State.CRITICAL, "the silence of alice (uid 1000) has ended: ended by root (uid 0)"),
    ]
