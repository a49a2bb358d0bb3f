"""Words for numbers and lines for a terminal: the small parts that every rendering is made of.

Nothing that was written by the kernel, a driver or a user reaches a terminal unchecked: `clean`
takes out every character that could move the cursor, change colours or reverse the line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodeagent.model import State
from nodeagent.report.schema import CheckStatus

STATE_WORDS = {
    State.CRITICAL: "CRITICAL",
    State.WARNING: "WARNING",
    State.UNKNOWN: "UNKNOWN",
    State.PENDING: "pending",
    State.MUTED: "muted",
    State.OK: "ok",
    State.NOT_APPLICABLE: "n/a",
}
"""Capitals for what wants a person, so that no colour is needed to see it."""

_COLORS = {
    "CRITICAL": "1;31",
    "WARNING": "33",
    "UNKNOWN": "35",
    "STARTING": "35",
    "pending": "36",
    "OK": "32",
    "dim": "2",
}
ELLIPSIS = "..."


class Span(NamedTuple):
    """A piece of a line and the name of its colour, "" for none."""

    text: str
    color: str = ""


def clean(text: str) -> str:
    """`text` with every control, direction, surrogate and line-breaking character as "?"."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_harmless(character) for character in text)


def _harmless(character: str) -> str:
    if character in "\t\n\r":
        return " "
    bad = unicodedata.category(character)[0] == "C" or character in "\u2028\u2029"
    return "?" if bad else character


def paint(spans: Iterable[Span], color: bool) -> str:
    """One line without its end, cleaned, coloured when asked, no blanks at its end."""
    painted = [
        f"\x1b[{_COLORS[span.color]}m{clean(span.text)}\x1b[0m"
        if color and span.color in _COLORS
        else clean(span.text)
        for span in spans
    ]
    return "".join(painted).rstrip(" ")


def cut(text: str, width: int) -> str:
    """At most `width` characters, the lost rest marked by three dots; never less than one word's room."""
    width = max(width, len(ELLIPSIS) + 1)
    return text if len(text) <= width else text[: width - len(ELLIPSIS)].rstrip() + ELLIPSIS


def duration(seconds: float | None) -> str:
    """`42 s`, `4 min`, `3 h 05 min`, `6 d 02 h`; `-` when there is none."""
    if seconds is None:
        return "-"
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if hours < 1:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60:02d} min" if days < 1 else f"{days} d {hours % 24:02d} h"


def clock(rfc3339: str, age_seconds: float | None) -> str:
    """`03:12:40 UTC` within the last day, `2026-11-24 03:12 UTC` before."""
    day, _, time = rfc3339.removesuffix("Z").partition("T")
    recent = age_seconds is not None and age_seconds < 86400
    return f"{time} UTC" if recent else f"{day} {time[:5]} UTC"


def counted(number: int, noun: str) -> str:
    """`1 check`, `2 checks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def index_ranges(indexes: Iterable[int]) -> str:
    """`0-3,5,7` of whole numbers."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def short_label(label: str) -> str:
    """`GPU 3` of `GPU 3 0000:4e:00.0`; any other label as it is."""
    words = label.split()
    return " ".join(words[:2]) if words[:1] == ["GPU"] else label


def targets_label(rows: Sequence[CheckStatus]) -> str:
    """One label for the targets of equal rows: `GPU 0-7`, `/, /var`, `GPU 3 0000:4e:00.0` when alone."""
    if len(rows) == 1:
        return rows[0].target_label
    indexes = [row.gpu_index for row in rows if row.gpu_index is not None]
    labels = [f"GPU {index_ranges(indexes)}"] if indexes else []
    others = [row.target_label for row in rows if row.gpu_index is None]
    labels += others[:2] + ([f"{len(others) - 2} more"] if len(others) > 2 else [])
    return ", ".join(labels)


def padded(columns: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows of cells with every cell but the last of a row as wide as its column."""
    if not columns:
        return []
    widths = [max(len(row[i]) for row in columns) for i in range(len(columns[0]) - 1)]
    return [[cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)] for row in columns]
