"""Silences for a person: lines of the status screen, and the table of `nodeagent silence --list`."""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.report.silence_schema import HeldTaintRow, SilencesReport, SilenceStatus
from nodeagent.report.text import clean, clock, cut, duration, index_ranges, padded, short_label

SHOWN_LINES = 3


def silence_lines(silences: Sequence[SilenceStatus], *, verbose: bool) -> list[str]:
    """One line for what one person silenced on one target at once: numbers, what, who, until when, why."""
    groups: dict[tuple[object, ...], list[SilenceStatus]] = {}
    for silence in silences:
        key = (silence.target, silence.owner, silence.reason, round(silence.left_seconds))
        groups.setdefault(key, []).append(silence)
    lines = [_line(group) for group in groups.values()]
    if verbose or len(lines) <= SHOWN_LINES:
        return lines
    hidden = len(lines) - SHOWN_LINES + 1
    return [*lines[: SHOWN_LINES - 1], f"and {hidden} more: nodeagent silence --list"]


def _line(group: list[SilenceStatus]) -> str:
    first = group[0]
    numbers = index_ranges(silence.number for silence in group)
    names = ", ".join(silence.check for silence in group)
    where = f" on {short_label(first.target_label)}" if first.target else ""
    left = duration(first.left_seconds)
    return f"{numbers}: {names}{where}, {left} left, by {first.owner}: {first.reason}"


def held_line(held: HeldTaintRow) -> str:
    """A taint that would be wanted, and what holds it."""
    plural = "s hold" if len(held.silences) > 1 else " holds"
    numbers = index_ranges(held.silences)
    return f"silence{plural} back {held.key}={held.value}:{held.effect} ({numbers})"


def render_silences(report: SilencesReport, *, width: int = 100) -> str:
    """Text of `nodeagent silence --list`: one silence a line, oldest first; reasons are cut to `width`."""
    if not report.silences:
        return f"{clean(report.node)}: nothing is silenced\n"
    head = ["ID", "CHECK", "TARGET", "LEFT", "UNTIL (UTC)", "FAULTS", "BY", "REASON"]
    table = padded([head, *(_cells(silence) for silence in report.silences)])
    lines = []
    for *facts, reason in table:
        before = "  ".join(facts) + "  "
        lines.append(clean(before + cut(reason, max(20, width - len(before)))).rstrip())
    return "\n".join(lines) + "\n"


def _cells(silence: SilenceStatus) -> list[str]:
    return [
        str(silence.number), silence.check, short_label(silence.target_label),
        duration(silence.left_seconds), clock(silence.until, 86400.0).removesuffix(" UTC"),
        str(silence.faults), silence.owner, silence.reason,
    ]
