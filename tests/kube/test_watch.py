"""The agent's pods and its own Node by watches of the real API server, as node and as account."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cluster import ApiStatus, NodeObject
from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.kube import Budget, KubeClient
from nodeagent.drivers.kube.credentials import from_kubeconfig
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.network_parts import NetworkParts
from nodeagent.observe import api_watch, cluster
from nodeagent.observe.board import Board
from nodeagent.observe.cluster import ApiPods, NodeWatch
from nodeagent.observe.inbox import Inbox
from nodeagent.settings import ClusterSettings, NodeSettings, PodSettings, Settings
from nodeagent.signals import SignalKey
from nodeagent.traffic import PodList
from tests.kube import plane as control
from tests.kube.api import NAMESPACES, NODES, Api, account, cluster_role, cluster_role_binding, pod
from tests.kube.plane import ControlPlane

PODS = f"{NAMESPACES}/default/pods"
AS_NODE = (
    {"apiGroups": ["authentication.k8s.io"], "resources": ["nodes"],
     "verbs": ["impersonate:associated-node"]},
    {"apiGroups": [""], "resources": ["nodes", "pods"],
     "verbs": [f"impersonate-on:associated-node:{verb}" for verb in ("get", "list", "watch")]},
)
AS_ACCOUNT = ({"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},)
ROLES: dict[str, tuple[dict[str, Any], ...]] = {"node": AS_NODE, "account": AS_ACCOUNT}


class Agent:
    """One node's watches, and what they said."""

    def __init__(
        self, plane: ControlPlane, node: str, folder: Path, rules: tuple[dict[str, Any], ...],
        entropy: float = 0.05,
    ) -> None:
        self.plane, self.node = plane, node
        self.entropy = entropy
        self.name = f"{node}-watcher"
        plane.admin(Api.post, f"{NAMESPACES}/default/serviceaccounts", account(self.name)).expect(201)
        plane.admin(Api.post, control.ROLES, cluster_role(self.name, *rules)).expect(201)
        binding = cluster_role_binding(self.name, "default", self.name)
        plane.admin(Api.post, control.BINDINGS, binding).expect(201)
        file = plane.token_kubeconfig(folder / "kubeconfig", plane.node_token(self.name, node))
        self.client = KubeClient(lambda: from_kubeconfig(str(file)), Budget(SystemClock().monotonic_seconds))
        self.board = Board(SystemClock())
        self.lists: list[PodList] = []
        self.errors: list[DriverError] = []

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        """Run the story while both watches run."""

        async def main() -> None:
            pods = ApiPods(self.client, node_name=self.node, entropy=lambda: self.entropy)
            watched = NodeWatch(
                self.client, self.board, Inbox(), node_name=self.node, entropy=lambda: self.entropy)
            tasks = [asyncio.create_task(pods.run(self.lists.append, self.errors.append)),
                     asyncio.create_task(watched.run())]
            try:
                await story()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        self.plane.capsule.run(main())

    def value(self, signal: str) -> Any:
        """What the board says."""
        reading = self.board.readings().get(SignalKey(signal, NODE))
        return None if reading is None else reading.value

    def names(self) -> list[str]:
        """Names of the newest list."""
        return sorted(p.name for p in self.lists[-1].pods) if self.lists else ["(none yet)"]

    async def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(0.02)
        assert condition(), (self.errors[-3:], self.names(), self.value("cluster.node"))


def gone(plane: ControlPlane, name: str) -> None:
    """Delete a pod at once."""
    plane.admin(Api.delete, f"{PODS}/{name}", {"gracePeriodSeconds": 0}).expect(200, 202)


@pytest.mark.parametrize("identity", ["node", "account"])
def test_pods_of_the_own_node_come_and_go(
    plane: ControlPlane, node: str, tmp_path: Path, identity: str
) -> None:
    """An empty node is an empty list; own pods come, change and go; a foreign node's pod is never seen."""
    agent = Agent(plane, node, tmp_path, ROLES[identity])
    plane.admin(Api.post, f"{NAMESPACES}/default/serviceaccounts", account("default")).expect(201, 409)

    async def story() -> None:
        await agent.until(lambda: agent.names() == [])
        plane.admin(Api.post, PODS, pod(f"{node}-foreign", "elsewhere")).expect(201)
        plane.admin(Api.post, PODS, pod(f"{node}-own", node)).expect(201)
        await agent.until(lambda: agent.names() == [f"{node}-own"])
        change = {"metadata": {"annotations": {"nodeagent.io/internet-limit": "1G"}}}
        plane.admin(Api.patch, f"{PODS}/{node}-own", change, "merge").expect(200)
        await agent.until(lambda: agent.lists[-1].pods[0].annotations != {})
        gone(plane, f"{node}-own")
        await agent.until(lambda: agent.names() == [])

    agent.run(story)
    gone(plane, f"{node}-foreign")
    assert all(listed.source == "api" and listed.skipped == 0 for listed in agent.lists)
    status = agent.value("cluster.api")
    assert isinstance(status, ApiStatus)
    assert status.identity == identity


