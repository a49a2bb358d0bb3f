"""The story of the demo, as data: what happens to the node, what the viewer is told, what must then show.

A step is added by adding a line to STORY. Nothing here draws, starts or ends anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tests.agent import Agent, Status, is_raised, quick_to_clear
from tests.demo_cluster import NODE_NAME

SICK, HUNG, WORKER, APPLICATION = 3, 6, 5, 1
"""GPU indices: the one that breaks, the one that falls off the bus, a job's, and a faulty program's."""
SICK_CHECKS = ("xid", "gpu.recovery_action", "ecc.uncorrected")
JOB = {4242: 40 << 30}

SECTIONS: dict[str, dict[str, Any]] = {
    "node": {"name": NODE_NAME},
    "gpu": {"poll_seconds": 1.0, "call_deadline_seconds": 1.0, "stuck_seconds": 3.0},
    **{
        name: {**keys, "good_polls": 3, "minimum_seconds": 3}
        for name, keys in quick_to_clear(
            "xid", "gpu.recovery_action", "gpu.lost", "ecc.uncorrected", "driver.stuck"
        ).items()
    },
}
SECTIONS['checks."xid"']["app_seconds"] = 12
"""Everything five to fifteen times as fast as on a real node, so that the story is short."""


class Step(Struct, frozen=True, kw_only=True):
    """One scene."""

    caption: str
    """One line: what happened, and what the agent makes of it."""
    act: Callable[[Agent], object]
    shows: Callable[[Status], object]
    """True for the status that the viewer is waiting for."""
    stay_seconds: float = 5.0
    """How long it can be read after that."""
    tainted: bool | None = None
    """Whether the Node carries our taint then, where there is an API server; None: either."""


def _nothing(_agent: Agent) -> None:
    """The node is left alone."""


def _application_fault(agent: Agent) -> None:
    agent.kernel_log.xid(agent.pci(APPLICATION), 31, "pid=811, name=python3, Ch 00000008, MMU Fault")


def _memory_fault(agent: Agent) -> None:
    agent.fake.set_gpu(SICK, "ecc.uncorrected.volatile.dram", 1)
    agent.fake.set_gpu(SICK, "recovery_action", 1)
    agent.kernel_log.xid(agent.pci(SICK), 48, "pid='<unknown>', name=<unknown>, DBE (double bit error)")
    agent.kernel_log.xid(agent.pci(SICK), 94, "pid=4242, name=train.py, Contained: SM (0x1)")


def _silence(agent: Agent) -> None:
    reason = "the job may finish its epoch"
    agent.cli("silence", *SICK_CHECKS, "--target", str(SICK), "--for", "2h", "--reason", reason)


def _drain(agent: Agent) -> None:
    agent.fake.set_processes(WORKER, {})


def _reset(agent: Agent) -> None:
    agent.fake.reset(SICK)
    agent.cli("gpu", "resume")
    agent.cli("unsilence", *(str(silence["number"]) for silence in agent.status()["silences"]))


def _hang(agent: Agent) -> None:
    agent.fake.add_rule("*", "block", gpu=HUNG)


def _off_the_bus(agent: Agent) -> None:
    agent.kernel_log.xid(agent.pci(HUNG), 79, "GPU has fallen off the bus.")
    for channel in range(3):
        agent.kernel_log.xid(agent.pci(HUNG), 45, f"pid=4242, name=train.py, channel 0x{channel:08x}")


def _reboot(agent: Agent) -> None:
    agent.stop()
    agent.fake.clear_rules()
    agent.boot()
    agent.start()


def _released(status: Status) -> bool:
    nvml_worker = next(w for w in status["workers"] if w["kind"] == "nvml")
    return bool(status["gpus"]["released"]) and not nvml_worker["pid"]


def _healthy(status: Status) -> bool:
    return status["verdict"]["state"] == "ok" and status["gpus"]["healthy"] == 8


STORY = (
    Step(
        caption="Eight H100s, a training job on GPU 5, nothing wrong.",
        act=lambda agent: agent.fake.set_processes(WORKER, JOB), shows=_healthy, stay_seconds=2,
    ),
    Step(
        caption="A program on GPU 1 reads memory that is not its own: Xid 31. That is the program's affair; "
        "it is shown for a while, and the node goes on taking work.",
        act=_application_fault, shows=lambda s: s["xids"], stay_seconds=3,
    ),
    Step(
        caption="GPU 3 has an uncorrectable memory error: Xid 48, a 94 in its wake, and the driver asks for "
        "a reset. Kernel log and NVML agree: one incident, and a taint, so that no new pod comes.",
        act=_memory_fault, shows=lambda s: is_raised(s, "gpu.recovery_action"), stay_seconds=5, tainted=True,
    ),
    Step(
        caption="An operator lets the job on it finish: `nodeagent silence` holds the taint for two hours. "
        "Nothing is hidden, and status says who did it and why.",
        act=_silence, shows=lambda s: s["silences"] and not s["taint"]["wanted"], stay_seconds=4,
        tainted=False,
    ),
    Step(
        caption="The job is drained. No process uses a GPU any more, so the agent lets NVML go by itself: "
        "it must not stand in the way of the reset.",
        act=_drain, shows=_released, stay_seconds=2,
    ),
    Step(
        caption="The GPU is reset, then `nodeagent gpu resume`. The counters fell and the driver asks for "
        "nothing: a reset was seen, and after three good reads the fault is let go.",
        act=_reset, shows=_healthy, stay_seconds=2, tainted=False,
    ),
    Step(
        caption="A driver call about GPU 6 does not return. Status names the call; after three missed "
        "deadlines the driver counts as stuck. The agent itself goes on.",
        act=_hang, shows=lambda s: is_raised(s, "driver.stuck"), stay_seconds=3,
    ),
    Step(
        caption="The reason comes by the kernel log while NVML still hangs: GPU 6 has fallen off the bus, "
        "Xid 79. The 45s after it are clean-up and stay inside its incident.",
        act=_off_the_bus, shows=lambda s: is_raised(s, "xid"), stay_seconds=3, tainted=True,
    ),
    Step(
        caption="A reset cannot cure that; the node is rebooted. The agent remembers the fault over the "
        "boot, and lets it go after good reads in the new one.",
        act=_reboot, shows=_healthy, stay_seconds=2, tainted=False,
    ),
)
