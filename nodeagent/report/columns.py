"""Tables without borders for a terminal of any width: whole columns go before a number is cut in two.

A number that lost its end is a wrong number; a column that is missing is named instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Row = tuple[str, ...]
GAP = 2


def aligned(table: Sequence[Row], left: int) -> list[str]:
    """The first `left` columns to the left, numbers to the right."""
    widths = _widths(table)
    return [
        (" " * GAP).join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]


def fitted(table: Sequence[Row], width: int, first_to_go: Iterable[str]) -> tuple[list[Row], list[str]]:
    """The table in `width` characters, and the headings that went for it, in the order given."""
    kept, gone = list(table), []
    for heading in first_to_go:
        widths = _widths(kept)
        if sum(widths) + GAP * (len(widths) - 1) <= width:
            break
        if heading in kept[0]:
            at = kept[0].index(heading)
            kept = [row[:at] + row[at + 1 :] for row in kept]
            gone.append(heading)
    return kept, gone


def _widths(table: Sequence[Row]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]
