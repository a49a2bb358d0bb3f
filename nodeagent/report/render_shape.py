"""The shaper's columns and lines for a person at a terminal; absent where nothing is shaped."""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.report.net_schema import NetworkStatus, ShapeStatus
from nodeagent.report.text import counted

COLUMNS = ("LIMIT", "GUARANTEE", "SENT", "THROTTLED", "DROPS", "BACKLOG", "BORROWED")
UNKNOWN = "-"
_SOURCES = {
    "pod": "its own annotation", "namespace": "its namespace's", "node": "the node's default",
    "budget": "the budget",
}  # fmt: skip
Text = Callable[[float | None], str]
"""A number for people, `-` for None."""


def cells(shape: ShapeStatus | None, rate: Text, size: Text) -> tuple[str, ...]:
    """One row's cells; `rate` writes bits/s, `size` bytes."""
    if shape is None:
        return (UNKNOWN,) * len(COLUMNS)
    return (
        rate(shape.limit_bits_per_second), rate(shape.guarantee_bits_per_second or None),
        rate(shape.rate_bits_per_second), _number(shape.throttled_count), _number(shape.dropped_packets),
        size(shape.backlog_bytes), _share(shape.borrowed_ratio),
    )


def show_lines(shape: ShapeStatus | None, rate: Text, size: Text) -> list[str]:
    """The lines of `net show`: what the pod may send, and what it does."""
    if shape is None:
        return []
    limit, guarantee, sent, throttled, drops, backlog, borrowed = cells(shape, rate, size)
    guarantee = guarantee if shape.guarantee_bits_per_second else "none"
    source = _SOURCES.get(shape.limit_from, shape.limit_from)
    return [
        f"Limit     {limit} ({source}), guarantee {guarantee}",
        f"Shaper    {sent} now, {backlog} waiting, {throttled} throttled, {drops} dropped, "
        f"{borrowed} borrowed",
    ]


def budget_line(budget: ShapeStatus | None, unknown: ShapeStatus | None, rate: Text, size: Text) -> list[str]:
    """The line below the table: how much of the budget is used."""
    if budget is None:
        return []
    sent = rate(budget.rate_bits_per_second)
    line = f"budget {rate(budget.limit_bits_per_second)}: {sent} now"
    if unknown is not None and unknown.sent_bytes:
        line += f"; senders without an entry: {size(unknown.sent_bytes)} since boot"
    return [line]


def status_words(status: NetworkStatus, rate: Text) -> list[str]:
    """Parts of the network's line in `nodeagent status`."""
    if status.shaping in ("count-only", "waiting"):
        return [f"{status.shaping}, nothing shaped: {status.shaping_reason}"]
    if status.shaping != "shaping":
        return []
    known = status.budget_bits_per_second is not None
    words = [f"shaping to {rate(status.budget_bits_per_second)}" if known else "shaping"]
    if status.guarantees_ratio is not None and status.guarantees_ratio < 1:
        words.append(f"guarantees cut to {status.guarantees_ratio:.0%}")
    if status.bad_annotations:
        words.append(f"{counted(status.bad_annotations, 'annotation')} refused")
    if status.blocked_uplinks:
        words.append(f"not shaped: {', '.join(sorted(status.blocked_uplinks))}")
    return words


def _number(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _share(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio:.0%}"
