"""Keeps a storm of events from flooding the journal: repeats become counts, and lines have a ceiling.

Pure bookkeeping over a clock that the caller brings. It must never hold more than its bounds, and
never lose a count silently: what was folded or held back is told when its window ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nodeagent.report.events import Priority

Entry = dict[str, Any]
"""One event on its way out: message, priority, event, and the event's own fields."""

WINDOW_SECONDS = 30.0
"""A repeat within this long after the first line is folded."""
MAXIMUM_KEYS = 256
"""Different events remembered at once; the oldest gives way."""
LINES_PER_WINDOW = 200
"""Lines written in one window; critical ones have as many of their own."""

_PASSING = ("cycle", "count", "duration_seconds", "at_seconds")
"""Fields that differ between two events which say the same."""


@dataclass(slots=True)
class _Seen:
    first_at_seconds: float
    entry: Entry
    repeats: int = 0


class Fold:
    """Decides which entries are written, and when the counts of the others are."""

    def __init__(
        self,
        window_seconds: float = WINDOW_SECONDS,
        maximum_keys: int = MAXIMUM_KEYS,
        lines_per_window: int = LINES_PER_WINDOW,
    ) -> None:
        self._window_seconds = window_seconds
        self._maximum_keys = maximum_keys
        self._lines_per_window = lines_per_window
        self._seen: dict[int, _Seen] = {}
        self._window_began_seconds = 0.0
        self._lines = {True: 0, False: 0}
        self._held_back = 0

    def admit(self, entry: Entry, now_seconds: float) -> list[Entry]:
        """Return what to write now that `entry` came: due counts, then the entry unless it is folded."""
        out = self.due(now_seconds)
        key = _key(entry)
        seen = self._seen.get(key)
        if seen is not None:
            seen.repeats += 1
            seen.entry = entry
            return out
        urgent = entry["priority"] <= Priority.CRITICAL
        if self._lines[urgent] >= self._lines_per_window:
            self._held_back += 1
            return out
        self._lines[urgent] += 1
        if len(self._seen) >= self._maximum_keys:
            out += self._counted(self._seen.pop(next(iter(self._seen))), now_seconds)
        self._seen[key] = _Seen(now_seconds, entry)
        return [*out, entry]

    def due(self, now_seconds: float, everything: bool = False) -> list[Entry]:
        """Return the counts whose window has ended; with `everything` all of them."""
        out: list[Entry] = []
        for key, seen in list(self._seen.items()):
            if not everything and now_seconds - seen.first_at_seconds < self._window_seconds:
                continue
            del self._seen[key]
            out += self._counted(seen, now_seconds)
            if seen.repeats and not everything:
                self._seen[key] = _Seen(now_seconds, seen.entry)
        if everything or now_seconds - self._window_began_seconds >= self._window_seconds:
            out += self._next_window(now_seconds)
        return out

    def _next_window(self, now_seconds: float) -> list[Entry]:
        held_back, elapsed_seconds = self._held_back, now_seconds - self._window_began_seconds
        self._window_began_seconds = now_seconds
        self._lines = {True: 0, False: 0}
        self._held_back = 0
        if not held_back:
            return []
        message = f"{held_back} log lines were held back in {elapsed_seconds:.0f} s, too many came at once."
        return [{"message": message, "priority": Priority.WARNING, "held_back": held_back}]

    @staticmethod
    def _counted(seen: _Seen, now_seconds: float) -> list[Entry]:
        if not seen.repeats:
            return []
        elapsed_seconds = now_seconds - seen.first_at_seconds
        times = "once more" if seen.repeats == 1 else f"{seen.repeats} times more"
        message = f"{seen.entry['message']} ({times} in {elapsed_seconds:.0f} s)"
        return [{**seen.entry, "message": message, "repeats": seen.repeats}]


def _key(entry: Entry) -> int:
    return hash(tuple(sorted((name, str(value)) for name, value in entry.items() if name not in _PASSING)))
