"""SIGTERM, SIGINT and SIGHUP as calls in the loop, however many come and whenever.

Not by the loop's own way: a storm fills its pipe, which loses signals and can lock CPython up.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

RELOAD_GAP_SECONDS = 0.1
"""SIGHUPs within this time are one reload."""


class Signals:
    """Hands signals over to the running loop."""

    def __init__(self, on_stop: Callable[[str], None], on_reload: Callable[[], None]) -> None:
        """`on_stop` gets the signal's name."""
        self._on_stop = on_stop
        self._on_reload = on_reload
        self._reload_asked = False

    def listen(self) -> None:
        """From now on, in the running loop; to be called in the main thread."""
        loop = asyncio.get_running_loop()
        at_terminal = os.isatty(0)  # a closed terminal must end what was started on it

        def hand_over(number: int, _frame: object) -> None:
            is_reload = number == signal.SIGHUP and not at_terminal
            if is_reload and self._reload_asked:
                return
            self._reload_asked |= is_reload
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._heard, number, is_reload)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, hand_over)

    def _heard(self, number: int, is_reload: bool) -> None:
        if is_reload:
            asyncio.get_running_loop().call_later(RELOAD_GAP_SECONDS, self._reload)
        else:
            self._on_stop(signal.Signals(number).name)

    def _reload(self) -> None:
        self._reload_asked = False
        self._on_reload()
