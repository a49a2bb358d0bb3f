"""Samples which pods run on this node, from the kubelet or from a file, or by a watch of the API server.

The last list that could be read stands, with its age, while the source does not answer: no answer is not
"no pods". It asks the kubelet seldom, since each question may cost the API server two.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from nodeagent.drivers.clock import Clock
from nodeagent.drivers.kubelet import KubeletPods
from nodeagent.drivers.podfile import FileWatch, PodFile
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.pace import woken
from nodeagent.settings import PodSettings
from nodeagent.signals import SignalKey, Unread
from nodeagent.traffic import PodList, PodSource

SIGNAL, SOURCE_SIGNAL = "pods", "pods.source"
IDLE_SECONDS = {"api": 600.0, "kubelet": 600.0, "file": 60.0, "none": 60.0}
"""Source -> seconds between two reads when nothing happens."""
KUBELET_PORT = 10250
FIRST_GAP_SECONDS, LAST_GAP_SECONDS = 0.5, 60.0
"""Seconds to the first read after devices changed, and at most between reads that find nothing new."""
FOLLOW_SECONDS = 20.0
"""How long a change of devices is followed: a pod's address shows in the kubelet's list after its device."""
FIRST_RETRY_SECONDS = 5.0
"""Seconds to the read after a failed one, doubled by each further failure."""
DENIED_SECONDS = 6 * 3600.0
"""How long `auto` leaves an API server alone that refused us for good."""
CALM_SECONDS = 120.0
"""After as long without a change of devices the next one is followed eagerly again."""


class Watched(Protocol):
    """Pods by a watch, see observe/cluster.py; nothing of it is loaded before it is wanted."""

    async def run(
        self, on_pods: Callable[[PodList], None], on_error: Callable[[DriverError], None]
    ) -> None:
        """Tell lists and errors until cancelled."""

    async def read_once(self) -> PodList:
        """The pods as they are now. Raises DriverError."""

    async def until_denied(self) -> None:
        """Return once the server has refused for good."""


class _Origin(NamedTuple):
    name: str
    place: str


class PodSampler:
    """One task. The source is chosen anew before each read, so a file or token that comes later counts."""

    def __init__(
        self, board: Board, inbox: Inbox, clock: Clock, *, node_name: str,
        settings: PodSettings | None = None, prefix: str = "nodeagent.io",
        on_change: Callable[[], None] = lambda: None, api: Callable[[], Awaitable[Watched]] | None = None,
        has_api: Callable[[], bool] = lambda: False,
    ) -> None:
        """`prefix`: domain of our own annotations; `on_change`: called after a list that differs; `api`:
        makes the source of the same name; `has_api`: whether `auto` may take that."""
        self._api = api
        self._has_api = has_api
        self._denied_until_seconds = float("-inf")
        self._board = board
        self._inbox = inbox
        self._clock = clock
        self._node_name = node_name
        self._settings = settings or PodSettings()
        self._prefix = prefix
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._pods: PodList | None = None
        self._urgent = False
        self._retry_seconds = 0.0
        self._follow = Follow(clock)
        self._watch: FileWatch | None = None
        self._watched = ""

    @property
    def effective(self) -> bool:
        """True when pods are to be known here."""
        return self._origin().name != "none"

    async def read_now(self) -> None:
        """Read once, here and now; for a look without `run`."""
        await self._read(self._origin())

    def request_now(self) -> None:
        """Read at once instead of when it is due."""
        self._urgent = True
        self._wake.set()

    def devices_changed(self) -> None:
        """A device came or went: a pod may have, too. Only the kubelet's list is asked for it."""
        if self._origin().name == "kubelet":
            if not self._follow.is_active:
                self._wake.set()
            self._follow.begin()

    def apply(self, settings: PodSettings) -> None:
        """Take reloaded settings."""
        if settings != self._settings:
            self._settings = settings
            self.request_now()

    async def run(self) -> None:
        """Sample for ever; cancel it to end."""
        try:
            while True:
                self._wake.clear()
                self._urgent = False
                self._watch_file()
                origin = self._origin()
                if origin.name == "api":
                    await self._follow_api(origin)
                else:
                    await self._read(origin)
                    await self._wait()
        finally:
            self._unwatch()

    # ------------------------------------------------------------------ source

    def _origin(self) -> _Origin:
        settings = self._settings
        name: str = settings.source
        if name == "auto":
            name = self._best()
        url = settings.kubelet_url or f"https://{self._node_name}:{KUBELET_PORT}"
        return _Origin(name, {"kubelet": url, "file": settings.file}.get(name, ""))

    def _best(self) -> str:
        """The API server unless it refused us for good and something else is there."""
        has_api = self._api is not None and self._has_api()
        if has_api and self._clock.monotonic_seconds() >= self._denied_until_seconds:
            return "api"
        places = {"kubelet": self._settings.kubelet_token_file, "file": self._settings.file}
        other = next((source for source, path in places.items() if Path(path).exists()), "none")
        return "api" if has_api and other == "none" else other

    def _watch_file(self) -> None:
        wanted = self._settings.file if self._settings.source in ("auto", "file") else ""
        if wanted == self._watched:
            return
        self._unwatch()
        if wanted:
            watch = FileWatch(wanted, self.request_now)
            # Without a watch the file is still read once a minute.
            with contextlib.suppress(DriverError):
                watch.start()
                self._watch = watch
        self._watched = wanted

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch, self._watched = None, ""

    # ------------------------------------------------------------------ reading

    async def _follow_api(self, origin: _Origin) -> None:
        """Take what the watch tells until the source is another one."""
        watched = await self._watched_api(origin)
        task = asyncio.create_task(
            watched.run(lambda pods: self._took(origin, pods), lambda error: self._failed(origin, error)))
        denied = asyncio.create_task(self._until_denied(watched))
        try:
            while self._origin() == origin and not task.done():
                self._wake.clear()
                waiting = asyncio.create_task(self._wake.wait())
                try:
                    await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
        finally:
            task.cancel()
            denied.cancel()
            ended, _ = await asyncio.gather(task, denied, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended

    async def _until_denied(self, watched: Watched) -> None:
        """Have another source chosen when the server refuses for good."""
        while True:
            await watched.until_denied()
            self._denied_until_seconds = self._clock.monotonic_seconds() + DENIED_SECONDS
            self._wake.set()

    async def _watched_api(self, origin: _Origin) -> Watched:
        if self._api is None:
            raise DriverError(ErrorKind.ABSENT, origin.name, "read pods", "there is no client for it here")
        return await self._api()

    async def _read(self, origin: _Origin) -> None:
        if origin.name == "none":
            self._pods, self._retry_seconds = None, 0.0
            self._board.drop(SIGNAL, NODE)
            self._tell(origin, None)
            return
        try:
            pods = await self._pods_of(origin)
        except DriverError as error:
            self._failed(origin, error)
        else:
            self._took(origin, pods)

    def _failed(self, origin: _Origin, error: DriverError) -> None:
        """What was known stands."""
        self._follow.read(changed=False)
        self._retry_seconds = 2 * self._retry_seconds or FIRST_RETRY_SECONDS
        self._tell(origin, error)
        if self._pods is None:
            self._board.put(SIGNAL, NODE, Unread(kind=error.kind, reason=str(error)))

    def _took(self, origin: _Origin, pods: PodList) -> None:
        self._retry_seconds = 0.0
        changed = self._pods is None or _without_order(pods) != _without_order(self._pods)
        self._pods = pods
        self._board.put(SIGNAL, NODE, pods)
        self._follow.read(changed=changed)
        self._tell(origin, None)
        if changed:
            self._inbox.wake()
            self._on_change()

    async def _pods_of(self, origin: _Origin) -> PodList:
        if origin.name == "api":
            return await (await self._watched_api(origin)).read_once()
        if origin.name == "file":
            return PodFile(origin.place, self._prefix).read()
        settings = self._settings
        kubelet = KubeletPods(
            origin.place, settings.kubelet_token_file, ca_file=settings.kubelet_ca_file,
            insecure=settings.kubelet_insecure, prefix=self._prefix,
        )
        return await kubelet.read()

    def _tell(self, origin: _Origin, error: DriverError | None) -> None:
        told = PodSource(
            source=origin.name, origin=origin.place,
            error_kind=error.kind if error else None, error=str(error) if error else "",
        )
        before = self._board.readings().get(SignalKey(SOURCE_SIGNAL, NODE))
        self._board.put(SOURCE_SIGNAL, NODE, told)
        if before is None or before.value != told:
            self._inbox.wake()

    async def _wait(self) -> None:
        """Return when the next read is due, or early after a wake-up."""
        if not self._follow.is_active:
            idle_seconds = IDLE_SECONDS[self._origin().name]
            await self._sleep(min(idle_seconds, self._retry_seconds) if self._retry_seconds else idle_seconds)
        if self._follow.is_active and not self._urgent:
            self._wake.clear()
            await self._sleep(self._follow.gap_seconds)

    async def _sleep(self, seconds: float) -> None:
        await woken(self._wake, seconds)


class Follow:
    """How eagerly the kubelet is asked after devices changed: gaps double while nothing new is found."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_seconds = float("-inf")
        """CLOCK_MONOTONIC of the newest change of devices."""
        self.gap_seconds = FIRST_GAP_SECONDS

    @property
    def is_active(self) -> bool:
        """True while a change of devices is followed."""
        return self._clock.monotonic_seconds() < self._last_seconds + FOLLOW_SECONDS

    def begin(self) -> None:
        """Devices changed now."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds - self._last_seconds > CALM_SECONDS:
            self.gap_seconds = FIRST_GAP_SECONDS
        self._last_seconds = now_seconds

    def read(self, *, changed: bool) -> None:
        """A read ended; `changed`: it brought something new."""
        self.gap_seconds = FIRST_GAP_SECONDS if changed else min(LAST_GAP_SECONDS, self.gap_seconds * 2)


def _without_order(pods: PodList) -> tuple[object, ...]:
    return (pods.source, sorted(pods.pods, key=lambda pod: pod.uid), pods.skipped, pods.skipped_reason)
