"""MIG mode, GPUs of different products, and GPUs that leave and join a running node."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agent import Agent, Status, faults, prompt, row
from tests.e2e.conftest import MakeAgent

L4 = {
    "name": "NVIDIA L4", "device_id": 0x27B810DE, "has.nvlink": "no", "has.fabric": "no", "nvlink.count": 0,
    "has.recovery_action": "no", "has.mig": "no", "pcie.gen": 1, "pcie.gen_max": 4, "pstate": 8,
}
"""What an L4 is, set over an H100."""
LINK_CHECKS = ("nvlink.down", "nvlink.errors", "fabric.state")


def states(status: Status, check: str) -> dict[str, str]:
    """State of that check by target."""
    return {r["target"]: r["state"] for r in status["rows"] if r["id"] == check}


def quiet(agent: Agent, polls: int = 4) -> Status:
    """The status after so many more polls."""
    first = agent.status()["cycle"]["number"]
    return agent.wait_until(lambda s: s["cycle"]["number"] > first + 4 * polls, "some more polls", 40)


def test_a_node_of_two_products_is_judged_by_what_each_can(make_agent: MakeAgent) -> None:
    """Six H100 and two L4: links and fabric of these alone do not apply, nothing is raised."""
    agent = make_agent(sections=prompt(*LINK_CHECKS, "pcie.width", "gpu.recovery_action"))
    for gpu in (6, 7):
        for key, value in L4.items():
            agent.fake.set_gpu(gpu, key, value)
    agent.start()
    status = quiet(agent)

    assert status["verdict"]["state"] == "ok", faults(status)
    lacking = {agent.pci(6), agent.pci(7)}
    for check in (*LINK_CHECKS, "gpu.recovery_action"):
        by_target = states(status, check)
        assert {target for target, state in by_target.items() if state == "not_applicable"} == lacking
    assert set(states(status, "pcie.width").values()) == {"ok"}


def test_one_gpu_in_mig_mode_is_judged_by_what_it_still_tells(make_agent: MakeAgent) -> None:
    """Its links read as down and are not judged; its ECC is; an Xid names the instance."""
    agent = make_agent(sections=prompt(*LINK_CHECKS, "gpu.memory_orphaned"))
    agent.fake.set_gpu(6, "mig.mode", 1)
    agent.start()
    status = quiet(agent)
    mig = agent.pci(6)

    assert status["verdict"]["state"] == "ok", faults(status)
    for check in ("nvlink.down", "nvlink.errors", "row_remap.failed", "gpu.memory_orphaned"):
        assert row(status, check, mig)["state"] == "not_applicable", check
    assert row(status, "ecc.uncorrected", mig)["state"] == "ok"
    agent.fake.add_event(6, "xid", 31, gi=2, ci=1)
    agent.wait_until(
        lambda s: "GI 2 CI 1" in row(s, "xid", mig).get("sentence", ""), "the Xid names the instance"
    )


def test_mig_mode_switched_on_and_off_raises_nothing(make_agent: MakeAgent) -> None:
    """Eighteen links vanish and come back; neither is a fault."""
    agent = make_agent(sections=prompt(*LINK_CHECKS))
    agent.start()
    for mode in (1, 0):
        agent.fake.set_gpu(2, "mig.mode", mode)
        wanted = "not_applicable" if mode else "ok"
        agent.wait_until(
            lambda s, wanted=wanted: row(s, "nvlink.down", agent.pci(2)).get("state") == wanted,
            f"nvlink.down is {wanted}",
        )
    assert agent.get("/v1/history")["transitions"] == []


def test_links_that_go_down_on_one_gpu_name_it_alone(make_agent: MakeAgent) -> None:
    """The row has the numbers of the links; the other seven GPUs are ok."""
    agent = make_agent(sections=prompt("nvlink.down"))
    agent.start()
    agent.wait_until(lambda s: row(s, "nvlink.down", agent.pci(4)).get("state") == "ok", "links are read")
    agent.fake.set_link(4, 7, "up", "down")
    status = agent.wait_until(
        lambda s: row(s, "nvlink.down", agent.pci(4)).get("state") == "critical", "nvlink.down is raised"
    )

    assert "17 of 18 NVLinks are up; down: 7" in row(status, "nvlink.down", agent.pci(4))["sentence"]
    assert sorted(states(status, "nvlink.down").values()) == ["critical"] + ["ok"] * 7


def can_mount() -> bool:
    """True where a private mount namespace can be made."""
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return os.geteuid() == 0 and done.returncode == 0


needs_mounts = pytest.mark.skipif(not can_mount(), reason="needs root and mount namespaces: run it as root")


class Bus:
    """A PCI bus of our own, which the agent finds in place of the host's."""

    def __init__(self, directory: Path, agent: Agent) -> None:
        self.devices = directory / "bus"
        self.devices.mkdir()
        mount = f'mount --bind {self.devices} /sys/bus/pci/devices && exec "$@"'
        agent.prefix = ["unshare", "-m", "--propagation", "private", "sh", "-c", mount, "sh"]

    def add(self, address: str) -> None:
        """Let a GPU appear."""
        device = self.devices / address
        device.mkdir()
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")

    def remove(self, address: str) -> None:
        """Let a GPU vanish."""
        device = self.devices / address
        (device / "vendor").unlink()
        (device / "class").unlink()
        device.rmdir()


