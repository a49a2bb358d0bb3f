"""`fabric.state`: is each GPU registered with the NVLink fabric, and does its manager live?

A registration stays "completed" when the manager dies, so it is believed only while that runs. Where the
manager runs elsewhere (a container, a switch tray) its life is not known here and not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodeagent.decide import fabric_mask
from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good, not_applicable, unknown
from nodeagent.gpu_signals import FabricManager, FabricState
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.signals import Reading

LIMIT = "completed, healthy"
SUMMARIES = {fabric_mask.UNHEALTHY: "unhealthy", fabric_mask.LIMITED_CAPACITY: "limited capacity"}


def judge(given: CheckInput) -> Iterator[Finding]:
    """The node's row is the manager, a GPU's row its registration; number is the state."""
    manager = given.value("fabric.manager", NODE)
    dead = isinstance(manager, FabricManager) and not manager.running
    concerned = False
    for target, fabric, reading in given.values("gpu.fabric"):
        if fabric.state == fabric_mask.NOT_SUPPORTED:
            sentence = "this GPU has no fabric to register with"
            yield not_applicable(target, sentence)
        else:
            concerned = True
            yield _registration(target, fabric, reading, dead=dead)
    if concerned and isinstance(manager, FabricManager):
        for _, _, reading in given.values("fabric.manager"):
            yield _manager(manager, reading)


def _manager(manager: FabricManager, reading: Reading) -> Finding:
    if manager.running:
        return good(NODE, reading, value="manager runs", limit="manager runs")
    sentence = f"the fabric manager does not run: {manager.detail}"
    return bad(NODE, reading, sentence, value="manager dead", limit="manager runs", cause="manager")


def _registration(target: str, fabric: FabricState, reading: Reading, *, dead: bool) -> Finding:
    shown: dict[str, Any] = {"limit": LIMIT, "number": float(fabric.state)}
    if fabric.state != fabric_mask.COMPLETED:
        words = {1: "not started", 2: "in progress"}.get(fabric.state, f"state {fabric.state}")
        sentence = f"the registration with the fabric is {words}"
        return bad(target, reading, sentence, value=words, cause="state", **shown)
    if fabric.status:
        sentence = f"the registration with the fabric ended with NVML error {fabric.status}"
        return bad(target, reading, sentence, value=f"error {fabric.status}", cause="status", **shown)
    if dead:
        return unknown(target, reading, "completed, but kept from before the manager died", **shown)
    faults = fabric_mask.mask_faults(fabric.health_mask or 0)
    summary = SUMMARIES.get(fabric.health_summary or 0)
    if summary is not None:
        faults.insert(0, summary)
    if faults:
        sentence = f"the fabric's health at this GPU: {', '.join(faults)}"
        return bad(
            target, reading, sentence, value=faults[0], cause="health", node_class=NodeClass.CHECK, **shown
        )
    return good(target, reading, value="completed", **shown)


CHECKS = (
    Check(
        id="fabric.state",
        title="NVLink fabric registration",
        family="gpu",
        signals=("gpu.fabric",),
        source="NVML fabric state, status and health mask; pid file and unit of the fabric manager",
        node_class=NodeClass.RESET,
        judge=judge,
        hold=HoldRule(bad_polls=3, of_polls=5),
        depends_on=("driver.stuck", "gpu.lost"),
        common_cause="fabric",
        boot_grace_seconds=300.0,
    ),
)
