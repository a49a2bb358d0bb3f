"""What SIGKILL leaves behind: a worker is replaced, a daemon takes its children along, returns right."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.agent import Agent, is_raised, quick_to_clear
from tests.e2e.conftest import MakeAgent


@pytest.mark.parametrize("kind", ["nvml", "host"])
def test_a_killed_worker_is_replaced(agent: Agent, kind: str) -> None:
    """The worker's place is taken by another process, and nothing is held against the node."""
    before = agent.workers()
    os.kill(before[kind], signal.SIGKILL)

    def replaced(status: dict) -> bool:
        workers = {w["kind"]: w for w in status["workers"]}
        fresh = workers[kind]["pid"] not in (None, before[kind]) and workers[kind]["restarts"] == 1
        return fresh and workers[kind]["state"] == "idle" and status["gpus"]["healthy"] == 8

    agent.post("/v1/check")
    agent.wait_until(replaced, f"the {kind} worker is replaced and all is read")

    assert len(agent.processes()) == 3
    assert agent.status()["verdict"]["state"] == "ok"


def test_a_killed_daemon_takes_its_workers_along(agent: Agent) -> None:
    """No process is left two seconds after SIGKILL of the daemon alone."""
    assert len(agent.processes()) == 3
    agent.kill()
    end_seconds = time.monotonic() + 2
    while agent.processes() and time.monotonic() < end_seconds:
        time.sleep(0.02)

    assert agent.processes() == {}


def test_a_restarted_daemon_says_what_it_said_before(agent: Agent) -> None:
    """After SIGKILL and restart the fault, its start, its count and the wanted taint are the same."""
    address = agent.pci(2)
    agent.kernel_log.xid(address, 48, "DBE (double bit error)")
    before = agent.wait_until(lambda s: is_raised(s, "xid", address), "Xid 48 is raised")
    time.sleep(0.3)  # one cycle more, so that the raised fault is on disk
    agent.kill()
    agent.start()
    after = agent.status()

    for part in ("incidents", "taint"):
        assert _without_ages(after[part]) == _without_ages(before[part])
    assert after["verdict"]["since"] == before["verdict"]["since"]
    assert [(x["number"], x["count"]) for x in after["xids"]] == [(48, 1)]
    assert agent.cli("status")[0] == 2


def test_a_record_of_the_time_without_a_daemon_is_found(agent: Agent) -> None:
    """An Xid that the kernel logs while no daemon runs is raised by the next one."""
    address = agent.pci(5)
    agent.kill()
    agent.kernel_log.xid(address, 79, "GPU has fallen off the bus.")
    agent.start()

    agent.wait_until(lambda s: is_raised(s, "xid", address), "the Xid 79 of the pause is raised")


def test_a_reboot_and_good_reads_clear_a_fault(make_agent: MakeAgent) -> None:
    """An Xid 79 stands over a restart of the daemon, and is let go after a boot of the node."""
    agent = make_agent(sections=quick_to_clear("xid"))
    agent.start()
    address = agent.pci(1)
    agent.kernel_log.xid(address, 79)
    agent.wait_until(lambda s: is_raised(s, "xid", address), "Xid 79 is raised")
    agent.stop()
    agent.start()
    assert is_raised(agent.status(), "xid", address)
    agent.stop()
    agent.boot()
    agent.start()

    agent.wait_until(lambda s: s["verdict"]["state"] == "ok", "the boot clears the fault")


def test_a_restart_during_a_release_does_not_touch_nvml(make_agent: MakeAgent) -> None:
    """A daemon that comes back while NVML is released does not load it even once."""
    agent = make_agent()
    agent.start()
    assert agent.cli("gpu", "release", "--for", "10m")[0] == 0
    time.sleep(0.3)
    calls = agent.fake.calls("nvmlInitWithFlags") + agent.fake.calls("nvmlInit_v2")
    agent.kill()
    agent.start()
    status = agent.wait_until(lambda s: s["cycle"]["number"] > 3, "a few cycles have passed")

    assert calls > 0
    assert agent.fake.calls("nvmlInitWithFlags") + agent.fake.calls("nvmlInit_v2") == calls
    assert status["gpus"]["released"]
    assert agent.fake.clients() == []


def _without_ages(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_ages(part) for key, part in value.items() if not key.endswith("_seconds")}
    return [_without_ages(part) for part in value] if isinstance(value, list) else value
