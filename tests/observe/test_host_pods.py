"""The sampler of hostNetwork pods: their cgroups are found, also late, and forgotten with the pod."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from nodeagent.drivers.clock import SystemClock
from nodeagent.model import NODE
from nodeagent.observe import host_pods
from nodeagent.observe.board import Board
from nodeagent.observe.host_pods import HostPodSampler
from nodeagent.observe.inbox import Inbox
from nodeagent.traffic import Pod, PodList, PodPhase
from tests.drivers.rig import until

UID = "0b7c2f54-1111-4222-8333-444455556666"


def listed(*phases: PodPhase) -> PodList:
    """One hostNetwork pod for each phase, and a pod that is none."""
    host = [Pod(uid=UID, namespace="n", name="h", host_network=True, phase=phase) for phase in phases]
    return PodList(source="file", pods=(*host, Pod(uid="other", namespace="n", name="p")))


def test_a_cgroup_is_found_when_it_comes_and_forgotten_with_its_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for a cycle each time that what it knows changes."""
    monkeypatch.setattr(host_pods, "GAP_SECONDS", 0.0)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "mounts").write_text(f"cgroup2 {tmp_path}/tree cgroup2 rw 0 0\n")

    async def scene() -> None:
        board, inbox = Board(SystemClock()), Inbox()
        sampler = HostPodSampler(str(tmp_path), board, inbox)
        board.put("pods", NODE, listed(PodPhase.RUNNING))
        task = asyncio.create_task(sampler.run())
        try:
            await asyncio.sleep(0.05)
            assert sampler.paths == {} and not inbox.urgent.is_set()
            (tmp_path / "tree" / "kubepods" / f"pod{UID}").mkdir(parents=True)
            sampler.request_now()
            await until(lambda: sampler.paths == {UID: f"kubepods/pod{UID}"} and inbox.urgent.is_set())
            board.put("pods", NODE, listed(PodPhase.SUCCEEDED))
            inbox.drain()
            sampler.request_now()
            await until(lambda: sampler.paths == {} and inbox.urgent.is_set())
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(scene())
