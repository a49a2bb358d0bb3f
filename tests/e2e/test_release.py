"""The agent never stands in the way of a reset, and believes in one only when it has seen it."""

from __future__ import annotations

import pytest

from tests.agent import Agent, is_raised, prompt
from tests.e2e.conftest import MakeAgent
from tests.fakenvml.control import InUseError

FAULTY = 2
QUICK_CLEAR = prompt("xid", "gpu.recovery_action", "ecc.uncorrected")


def _break(agent: Agent) -> str:
    """Give one GPU a double-bit error as the driver shows it; returns its address."""
    address = agent.pci(FAULTY)
    agent.fake.set_gpu(FAULTY, "ecc.uncorrected.volatile.dram", 1)
    agent.fake.set_gpu(FAULTY, "recovery_action", 1)
    agent.kernel_log.xid(address, 48, "DBE (double bit error) ECC error")
    agent.wait_until(
        lambda s: is_raised(s, "xid", address) and is_raised(s, "gpu.recovery_action", address),
        "the fault is raised by kernel log and NVML",
    )
    return address


def test_a_release_lets_a_reset_succeed_that_then_clears_the_fault(make_agent: MakeAgent) -> None:
    """Refused before, possible while released, seen after: the reset alone ends the incident."""
    agent = make_agent(sections={**QUICK_CLEAR, "gpu": {"auto_release": False}})
    agent.start()
    address = _break(agent)
    with pytest.raises(InUseError) as refused:
        agent.fake.reset(FAULTY)
    assert str(agent.workers()["nvml"]) in str(refused.value)

    code, said = agent.cli("gpu", "release", "--for", "5m")
    assert (code, agent.fake.clients()) == (0, []), said
    assert agent.status()["verdict"]["state"] == "critical"
    agent.fake.reset(FAULTY)
    assert agent.cli("gpu", "resume")[0] == 0
    status = agent.wait_until(lambda s: s["verdict"]["state"] == "ok", "the seen reset clears the fault")

    assert all(x["cleared"] for x in status["xids"] if x["target"] == address)


def test_good_reads_without_a_reset_clear_nothing(make_agent: MakeAgent) -> None:
    """An Xid 48 whose counters read well stays in force over a restart: no reset was seen."""
    agent = make_agent(sections={**QUICK_CLEAR, "gpu": {"auto_release": False}})
    agent.start()
    address = agent.pci(FAULTY)
    agent.kernel_log.xid(address, 48)
    agent.wait_until(lambda s: is_raised(s, "xid", address), "Xid 48 is raised")
    agent.stop()
    agent.start()
    later = agent.status()["cycle"]["number"] + 8
    status = agent.wait_until(lambda s: s["cycle"]["number"] >= later, "eight cycles with good reads")

    assert is_raised(status, "xid", address)


def test_an_idle_node_in_need_of_a_reset_is_released_by_itself(make_agent: MakeAgent) -> None:
    """With no compute process left nobody has to ask: the reset succeeds, `gpu resume` shows it."""
    agent = make_agent(sections=QUICK_CLEAR)
    agent.start()
    _break(agent)
    status = agent.wait_until(
        lambda s: s["gpus"]["released"] and not agent.fake.clients(), "NVML is released by itself"
    )
    assert not status["gpus"]["release"]["by_operator"]
    agent.fake.reset(FAULTY)
    agent.cli("gpu", "resume")

    agent.wait_until(lambda s: s["verdict"]["state"] == "ok", "the seen reset clears the fault")


def test_a_busy_node_is_not_released_by_itself(make_agent: MakeAgent) -> None:
    """While a compute process runs on any GPU, NVML stays read."""
    agent = make_agent(sections=QUICK_CLEAR)
    agent.fake.set_processes(6, {4242: 1 << 30})
    agent.start()
    _break(agent)
    later = agent.status()["cycle"]["number"] + 8
    status = agent.wait_until(lambda s: s["cycle"]["number"] >= later, "eight more cycles")

    assert not status["gpus"]["released"]
    assert agent.fake.clients() == [agent.workers()["nvml"]]
