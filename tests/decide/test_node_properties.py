"""In whatever order things happen: what is foreign stays, ours ends as wanted, kills change nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decide.api_model import FOREIGN
from tests.decide.node_world import NodeWorld

CHECK_OF = {"xid|a": "xid", "ecc.uncorrected|a": "ecc.uncorrected", "disk.read_only|/": "disk.read_only"}
FAULTS = st.sets(st.sampled_from(sorted(CHECK_OF)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("faults"), FAULTS),
        st.tuples(st.just("foreign"), st.integers(0, 3)),
        st.tuples(st.just("clobber"), st.sampled_from(["controller", "kubectl-edit"])),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("ledger"), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from([1, 20, 1000])),
    ),
    max_size=12,
)


def play(world: NodeWorld, step: tuple[str, Any], foreign: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let one thing happen; the foreign taints after it."""
    what, how = step
    ours = [t for t in world.api.taints if t not in foreign]
    if what == "faults":
        world.faults = {name: CHECK_OF[name] for name in how}
    elif what == "foreign":
        foreign = [{"key": f"example.com/{n}", "effect": "NoSchedule"} for n in range(how)]
        world.api.write([*foreign, *ours], "controller")
    elif what == "clobber":
        world.api.write(list(foreign), how)
    elif what == "restart":
        world.restart()
    elif what == "ledger":
        world.api.annotations.pop("nodeagent.io/ledger", None)
    else:
        world.now_seconds += how
    return foreign


@settings(max_examples=120, deadline=None)
@given(STEPS, st.floats(0, 0.999))
def test_what_is_foreign_stays_and_health_leaves_nothing(
    steps: list[tuple[str, Any]], entropy: float
) -> None:
    """After each step foreign taints are equal and in order; a healthy end has nothing of ours set."""
    world = NodeWorld()
    world.entropy = entropy
    foreign = [dict(taint) for taint in FOREIGN]
    for step in steps:
        foreign = play(world, step, foreign)
        world.settle(2)
        assert world.api.foreign() == foreign
        assert set(world.api.own()) <= {"nodeagent.io/gpu-unhealthy", "nodeagent.io/node-unhealthy"}
        assert {"node.alpha.kubernetes.io/ttl": "0"}.items() <= world.api.annotations.items()
        assert world.api.conditions["Ready"] == {"type": "Ready", "status": "True"}
    world.faults = {}
    world.settle(60)
    lost = [step for step in steps if step[0] == "ledger"]
    assert world.api.taints == foreign or lost
    assert "nodeagent.io/ledger" not in world.api.annotations
    assert all(c["status"] == "False" for kind, c in world.api.conditions.items() if kind != "Ready")


SCRIPTS = {
    "taint and recovery": [{"xid|a"}, set()],
    "overlap": [{"xid|a"}, {"xid|a", "disk.read_only|/"}, {"disk.read_only|/"}, set()],
    "change of value": [{"xid|a"}, {"ecc.uncorrected|a", "xid|a"}, {"xid|a"}],
}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("performed", [False, True])
def test_a_kill_at_any_op_ends_as_the_uninterrupted_run(name: str, performed: bool) -> None:
    """Before each op, and after it with its outcome lost: taints, ledger, conditions and events end equal."""
    wanted, count = _run(SCRIPTS[name], None, performed)
    assert count >= 6
    for number in range(count):
        ended, _ = _run(SCRIPTS[name], number, performed)
        assert ended == wanted, f"killed at op {number}"


def _run(script: list[set[str]], die_at: int | None, performed: bool) -> tuple[tuple[object, ...], int]:
    world, count = NodeWorld(), 0

    def before(op: Any) -> bool:
        nonlocal count
        count += 1
        if count - 1 != die_at:
            return True
        if performed:
            world.api.perform(op)
        return False

    for faults in script:
        world.faults = {name: CHECK_OF[name] for name in faults}
        world.settle(8, before)
    return world.state(), count
