"""A GPU that decays fast and answers slowly is told, and the agent neither falls nor restarts for ever."""

from __future__ import annotations

from tests.agent import Agent, Status, is_raised, prompt, row
from tests.e2e.conftest import MakeAgent

ECC = "nvmlDeviceGetTotalEccErrors"
RATE = "ecc.corrected_rate"


def decaying(make_agent: MakeAgent, delay_milliseconds: int) -> Agent:
    """A running agent beside a GPU with 17,000 corrected errors a second and slow ECC calls."""
    agent = make_agent(gpus=4, sections=prompt(RATE, "driver.stuck"))
    agent.start()
    agent.wait_until(lambda s: row(s, RATE, agent.pci(3)).get("state") == "ok", "the rate is read")
    agent.fake.raise_ecc(3, per_second=17_000)
    agent.fake.add_rule(ECC, f"delay {delay_milliseconds}", gpu=3)
    return agent


def nvml(status: Status) -> dict[str, object]:
    """The NVML worker as status has it."""
    return next(dict(worker) for worker in status["workers"] if worker["kind"] == "nvml")


def test_a_decaying_gpu_that_answers_slowly_is_told_by_its_rate(make_agent: MakeAgent) -> None:
    """Calls within their deadline: the rate is raised on that GPU alone, by the same worker."""
    agent = decaying(make_agent, 400)
    worker = agent.workers()["nvml"]
    status = agent.wait_until(lambda s: is_raised(s, RATE, agent.pci(3)), "the rate is raised", 60)

    assert "memory errors a second" in row(status, RATE, agent.pci(3))["sentence"]
    assert [row(status, RATE, agent.pci(gpu))["state"] for gpu in range(3)] == ["ok"] * 3
    assert agent.workers()["nvml"] == worker


def test_a_decaying_gpu_that_answers_too_late_is_told_by_the_hung_call(make_agent: MakeAgent) -> None:
    """Calls over their deadline: call and GPU are named, one worker waits, and the rate comes after."""
    agent = decaying(make_agent, 6000)
    assert agent.process is not None
    status = agent.wait_until(lambda s: is_raised(s, "driver.stuck"), "driver.stuck is raised", 60)

    assert ECC in row(status, "driver.stuck")["sentence"]
    assert sum("drivers.nvml" in command for command in agent.processes().values()) == 1
    agent.fake.clear_rules()
    status = agent.wait_until(lambda s: is_raised(s, RATE, agent.pci(3)), "the rate is raised", 60)
    assert int(str(nvml(status)["restarts"])) <= 2
    assert agent.process.poll() is None
