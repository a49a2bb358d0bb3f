"""What never returns: a driver call, a dead file system. Status names it, everything else goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.agent import Agent, is_raised, quick_to_clear, row
from tests.drivers.fuse import DeadMount, can_mount
from tests.e2e.conftest import MakeAgent

ECC = "nvmlDeviceGetTotalEccErrors"


def _pending(status: dict, call: str) -> bool:
    return any(call in pending["call"] for pending in status["pending_calls"])


def _hang(agent: Agent, gpu: int) -> int:
    """Make a call on one GPU hang; returns the number of cycles ended when it began to."""
    agent.fake.add_rule(ECC, "block", gpu=gpu)
    seen = -1
    while (calls := agent.fake.calls(ECC)) != seen:  # a read makes sixteen in a few milliseconds
        seen = calls
        time.sleep(1.1)  # longer than the time between two reads
    return int(agent.status()["cycle"]["number"])


def test_a_hung_call_is_named_within_two_cycles(make_agent: MakeAgent) -> None:
    """At the daemon's own pace the second cycle at the latest names the call and its GPU."""
    agent = make_agent(pace_seconds=None)
    agent.start()
    began = _hang(agent, 3)
    status = agent.wait_until(lambda s: _pending(s, ECC), "the hung call is named")

    assert status["cycle"]["number"] <= began + 2
    assert agent.pci(3) in next(p["call"] for p in status["pending_calls"] if ECC in p["call"])


def test_a_call_that_hangs_for_ever_is_stuck_and_then_well_again(make_agent: MakeAgent) -> None:
    """`driver.stuck` names it at the third miss; once the call returns the node is ok again."""
    agent = make_agent(sections=quick_to_clear("driver.stuck"))
    agent.start()
    agent.fake.add_rule(ECC, "block", gpu=3)
    status = agent.wait_until(lambda s: is_raised(s, "driver.stuck"), "driver.stuck is raised")

    worker = next(w for w in status["workers"] if w["kind"] == "nvml")
    assert worker["misses"] >= 3
    assert ECC in row(status, "driver.stuck")["sentence"]
    assert status["verdict"]["class"] == "reboot"
    assert sum("drivers.nvml" in command for command in agent.processes().values()) == 1
    assert ECC in agent.cli("status")[1]

    agent.fake.clear_rules()
    agent.wait_until(lambda s: s["verdict"]["state"] == "ok", "the node is ok again")


def test_a_new_driver_version_is_followed(agent: Agent) -> None:
    """A worker with the old library is replaced; nothing is raised over a driver upgrade."""
    old = agent.workers()["nvml"]
    agent.set_driver("580.126.09")
    agent.post("/v1/check")
    status = agent.wait_until(
        lambda s: s["gpus"]["driver_version"] == "580.126.09" and s["gpus"]["healthy"] == 8,
        "eight GPUs are read by the new library",
    )

    assert agent.workers()["nvml"] != old
    assert status["verdict"]["state"] == "ok"
    assert agent.get("/v1/history")["transitions"] == []


@pytest.mark.root
@pytest.mark.skipif(not can_mount(), reason="needs root and /dev/fuse: modprobe fuse")
@pytest.mark.parametrize("killable", [True, False])
def test_a_dead_mount_blinds_nothing_else(
    make_agent: MakeAgent, tmp_path: Path, killable: bool
) -> None:
    """The dead path is named and unknown, the root file system is judged, and SIGTERM ends the agent."""
    dead = tmp_path / "dead"
    paths = {"enabled": True, "paths": ["/", str(dead)], "available_percent": 0.0}
    agent = make_agent(sections={'checks."disk.full"': paths})
    with DeadMount(dead, takes_requests=not killable):
        agent.start(wait=False)
        agent.wait_until(lambda s: _pending(s, f"statvfs {dead}"), "the dead mount is named", 15)
        agent.wait_until(lambda s: _is_unknown(s, str(dead)), "the dead mount is unknown")
        status = agent.wait_until(lambda s: row(s, "disk.full", "/").get("state") == "ok", "/ is ok")
        assert row(status, "xid", agent.pci(0))["state"] == "ok"
        assert agent.stop() == 0


def _is_unknown(status: dict, path: str) -> bool:
    found = row(status, "disk.full", path)
    return found.get("state") == "unknown" and "not" in found["sentence"]