ADDRESSES = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61")]


def with_bus(make_agent: MakeAgent, tmp_path: Path, shown: int, **options: Any) -> tuple[Agent, Bus]:
    """A node of four GPUs, of which the bus shows so many."""
    agent = make_agent(gpus=4, sections=prompt("gpu.count", "gpu.lost", "nvlink.down"), **options)
    bus = Bus(tmp_path, agent)
    for address in ADDRESSES[:shown]:
        bus.add(address)
    for gpu in range(shown, 4):
        agent.fake.set_gpu(gpu, "state", "absent")
    return agent, bus


@pytest.mark.root
@needs_mounts
def test_a_gpu_added_at_run_time_is_found(make_agent: MakeAgent, tmp_path: Path) -> None:
    """The worker is replaced once, the GPU is read like the others, and nothing stays raised."""
    agent, bus = with_bus(make_agent, tmp_path, 3)
    agent.start()
    old = agent.workers()["nvml"]
    agent.fake.set_gpu(3, "state", "ok")
    bus.add(ADDRESSES[3])
    agent.post("/v1/check")
    status = agent.wait_until(lambda s: s["gpus"]["healthy"] == 4, "four GPUs are healthy", 60)

    assert agent.workers()["nvml"] != old
    assert row(status, "nvlink.down", ADDRESSES[3])["state"] == "ok"
    agent.wait_until(lambda s: s["verdict"]["state"] == "ok", "the node is ok", 60)


@pytest.mark.root
@needs_mounts
def test_a_gpu_taken_out_at_run_time_is_lost_until_somebody_says_so(
    make_agent: MakeAgent, tmp_path: Path
) -> None:
    """It alone is raised; with the new number, a word about the GPU and NVML loaded anew the node is ok."""
    agent, bus = with_bus(make_agent, tmp_path, 4)
    agent.start()
    gone = ADDRESSES[2]
    agent.fake.set_gpu(2, "state", "fallen_off_bus")
    bus.remove(gone)
    agent.post("/v1/check")
    status = agent.wait_until(lambda s: row(s, "gpu.lost", gone).get("state") == "critical", "it is lost")
    assert {r["target"] for r in faults(status) if r["state"] == "critical"} <= {gone, "node"}
    others = [row(status, "gpu.lost", address)["state"] for address in ADDRESSES if address != gone]
    assert others == ["ok"] * 3

    agent.configure({"gpu": {"expected_count": 3}, **prompt("gpu.count", "gpu.lost", "nvlink.down")})
    agent.reload()
    agent.wait_until(lambda s: s["gpus"]["released"], "the agent steps aside for the cure")
    assert agent.cli("gpu", "repaired", gone, "--reason", "taken out, ticket 7")[0] == 0
    assert agent.cli("gpu", "resume")[0] == 0
    agent.wait_until(lambda s: s["verdict"]["state"] == "ok", "the node is ok with three GPUs", 60)
