"""kill -9 before each op on the API server: the next start ends as an undisturbed run does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kube.node_agent import GPU_TAINT, NodeAgent
from tests.kube.plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
OPS = ("taint and ledger", "condition", "event")
"""In this order, of a fault and of its end alike."""
BOTH = ["NodeAgentTaintRemoved", "NodeAgentTaintSet"]


def quiet(one: NodeAgent) -> None:
    """Stop it once it knows that nothing is left to be written."""
    one.agent.wait_until(lambda s: s["api"]["node_uid"] and not s["api"]["pending"], "nothing is pending")
    one.agent.stop()


def test_a_kill_before_any_op_changes_nothing_of_the_end(
    plane: ControlPlane, node: str, tmp_path: Path
) -> None:
    """Of a fault and of a recovery: taints, ledger, conditions and events end equal."""
    one = NodeAgent(plane, node, tmp_path)
    try:
        one.agent.start()
        one.fault()
        one.until(lambda: one.events() == BOTH[1:], "the undisturbed fault")
        faulty = one.state()
        one.cure()
        one.until(lambda: one.events() == BOTH, "the undisturbed end")
        healthy = one.state()
        quiet(one)
        wanted = {True: (*faulty[:-1], BOTH), False: healthy}
        for number, what in enumerate(OPS[:2]):
            for is_faulty in (True, False):
                one.dies_at(number)
                one.agent.start()
                (one.fault if is_faulty else one.cure)()
                assert one.agent.process is not None
                assert one.agent.process.wait(30) == -9, f"it did not die before {what}"
                one.dies_at()
                one.agent.start()
                one.until(lambda now=is_faulty: one.state() == wanted[now], f"equal, killed before {what}")
                quiet(one)
    finally:
        one.agent.close()
    assert GPU_TAINT not in one.own()


def test_a_kill_before_the_event_creates_it_once(plane: ControlPlane, node: str, tmp_path: Path) -> None:
    """It is in the memory that was saved before, and its name is the same in each try."""
    one = NodeAgent(plane, node, tmp_path)
    try:
        one.dies_at(OPS.index("event"))
        one.agent.start()
        one.fault()
        assert one.agent.process is not None
        assert one.agent.process.wait(30) == -9
        assert one.own() == {GPU_TAINT: "gpu.recovery_action"}
        one.dies_at()
        one.agent.start()
        one.until(lambda: one.events() == ["NodeAgentTaintSet"], "the event is there")
    finally:
        one.agent.close()
