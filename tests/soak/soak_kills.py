"""Kills in any order: after each the agent must say of the node what it said before."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.agent import Agent, Status, is_raised

ROUNDS = 100


def _kill_worker(agent: Agent, kind: str) -> None:
    pid = agent.workers().get(kind)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    agent.post("/v1/check")


def _kill_daemon(agent: Agent) -> None:
    agent.kill()
    agent.start()


def _restart(agent: Agent) -> None:
    assert agent.stop() == 0
    assert agent.processes() == {}
    agent.start()


def _hang_and_return(agent: Agent) -> None:
    agent.fake.add_rule("nvmlDeviceGetRemappedRows", "block", gpu=random.randrange(8))
    agent.wait_until(lambda s: s["pending_calls"], "a call is pending")
    agent.fake.clear_rules()


DEEDS = (
    lambda agent: _kill_worker(agent, "nvml"),
    lambda agent: _kill_worker(agent, "host"),
    _kill_daemon,
    _restart,
    _hang_and_return,
)


@pytest.mark.slow
def test_the_verdict_survives_any_order_of_kills(tmp_path: Path) -> None:
    """One fault stands since the same second, eight GPUs are read again, one worker of each kind runs."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  a failure is repeated with it
    random.seed(seed)
    with Agent(tmp_path, sections={"gpu": {"auto_release": False}}) as agent:
        address = agent.pci(2)
        agent.kernel_log.xid(address, 48)
        first = agent.wait_until(lambda s: is_raised(s, "xid", address), "Xid 48 is raised")
        for number in range(ROUNDS):
            random.choice(DEEDS)(agent)
            status = agent.wait_until(_well, f"round {number}: all GPUs are read", 90)
            assert status["verdict"]["since"] == first["verdict"]["since"]
            assert is_raised(status, "xid", address)
            assert [(x["number"], x["count"]) for x in status["xids"]] == [(48, 1)]
            kinds = Counter(command.split()[-1] for command in agent.processes().values())
            assert kinds["nodeagent.drivers.nvml"] == kinds["nodeagent.drivers.host"] == 1


def _well(status: Status) -> bool:
    idle = all(w["state"] == "idle" for w in status["workers"])
    return idle and status["gpus"]["healthy"] == 7 and status["gpus"]["faulty"] == 1
