"""Samples where hostNetwork pods have their cgroup: the only thing that tells their traffic from the host's.

Looks only while there are such pods; directory names are read in a thread, never in the loop.
"""

from __future__ import annotations

import asyncio

from nodeagent.drivers import cgroups
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.pace import woken
from nodeagent.signals import SignalKey, read_as
from nodeagent.traffic import PodList

PERIOD_SECONDS = 60.0
MISSING_SECONDS = 10.0
"""Between two looks while a pod has no cgroup yet."""
GAP_SECONDS = 1.0


class HostPodSampler:
    """One task; `paths` is what it found last."""

    def __init__(self, proc_root: str, board: Board, inbox: Inbox) -> None:
        """`proc_root`: where the host's /proc is mounted."""
        self.paths: dict[str, str] = {}
        """Uid -> path in the cgroup v2 tree."""
        self._proc_root = proc_root
        self._board = board
        self._inbox = inbox
        self._wake = asyncio.Event()

    def request_now(self) -> None:
        """Look soon: the list of pods changed."""
        self._wake.set()

    async def run(self) -> None:
        """Sample for ever; cancel it to end."""
        while True:
            self._wake.clear()
            uids = self._uids()
            found = await asyncio.to_thread(self._find, uids) if uids else {}
            if found != self.paths:
                self.paths = found
                self._inbox.wake()
            period_seconds = MISSING_SECONDS if len(found) < len(uids) else PERIOD_SECONDS
            await woken(self._wake, period_seconds)
            await asyncio.sleep(GAP_SECONDS)

    def _uids(self) -> tuple[str, ...]:
        listed = read_as(self._board.readings().get(SignalKey("pods", NODE)), PodList)
        if listed is None:
            return ()
        return tuple(pod.uid for pod in listed.pods if pod.host_network and not pod.finished)

    def _find(self, uids: tuple[str, ...]) -> dict[str, str]:
        root = cgroups.mount_point(self._proc_root)
        return cgroups.pod_paths(root, uids) if root is not None else {}
