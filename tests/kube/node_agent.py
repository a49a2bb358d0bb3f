"""The real daemon on a node of the real control plane: scripted GPUs, an account with the agent's rights."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.agent import Agent, prompt
from tests.kube import plane as control
from tests.kube.api import NAMESPACES, NODES, Api, account, cluster_role, cluster_role_binding
from tests.kube.plane import ControlPlane

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LEDGER = "nodeagent.io/ledger"
GPU_TAINT = "nodeagent.io/gpu-unhealthy"
RULES: tuple[dict[str, Any], ...] = (
    {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["nodes"],
     "verbs": ["impersonate:associated-node"]},
    {"apiGroups": [""], "resources": ["nodes", "pods"],
     "verbs": ["impersonate-on:associated-node:get", "impersonate-on:associated-node:watch"]},
)
QUICK = {
    "observe.cluster.START_SECONDS": 0.0, "observe.api_watch.FIRST_CAP_SECONDS": 0.5,
    "decide.node_taints.CONFIRM_SHORTEST_SECONDS": 0.5, "decide.node_taints.CONFIRM_LONGEST_SECONDS": 1.0,
}
"""Pauses of the daemon under test; no part is replaced."""


class NodeAgent:
    """One daemon, its Node, and what an administrator sees of it."""

    def __init__(self, plane: ControlPlane, node: str, folder: Path, **cluster: Any) -> None:
        """`cluster`: further keys of that section."""
        self.plane, self.name = plane, node
        self.switch = folder / "stop-api-writes"
        self.account = f"{node}-agent"
        plane.admin(Api.post, f"{NAMESPACES}/default/serviceaccounts", account(self.account)).expect(201)
        plane.admin(Api.post, control.ROLES, cluster_role(self.account, *RULES)).expect(201)
        binding = cluster_role_binding(self.account, "default", self.account)
        plane.admin(Api.post, control.BINDINGS, binding).expect(201)
        self.kubeconfig = folder / "kubeconfig"
        self.renew()
        self.sections = {
            "node": {"name": node}, "pods": {"source": "none"}, **prompt("gpu.recovery_action"),
            "gpu": {"auto_release": False},
            "cluster": {"kubeconfig": str(self.kubeconfig), "kill_switch_file": str(self.switch), **cluster},
        }
        self.agent = Agent(folder, sections=self.sections, gpus=2, prefix=plane.capsule.prefix())
        self.dies_at()

    def renew(self) -> None:
        """A token that is bound to the Node as it is now."""
        token = self.plane.node_token(self.account, self.name)
        self.plane.token_kubeconfig(self.kubeconfig, token)

    def dies_at(self, number: int = -1) -> None:
        """From the next start on: before which op on the API it dies; -1: never."""
        self.patches(QUICK, number)

    def patches(self, patches: Mapping[str, object], number: int = -1) -> None:
        """From the next start on: constants of the daemon, and before which op it dies."""
        words = [f"{name}={value}" for name, value in patches.items()]
        self.agent.program = [
            sys.executable, "-m", "tests.kube.dying_daemon", str(number), *words, "--"]

    # ------------------------------------------------------------------ faults

    def fault(self) -> None:
        """The driver asks for a reset of GPU 1."""
        self.agent.fake.set_field(1, 230, value=1)

    def cure(self) -> None:
        """GPU 1 was reset."""
        self.agent.fake.set_field(1, 230, value=0)

    # ------------------------------------------------------------------ what is there

    def get(self) -> dict[str, Any]:
        """The Node object."""
        return dict(self.plane.admin(Api.get, f"{NODES}/{self.name}").expect(200))

    def taints(self) -> list[dict[str, Any]]:
        """spec.taints"""
        return list(self.get()["spec"].get("taints", []))

    def own(self) -> dict[str, str]:
        """Values of our taints by key."""
        return {t["key"]: t.get("value", "") for t in self.taints() if t["key"].startswith("nodeagent.io/")}

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason of our conditions by type."""
        found = self.get()["status"].get("conditions", [])
        return {c["type"]: (c["status"], c["reason"]) for c in found if c["type"].startswith("NodeAgent")}

    def events(self) -> list[str]:
        """Reasons of our events about the Node."""
        items = self.plane.admin(Api.get, EVENTS).expect(200)["items"]
        return sorted(e["reason"] for e in items if e["regarding"]["name"] == self.name)

    def state(self) -> tuple[Any, ...]:
        """Taints, ledger without times, conditions and events."""
        node = self.get()
        ledger = json.loads(node["metadata"].get("annotations", {}).get(LEDGER, "{}"))
        entries = [(e["key"], e["value"]) for e in ledger.get("taints", [])]
        return node["spec"].get("taints", []), entries, self.conditions(), self.events()

    def patch(self, body: Any, kind: str = "json") -> None:
        """Change the Node as administrator."""
        self.plane.admin(Api.patch, f"{NODES}/{self.name}", body, kind).expect(200)

    def until(self, holds: Callable[[], object], what: str, seconds: float = 30.0) -> None:
        """Return when it holds; fail with the Node and the daemon's words when it never does."""
        end_seconds = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end_seconds:
                shown = ""
                with contextlib.suppress(OSError, ValueError):
                    shown = json.dumps(self.agent.status().get("api"))
                said = f"{self.state()}\n{shown}\n{self.agent.log()}"
                raise AssertionError(f"not within {seconds:g} s: {what}\n{said}")
            time.sleep(0.03)

    def requests(self, since: int) -> list[tuple[str, str]]:
        """Verb and resource of what the daemon asked after the first `since` audit events."""
        user = f"system:serviceaccount:default:{self.account}"
        return [
            (e["verb"], e["objectRef"]["resource"]) for e in self.plane.audited(since)
            if e["user"]["username"] == user and "objectRef" in e
        ]