def test_the_own_node_is_seen_with_its_taints_as_written(
    plane: ControlPlane, node: str, tmp_path: Path
) -> None:
    """A taint shows at once; a deleted Node is absent, and not the last one for ever."""
    agent = Agent(plane, node, tmp_path, AS_NODE)
    taint = {"key": "example.com/a", "value": "yes", "effect": "NoSchedule"}

    async def story() -> None:
        await agent.until(lambda: isinstance(agent.value("cluster.node"), NodeObject))
        add = [{"op": "add", "path": "/spec/taints/-", "value": taint}]
        plane.admin(Api.patch, f"{NODES}/{node}", add).expect(200)
        await agent.until(lambda: any(t.key == "example.com/a" for t in agent.value("cluster.node").taints))
        known = agent.value("cluster.node")
        # What was seen is what a patch may test: the server agrees.
        same = [{"op": "test", "path": "/metadata/uid", "value": known.uid}]
        plane.admin(Api.patch, f"{NODES}/{node}", same).expect(200)
        plane.admin(Api.delete, f"{NODES}/{node}").expect(200)
        await agent.until(lambda: getattr(agent.value("cluster.node"), "kind", None) is ErrorKind.ABSENT)

    agent.run(story)


def test_a_killed_server_is_waited_for_and_the_list_stands(
    plane: ControlPlane, node: str, tmp_path: Path
) -> None:
    """No list is told while it is away; afterwards the watch is whole again, without a LIST."""
    agent = Agent(plane, node, tmp_path, AS_ACCOUNT, entropy=0.3)
    audited = len(plane.audited())

    async def story() -> None:
        await agent.until(lambda: agent.names() == [])
        plane.server.stop(9)
        await agent.until(lambda: bool(agent.errors))
        told = len(agent.lists)
        await asyncio.sleep(0.5)
        assert len(agent.lists) == told
        plane.start_server()
        await agent.until(lambda: len(agent.lists) > told, seconds=50)

    agent.run(story)
    user = f"system:serviceaccount:default:{agent.name}"
    verbs = [event["verb"] for event in plane.audited(audited) if event["user"]["username"] == user]
    assert "watch" in verbs and "list" not in verbs


def test_an_account_without_rights_is_denied_for_good(
    plane: ControlPlane, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both identities refused three times in a row is what is believed; then other sources can be asked."""
    monkeypatch.setattr(api_watch, "FIRST_CAP_SECONDS", 1.0)
    agent = Agent(plane, node, tmp_path, ())

    async def main() -> None:
        pods = ApiPods(agent.client, node_name=node, entropy=lambda: 0.05)
        task = asyncio.create_task(pods.run(agent.lists.append, agent.errors.append))
        try:
            await asyncio.wait_for(pods.until_denied(), 30)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    plane.capsule.run(main())
    assert [error.kind for error in agent.errors] == [ErrorKind.DENIED] * api_watch.DENIALS
    assert agent.lists == []


def test_the_pod_sampler_takes_the_watch_as_its_source(
    plane: ControlPlane, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`[pods] source = "api"` with a kubeconfig: pods and their source are on the board."""
    monkeypatch.setattr(cluster, "START_SECONDS", 0.0)
    agent = Agent(plane, node, tmp_path, AS_NODE)
    settings = Settings(
        node=NodeSettings(name=node), pods=PodSettings(source="api"),
        cluster=ClusterSettings(kubeconfig=str(tmp_path / "kubeconfig")))

    async def main() -> None:
        parts = NetworkParts(settings, agent.board, Inbox(), SystemClock())
        assert parts.enabled
        await parts.pods.read_now()
        assert agent.value("pods").pods == ()
        task = asyncio.create_task(parts.pods.run())
        try:
            plane.admin(Api.post, PODS, pod(f"{node}-own", node)).expect(201)
            await agent.until(lambda: [p.name for p in agent.value("pods").pods] == [f"{node}-own"])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    plane.admin(Api.post, f"{NAMESPACES}/default/serviceaccounts", account("default")).expect(201, 409)
    plane.capsule.run(main())
    gone(plane, f"{node}-own")
    source = agent.value("pods.source")
    assert (source.source, source.error) == ("api", "")
