"""What the socket answers about pods' traffic: read anew for each question, judged by the cycle as always.

A question has links and marks read at once and waits for the cycle that took the readings in; when that does
not come in time, the answer is what is known, with its age.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Protocol

from nodeagent.decide.marks import MarkOptions
from nodeagent.report import schema
from nodeagent.report.given import ReportInput
from nodeagent.report.routes import BadRequest
from nodeagent.report.traffic import build_diff, build_show, build_top, find_pod

FRESH_DEADLINE_SECONDS = 4.0
POLL_SECONDS = 0.05


class Network(Protocol):
    """The network's half of the daemon; `network_parts.NetworkParts` is one."""

    @property
    def enabled(self) -> bool:
        """True when pods are marked here."""

    def options(self) -> MarkOptions:
        """What marking depends on."""

    async def refresh(self) -> None:
        """Read links and marks now, at most once a second."""


class NetSurface:
    """The three answers."""

    def __init__(
        self, network: Network, given: Callable[[], ReportInput], monotonic_seconds: Callable[[], float]
    ) -> None:
        """`given`: the last cycle's result, seen from now; raises BadRequest before there is one."""
        self._network = network
        self._given = given
        self._monotonic_seconds = monotonic_seconds

    async def top(self) -> bytes:
        """Schema nodeagent/net-top/v1."""
        await self._refresh()
        return schema.encode(build_top(self._given()))

    async def show(self, pod: str) -> bytes:
        """Schema nodeagent/net-show/v1. Raises BadRequest when no such pod is known."""
        await self._refresh()
        given = self._given()
        uid = find_pod(given, pod)
        if uid is None:
            raise BadRequest(f"no pod {pod} on this node; write it like namespace/name or by its uid "
                             "(nodeagent net top lists them)")
        return schema.encode(build_show(given, uid))

    async def diff(self) -> bytes:
        """Schema nodeagent/net-diff/v1."""
        await self._refresh()
        return schema.encode(build_diff(self._given(), self._network.options()))

    async def _refresh(self) -> None:
        """Return when a cycle has taken in links and marks that were read after now, or at the deadline."""
        if not self._network.enabled:
            return
        asked_seconds = self._monotonic_seconds()
        end_seconds = time.monotonic() + FRESH_DEADLINE_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FRESH_DEADLINE_SECONDS):
                await self._network.refresh()
        while time.monotonic() < end_seconds and not self._is_fresh(asked_seconds):
            await asyncio.sleep(POLL_SECONDS)

    def _is_fresh(self, asked_seconds: float) -> bool:
        traffic = self._given().memory.traffic
        read = (traffic.marks_read_seconds, traffic.links_read_seconds)
        return all(seconds is not None and seconds >= asked_seconds for seconds in read)
