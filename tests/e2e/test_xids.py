"""Xids from the kernel log and from NVML to what status says, with every other NVML call blocked."""

from __future__ import annotations

import pytest

from tests.agent import Agent, is_raised, row
from tests.e2e.conftest import MakeAgent


def block_nvml(agent: Agent) -> None:
    """Let every NVML call but the wait for events hang, and return when status says so."""
    agent.fake.add_rule("*", "block", excluded=["nvmlEventSetWait_v2"])
    agent.wait_until(lambda s: s["pending_calls"], "a call is pending")


@pytest.mark.parametrize("source", ["kernel", "nvml"])
def test_xid_79_is_raised_while_nvml_blocks(agent: Agent, source: str) -> None:
    """One fault becomes critical, asks for one taint, and names its source's line."""
    addresses = [agent.pci(gpu) for gpu in range(8)]
    block_nvml(agent)
    for gpu in (1, 6):
        if source == "kernel":
            agent.kernel_log.xid(addresses[gpu], 79, "GPU has fallen off the bus.")
        else:
            agent.fake.add_event(gpu, "xid", 79)
        agent.wait_until(
            lambda s, at=addresses[gpu]: is_raised(s, "xid", at), f"Xid 79 of GPU {gpu} is raised", 3
        )
    status = agent.status()

    assert [x["number"] for x in status["xids"]] == [79, 79]
    assert [t["effect"] for t in status["taint"]["wanted"]] == ["NoSchedule"]
    assert agent.cli("status")[0] == 2


def test_both_sources_make_one_fault(agent: Agent) -> None:
    """The same Xid by kernel record and NVML event counts once."""
    address = agent.pci(4)
    agent.kernel_log.xid(address, 79)
    agent.fake.add_event(4, "xid", 79)
    agent.wait_until(lambda s: is_raised(s, "xid", address), "Xid 79 is raised")
    agent.fake.add_event(4, "xid", 13)
    status = agent.wait_until(lambda s: len(s["xids"]) == 2, "the later Xid 13 has come in")

    assert {x["number"]: x["count"] for x in status["xids"]} == {79: 1, 13: 1}


def test_the_45s_after_a_79_stay_inside_its_incident(agent: Agent) -> None:
    """The driver's clean-up of channels is no fault of its own: one incident, one cause, one taint."""
    address = agent.pci(7)
    agent.kernel_log.xid(address, 79, "GPU has fallen off the bus.")
    for channel in range(4):
        agent.kernel_log.xid(address, 45, f"pid=4242, name=python3, channel 0x{channel:08x}")
    status = agent.wait_until(
        lambda s: any(x["number"] == 45 and x["count"] == 4 for x in s["xids"]), "four 45s are counted"
    )

    assert [i["target"] for i in status["incidents"]] == [address]
    assert "79" in status["incidents"][0]["root"]
    assert next(x["class"] for x in status["xids"] if x["number"] == 45) == "ignore"
    assert len(status["taint"]["wanted"]) == 1


def test_faults_of_applications_never_ask_for_a_taint(agent: Agent) -> None:
    """13, 31 and 43, again and again on several GPUs and from both sources, leave the node schedulable."""
    for gpu, number in ((0, 13), (1, 31), (2, 43)):
        for _ in range(5):
            agent.kernel_log.xid(agent.pci(gpu), number)
        agent.fake.add_event(gpu, "xid", number)
    status = agent.wait_until(lambda s: len(s["xids"]) == 3, "the three numbers are shown")
    settled = status["cycle"]["number"] + 3
    status = agent.wait_until(lambda s: s["cycle"]["number"] >= settled, "three more cycles")

    assert {x["class"] for x in status["xids"]} <= {"app", "ignore"}
    assert status["taint"]["wanted"] == []
    assert status["verdict"]["state"] != "critical"


def test_a_94_after_a_48_is_one_incident(agent: Agent) -> None:
    """The contained error that follows a double-bit error on the same GPU joins its incident."""
    address = agent.pci(2)
    agent.kernel_log.xid(address, 48, "DBE (double bit error) ECC error")
    agent.wait_until(lambda s: is_raised(s, "xid", address), "Xid 48 is raised")
    agent.kernel_log.xid(address, 94, "Contained: SM (0x1)")
    status = agent.wait_until(lambda s: len(s["xids"]) == 2, "Xid 94 is shown")

    assert len(status["incidents"]) == 1
    assert "48" in status["incidents"][0]["root"]


def test_a_forged_line_is_refused(agent: Agent) -> None:
    """A line from user space that looks like the driver's raises nothing and is counted."""
    agent.kernel_log.write("NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=forger", facility=1)
    status = agent.wait_until(lambda s: s["kernel_log"]["refused_records"] == 1, "the line is counted")

    assert status["xids"] == []
    assert status["verdict"]["state"] == "ok"


def test_an_override_holds_after_a_reload(make_agent: MakeAgent) -> None:
    """`[gpu.xid]` changed and SIGHUP: a standing fault takes the operator's class."""
    agent = make_agent()
    agent.start()
    address = agent.pci(3)
    agent.kernel_log.xid(address, 79)
    agent.wait_until(lambda s: s["verdict"]["class"] == "reboot", "Xid 79 asks for a reboot")
    agent.configure({"gpu.xid": {"79": "app"}})
    agent.reload()
    status = agent.wait_until(lambda s: not s["taint"]["wanted"], "the operator's class holds")

    assert row(status, "xid", address)["state"] != "critical"
