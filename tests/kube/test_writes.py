"""The real daemon taints its Node through the real API server, and touches nothing else there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.api import NODES, Api
from tests.kube.node_agent import GPU_TAINT, LEDGER, NodeAgent
from tests.kube.plane import ControlPlane

pytestmark = pytest.mark.slow
TAINTED = {GPU_TAINT: "gpu.recovery_action"}
FOREIGN = [
    {"key": "example.com/pool", "value": "a", "effect": "NoSchedule"},
    {"key": "example.com/drain", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"},
]
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine"}
MakeNode = Callable[..., NodeAgent]


@pytest.fixture
def make_node(plane: ControlPlane, node: str, tmp_path: Path) -> Iterator[MakeNode]:
    """A factory of the one node of a test, its daemon not started yet; foreign taints and a label on it."""
    made: list[NodeAgent] = []

    def make(**cluster: Any) -> NodeAgent:
        one = NodeAgent(plane, node, tmp_path, **cluster)
        made.append(one)
        one.patch({"metadata": {"labels": {"example.com/rack": "r1"}}, "spec": {"taints": FOREIGN}}, "merge")
        status = {"status": {"conditions": [READY]}}
        plane.admin(Api.patch, f"{NODES}/{node}/status", status, "strategic").expect(200)
        return one

    yield make
    for one in made:
        one.agent.close()


def bare(node: dict[str, Any]) -> dict[str, Any]:
    """A Node without what is ours and without its version."""
    metadata = {k: v for k, v in node["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    annotations = {k: v for k, v in metadata.get("annotations", {}).items() if k != LEDGER}
    kept = [t for t in node["spec"].get("taints", []) if not t["key"].startswith("nodeagent.io/")]
    conditions = [c for c in node["status"]["conditions"] if not c["type"].startswith("NodeAgent")]
    return {"metadata": {**metadata, "annotations": annotations}, "spec": {**node["spec"], "taints": kept},
            "status": {**node["status"], "conditions": conditions}}


def tainted(one: NodeAgent) -> None:
    """Start it and let a fault be written."""
    one.agent.start()
    one.fault()
    one.until(lambda: one.own() == TAINTED, "the taint is there")


def test_a_taint_comes_with_the_fault_and_goes_with_it(plane: ControlPlane, make_node: MakeNode) -> None:
    """Condition and events tell it; labels, foreign taints and conditions are equal, letter by letter; a
    healthy node was not written to, and nothing was ever listed."""
    one = make_node()
    before, audited = one.get(), len(plane.audited())
    one.agent.start()
    one.agent.wait_until(lambda s: s["api"]["state"] == "connected", "the Node is watched")
    one.agent.wait_until(lambda s: s["cycle"]["number"] > 8, "some cycles have passed")
    assert set(one.requests(audited)) == {("watch", "nodes")}
    one.fault()
    one.until(lambda: one.own() == TAINTED, "the taint is there")
    one.until(lambda: one.events() == ["NodeAgentTaintSet"], "the event is there")
    assert bare(one.get()) == bare(before)
    assert one.conditions() == {"NodeAgentUnhealthy": ("True", "ResetNeeded")}
    status = one.agent.wait_until(lambda s: not s["api"]["pending"] and s["api"]["taints_set"], "it is known")
    assert [t["key"] for t in status["api"]["taints_set"]] == [GPU_TAINT]
    assert "Taint     set nodeagent.io/gpu-unhealthy=gpu.recovery_action" in one.agent.cli("status")[1]
    patches = next(v for v in status["api"]["budget"] if v["verb"] == "patch")
    assert (patches["spent"], patches["withheld"]) == (2, 0)
    one.cure()
    one.until(lambda: one.events() == ["NodeAgentTaintRemoved", "NodeAgentTaintSet"], "recovery is told")
    assert (one.taints(), LEDGER in one.get()["metadata"].get("annotations", {})) == (FOREIGN, False)
    assert one.conditions() == {"NodeAgentUnhealthy": ("False", "NoFault")}
    assert bare(one.get()) == bare(before)
    assert not {verb for verb, _ in one.requests(audited)} & {"list", "get", "update", "delete"}


def test_a_clobbering_neighbour_is_answered_once(make_node: MakeNode) -> None:
    """Put back once, then contested, until a new fault; a foreign taint set meanwhile stays."""
    one = make_node()
    tainted(one)
    changed = [*FOREIGN, {"key": "example.com/new", "effect": "NoSchedule"}]
    one.patch({"spec": {"taints": changed}}, "merge")  # as from a list that is old
    one.until(lambda: one.own() == TAINTED, "it is put back")
    assert one.taints()[:-1] == changed
    one.patch({"spec": {"taints": changed}}, "merge")
    one.until(lambda: one.conditions().get("NodeAgentTaintWithheld") == ("True", "Contested"), "given way")
    assert one.own() == {}
    one.agent.kernel_log.xid(one.agent.pci(0), 79)
    one.until(lambda: one.own() != {}, "a new fault is written anew")
    one.until(lambda: one.conditions()["NodeAgentTaintWithheld"][0] == "False", "and nothing is withheld")
    assert one.taints()[:-1] == changed


def test_a_person_is_obeyed(make_node: MakeNode) -> None:
    """`kubectl taint node N KEY-` holds while the fault stands, and is told on the node and in the API."""
    one = make_node()
    tainted(one)
    done = one.plane.kubectl("taint", "node", one.name, f"{GPU_TAINT}-")
    assert done.returncode == 0, done.stderr
    withheld = ("True", "RemovedByPerson")
    one.until(lambda: one.conditions().get("NodeAgentTaintWithheld") == withheld, "it is obeyed")
    assert one.own() == {}
    assert "removed by kubectl" in one.agent.cli("status")[1]


def test_somebodys_cordon_is_kept(make_node: MakeNode) -> None:
    """A Node that was cordoned before the fault stays so when the fault is gone, over a restart between."""
    one = make_node()
    done = one.plane.kubectl("cordon", one.name)
    assert done.returncode == 0, done.stderr
    tainted(one)
    one.agent.kill()
    one.agent.start()
    one.cure()
    one.until(lambda: one.own() == {}, "the taint is gone")

    assert one.get()["spec"]["unschedulable"] is True


def test_a_silence_takes_the_taint_and_leaves_the_condition(make_node: MakeNode) -> None:
    """The Node takes pods again, and still says what is wrong with it; the end brings the taint back."""
    one = make_node()
    tainted(one)
    one.until(lambda: "NodeAgentUnhealthy" in one.conditions(), "its condition is there, too")
    unhealthy = one.conditions()["NodeAgentUnhealthy"]
    check = one.agent.status()["taint"]["wanted"][0]["value"]
    assert one.agent.cli("silence", check, "--for", "1h", "--reason", "part ordered")[0] == 0
    one.until(lambda: one.own() == {}, "the taint is taken off")
    assert one.conditions()["NodeAgentUnhealthy"] == unhealthy
    assert one.conditions().get("NodeAgentTaintWithheld", ("False",))[0] == "False"
    assert one.agent.cli("unsilence", "1")[0] == 0
    one.until(lambda: one.own() == TAINTED, "it is there again")


def test_what_came_and_went_while_paused_is_never_written(plane: ControlPlane, make_node: MakeNode) -> None:
    """The end of a pause replays nothing: what is so now is written, and that is nothing."""
    one = make_node()
    one.agent.start()
    one.agent.wait_until(lambda s: s["api"]["state"] == "connected", "the Node is watched")
    audited = len(plane.audited())
    assert one.agent.cli("pause", "--for", "1h", "--reason", "upgrade")[0] == 0
    one.fault()
    one.agent.wait_until(lambda s: s["api"]["pending"], "it would be written")
    one.cure()
    one.agent.wait_until(lambda s: s["verdict"]["state"] == "ok", "the fault is gone")
    assert one.agent.cli("unpause")[0] == 0
    cycle = one.agent.status()["cycle"]["number"]
    one.agent.wait_until(lambda s: s["cycle"]["number"] > cycle + 3, "three cycles have passed")

    assert {verb for verb, _ in one.requests(audited)} <= {"watch"}
    assert one.own() == {}


def test_a_node_that_is_created_anew_is_written_anew(plane: ControlPlane, make_node: MakeNode) -> None:
    """Another uid under the same name: nothing of the old ledger counts, the fault is written again."""
    one = make_node()
    tainted(one)
    uid = one.get()["metadata"]["uid"]
    plane.admin(Api.delete, f"{NODES}/{one.name}").expect(200)
    fresh = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": one.name}}
    plane.admin(Api.post, NODES, fresh).expect(201)
    one.renew()
    one.until(lambda: one.own() == TAINTED, "the new Node has the taint", seconds=60)
    found = one.get()["metadata"]
    assert found["uid"] != uid
    assert found["uid"] in found["annotations"][LEDGER]
    one.cure()
    one.until(lambda: one.own() == {}, "and loses it")


def test_pause_kill_switch_and_dry_run_hold_every_write(plane: ControlPlane, make_node: MakeNode) -> None:
    """Nothing but the watch reaches the server; what would be written is shown, and is written afterwards."""
    one = make_node()
    one.agent.start()
    one.agent.wait_until(lambda s: s["api"]["state"] == "connected", "the Node is watched")
    audited = len(plane.audited())
    one.agent.configure({**one.sections, "node": {"name": one.name, "dry_run": True}})
    one.agent.reload()
    one.agent.wait_until(lambda s: s["api"]["held"] == "dry run", "it is a dry run")
    one.fault()
    one.agent.wait_until(lambda s: s["api"]["pending"] and s["taint"]["would"], "it is pending")
    code, said = one.agent.cli("pause", "--for", "1h", "--reason", "upgrade of the fabric")
    assert (code, "nothing is written" in said) == (0, True)
    one.agent.configure(one.sections)
    one.agent.reload()
    one.agent.wait_until(lambda s: "upgrade of the fabric" in s["api"]["held"], "it is paused")
    assert "would set nodeagent.io/gpu-unhealthy" in one.agent.cli("status")[1]
    one.agent.kill()  # a pause outlives the daemon
    one.agent.start()
    one.agent.wait_until(lambda s: "paused" in s["api"]["held"], "still paused")
    one.switch.touch()
    assert one.agent.cli("unpause")[0] == 0  # the file is looked at before each write, however new it is
    one.agent.wait_until(lambda s: "kill switch" in s["api"]["held"], "held by the file")
    assert {verb for verb, _ in one.requests(audited)} <= {"watch"}
    assert one.own() == {}
    one.switch.unlink()
    one.until(lambda: one.own() == TAINTED, "it is written now")


def test_release_leaves_the_node_bare(make_node: MakeNode) -> None:
    """Taint, ledger and conditions go though the fault stands, over a restart too; resume undoes it."""
    one = make_node()
    before = one.get()
    tainted(one)
    assert one.agent.cli("node", "release")[0] == 0
    one.until(lambda: (one.taints(), one.conditions()) == (FOREIGN, {}), "the Node is bare")
    one.agent.kill()
    one.agent.start()
    one.agent.wait_until(lambda s: s["api"]["released"] and s["api"]["node_uid"], "it is known")
    assert bare(one.get()) == bare(before)
    assert LEDGER not in one.get()["metadata"].get("annotations", {})
    assert one.agent.cli("node", "resume")[0] == 0
    one.until(lambda: one.own() == TAINTED, "faults are written again")


def test_a_killed_server_delays_and_loses_nothing(plane: ControlPlane, make_node: MakeNode) -> None:
    """A fault while the server is away is shown on the node, and written when it is back."""
    one = make_node()
    one.agent.start()
    one.agent.wait_until(lambda s: s["api"]["state"] == "connected", "the Node is watched")
    plane.server.stop(9)
    try:
        one.fault()
        status = one.agent.wait_until(lambda s: s["api"]["waiting"] and s["taint"]["wanted"], "it waits")
        assert status["verdict"]["state"] == "critical"
    finally:
        plane.start_server()
    one.until(lambda: one.own() == TAINTED, "it is written", seconds=60)
