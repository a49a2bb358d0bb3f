"""`gpu.recovery_action`: what the driver itself says must be done to the GPU.

The driver's word is the authority over Xid numbers, so one poll is enough. A value that this table
does not know yet is shown as such and never taints.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good
from nodeagent.model import Finding, NodeClass

ACTIONS: dict[int, tuple[NodeClass, str]] = {
    1: (NodeClass.RESET, "GPU Reset Required"),
    2: (NodeClass.REBOOT, "Node Reboot Required"),
    3: (NodeClass.CHECK, "Drain P2P"),
    4: (NodeClass.RESET, "Drain and Reset"),
    5: (NodeClass.CHECK, "Recover IMEX Domain"),
    6: (NodeClass.REBOOT, "Bus Reset"),
    7: (NodeClass.REBOOT, "System Reboot"),
}
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION value -> class and the driver's words; 0 is None."""


def judge(given: CheckInput) -> Iterator[Finding]:
    """Anything but 0 is bad, with the class that the action asks for."""
    for target, action, reading in given.values("gpu.recovery_action"):
        if action.value == 0:
            yield good(target, reading, value="None", limit="None", number=0.0)
            continue
        node_class, words = ACTIONS.get(
            action.value, (NodeClass.CHECK, f"unknown action {action.value}, newer than this agent")
        )
        yield bad(
            target, reading, f"the driver asks: {words}", value=words, limit="None",
            number=float(action.value), node_class=node_class, cause=f"recovery action {action.value}",
        )


CHECKS = (
    Check(
        id="gpu.recovery_action",
        title="Recovery action asked by the driver",
        family="gpu",
        signals=("gpu.recovery_action",),
        source="NVML field 230, GPU recovery action",
        node_class=NodeClass.RESET,
        judge=judge,
        hold=HoldRule(proof="reset"),
        depends_on=("driver.stuck",),
    ),
)
