"""Keeps one watch of the API server open for ever, and never asks faster than a server can bear.

Due times have full jitter, so that thousands of agents that lost the same server do not come back together;
what a server asks for (Retry-After) is a floor under them. Every way in which a watch can end is the same
here: wait, then from the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol

from nodeagent.drivers.kube import ApiRefusal, KubeClient, WatchEnded, WatchEvent, watch
from nodeagent.drivers.kube.watch import NO_BOOKMARKS
from nodeagent.errors import DriverError, ErrorKind

FIRST_CAP_SECONDS, LAST_CAP_SECONDS = 5.0, 300.0
"""Longest wait after the first failed attempt, and after many; doubled between."""
BROKEN_CAP_SECONDS = 60.0
"""The same after the loss of a watch that stood: then all agents of the server have lost theirs."""
STOOD_SECONDS = 30.0
"""A watch that lasted as long has stood; one that ends sooner is a failed attempt, whatever it said."""
RENEW_SECONDS = 1.0
"""Longest wait after a watch that ended as asked for."""
LIFE_SECONDS = (2700.0, 3600.0)
"""How long a watch is asked to last, drawn anew each time."""
PLAIN_LIFE_SECONDS = (600.0, 900.0)
"""The same without bookmarks, where silence tells nothing."""
SETTLE_SECONDS = 2.0
"""Without bookmarks: silence after which the first objects count as complete."""
DENIALS = 3
"""Refusals in a row of both identities until they are believed: a server that just started refuses, too."""


class Sink(Protocol):
    """Who takes what a watch brings."""

    def begin(self) -> None:
        """A watch starts: what follows are all objects as they are now."""

    def take(self, event: WatchEvent) -> None:
        """An object was added, changed or deleted."""

    def current(self) -> None:
        """All first objects have come, or the server confirmed that nothing else changed."""

    def failed(self, error: DriverError) -> None:
        """The watch is not to be had just now; what was known stands and ages."""


class Backoff:
    """Full jitter below a cap that doubles."""

    def __init__(self, entropy: Callable[[], float]) -> None:
        self._entropy = entropy
        self._cap_seconds = FIRST_CAP_SECONDS

    def after(self, error: DriverError, lasted_seconds: float) -> float:
        """Seconds to wait after a watch that ended with `error`."""
        stood = lasted_seconds >= STOOD_SECONDS
        if isinstance(error, WatchEnded) and not error.early and stood:
            self._cap_seconds = FIRST_CAP_SECONDS
            return self._entropy() * RENEW_SECONDS
        if stood:
            self._cap_seconds = BROKEN_CAP_SECONDS
        wait_seconds = self._entropy() * self._cap_seconds
        self._cap_seconds = min(LAST_CAP_SECONDS, 2 * self._cap_seconds)
        return wait_seconds + (error.retry_after_seconds if isinstance(error, ApiRefusal) else 0.0)


class ApiWatch:
    """One path and one selector, as the node itself where the server allows that, else as the account."""

    def __init__(
        self, client: KubeClient, sink: Sink, path: str, field_selector: str, *, node_name: str,
        start_seconds: float = 0.0, entropy: Callable[[], float] = random.random,
        on_denied: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`start_seconds`: the first attempt is spread over it; `on_denied`: awaited once both identities
        were refused `DENIALS` times in a row; then it begins anew."""
        self._client = client
        self._sink = sink
        self._path = path
        self._field_selector = field_selector
        self._node_user = f"system:node:{node_name}"
        self._start_seconds = start_seconds
        self._entropy = entropy
        self._on_denied = on_denied
        self._backoff = Backoff(entropy)
        self._bookmarks = True
        self._began_seconds = 0.0
        self.as_node: bool | None = None
        """Whether the identity that worked last is the node's; None before one did."""

    async def run(self) -> None:
        """Watch for ever; cancel it to end."""
        await asyncio.sleep(self._entropy() * self._start_seconds)
        denials = 0
        while True:
            error, lasted_seconds = await self._attempts()
            denials = denials + 1 if error.kind is ErrorKind.DENIED else 0
            self._sink.failed(error)
            await asyncio.sleep(self._backoff.after(error, lasted_seconds))
            if denials >= DENIALS and self._on_denied is not None:
                await self._on_denied()
                denials = 0

    async def read_once(self) -> None:
        """The first objects only. Raises DriverError when they do not come."""
        for as_node in (True, False):
            try:
                async with contextlib.aclosing(self._events(as_node)) as events:
                    self._sink.begin()
                    async for event in events:
                        if event.kind != "BOOKMARK":
                            self._sink.take(event)
                        elif event.completes:
                            self._sink.current()
                            return
            except DriverError as error:
                if error.kind is not ErrorKind.DENIED or not as_node:
                    raise

    async def _attempts(self) -> tuple[DriverError, float]:
        """One watch, by the other identity when the first is refused: how it ended, how long it lasted."""
        order = (True, False) if self.as_node in (None, True) else (False, True)
        for as_node in order:
            error = await self._watch(as_node)
            lasted_seconds = self._now_seconds() - self._began_seconds
            if error.kind is not ErrorKind.DENIED:
                break
        else:
            self.as_node = None
        if NO_BOOKMARKS in str(error):
            self._bookmarks = False
        return error, lasted_seconds

    async def _watch(self, as_node: bool) -> DriverError:
        """One watch from start to end; returns how it ended."""
        self._began_seconds = self._now_seconds()
        settled = _Settled(self._sink.current)
        self._sink.begin()
        try:
            async with contextlib.aclosing(self._events(as_node)) as events:
                if not self._bookmarks:
                    settled.later()
                async for event in events:
                    self.as_node = as_node
                    if event.kind != "BOOKMARK":
                        self._sink.take(event)
                        if not self._bookmarks:
                            settled.later()
                    elif event.completes or settled.is_complete:
                        settled.now()
        except DriverError as error:
            return error
        finally:
            settled.cancel()
        return DriverError(ErrorKind.LOST, self._path, "watch", "it ended")

    def _events(self, as_node: bool) -> AsyncGenerator[WatchEvent, None]:
        shortest, longest = LIFE_SECONDS if self._bookmarks else PLAIN_LIFE_SECONDS
        return watch(
            self._client, self._path, self._field_selector, bookmarks=self._bookmarks,
            life_seconds=shortest + self._entropy() * (longest - shortest),
            as_user=self._node_user if as_node else "",
        )

    def _now_seconds(self) -> float:
        return asyncio.get_running_loop().time()


class _Settled:
    """When the first objects are complete: at a bookmark, or after a silence where there are none."""

    def __init__(self, on_complete: Callable[[], None]) -> None:
        self._on_complete = on_complete
        self._timer: asyncio.TimerHandle | None = None
        self.is_complete = False

    def now(self) -> None:
        self.is_complete = True
        self._on_complete()

    def later(self) -> None:
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self.now)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
