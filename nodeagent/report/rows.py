"""Check rows as lines of text: sorted, folded, aligned, and cut to the terminal's width.

State, check and target are never cut, only the sentence is. Rows that say the same of several
GPUs become one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from nodeagent.model import State
from nodeagent.report.schema import RAISED, CheckStatus, UnreadValue, in_force
from nodeagent.report.text import STATE_WORDS, Span, clock, cut, duration, padded, short_label, targets_label

TROUBLE = (*RAISED, State.UNKNOWN, State.PENDING)
SHORTEST_SENTENCE = 16
UNCUT = 10_000
"""Columns of a line that is not cut."""
_STANDING = {
    State.UNKNOWN: "stands, but can no longer be read: ",
    State.MUTED: "stands, not judged now: ",
    State.NOT_APPLICABLE: "stands, not read now: ",
}

Group = list[CheckStatus]


def trouble_lines(rows: Sequence[CheckStatus], *, width: int, room: int, verbose: bool) -> list[list[Span]]:
    """At most `room` lines for the rows that want attention; all rows, uncut, when `verbose`."""
    if verbose:
        return _all_lines(rows)
    groups = _folded([row for row in rows if in_force(row) in TROUBLE], room)
    hidden = 0
    if len(groups) > room:
        hidden = sum(len(group) for group in groups[room - 1 :])
        groups = groups[: room - 1]
    cells = padded([_cells(group) for group in groups])
    ages = [_age(group) for group in groups]
    age_width = max(map(len, ages), default=0)
    lines = [_trouble_line(line, age.rjust(age_width), width) for line, age in zip(cells, ages, strict=True)]
    return lines + [[Span(f"  and {hidden} more: nodeagent status -v")]] * bool(hidden)


def _all_lines(rows: Sequence[CheckStatus]) -> list[list[Span]]:
    """Every row uncut; those in trouble with all that is known of them on a second line."""
    groups = _group(rows, _looks)
    lines: list[list[Span]] = []
    for group, (state, *middle) in zip(groups, padded([_cells(group) for group in groups]), strict=True):
        before, sentence = "  ".join(middle[:-1]), middle[-1]
        wanted = in_force(group[0]) in TROUBLE
        age = _age(group) if wanted else _read(group[0])
        told = f"{sentence}  {age}" if sentence else age
        lines.append([Span("  "), Span(state, state.strip()), Span(f"  {before}  {told}")])
        if wanted:
            lines.append([Span(_more(group[0]), "dim")])
    return lines


def check_table(rows: Sequence[CheckStatus], *, width: int, verbose: bool) -> list[list[Span]]:
    """The table of `nodeagent check`: equal rows folded unless `verbose`, a sentence under what is wrong."""
    groups = [[row] for row in rows] if verbose else _group(rows, _looks)
    head = ["CHECK", "TARGET", "STATE", "VALUE", "LIMIT", "HELD", "READ", *(["SOURCE"] if verbose else [])]
    table = padded([head, *(_table_cells(group, verbose) for group in groups)])
    lines = [_table_line(table[0], "", width)]
    columns = UNCUT if verbose else width
    for group, cells in zip(groups, table[1:], strict=True):
        shown = [*cells[:3], group[0].sentence] if _is_unjudged(group[0]) else cells
        lines.append(_table_line(shown, cells[2].strip(), columns))
        told = _sentence(group)
        if in_force(group[0]) in TROUBLE and told:
            lines.append([Span(f"    {cut(told, columns - 4)}")])
    return lines


def _is_unjudged(row: CheckStatus) -> bool:
    """Not applicable or muted, and no fault stands: the reason is all there is to say."""
    return in_force(row) in (State.MUTED, State.NOT_APPLICABLE) and bool(row.sentence)


def _table_line(cells: Sequence[str], color: str, width: int) -> list[Span]:
    before = "  ".join(cells[:2]) + "  "
    after = "".join(f"  {cell}" for cell in cells[3:-1]) + "  "
    room = max(SHORTEST_SENTENCE, width - len(before) - len(cells[2]) - len(after))
    return [Span(before), Span(cells[2], color), Span(after), Span(cut(cells[-1], room))]


# --------------------------------------------------------------------------- folding


def _folded(rows: Sequence[CheckStatus], room: int) -> list[Group]:
    """Equal rows together; where that is too long for the screen, all rows of a check and state."""
    groups = _group(rows, lambda row: (*_identity(row), _value(row), row.limit, row.sentence))
    return groups if len(groups) <= room else _group(rows, _identity)


def _identity(row: CheckStatus) -> tuple[Hashable, ...]:
    return (in_force(row), row.state, row.id, row.silence)


def _looks(row: CheckStatus) -> tuple[Hashable, ...]:
    return (*_identity(row), _value(row), row.limit, row.held, row.sentence, row.source)


def _group(rows: Sequence[CheckStatus], key: Callable[[CheckStatus], Hashable]) -> list[Group]:
    groups: dict[Hashable, Group] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


# --------------------------------------------------------------------------- cells


def _value(row: CheckStatus) -> str:
    return "-" if row.value is None or isinstance(row.value, UnreadValue) else row.value


def _cells(group: Group) -> list[str]:
    first = group[0]
    return [STATE_WORDS[in_force(first)], first.id, targets_label(group), _sentence(group)]


def _sentence(group: Group) -> str:
    row = group[0]
    said = row.sentence
    if not said and not isinstance(row.value, UnreadValue) and row.value is not None:
        said = f"{row.value}, limit {row.limit}" if row.limit else row.value
    if in_force(row) is not row.state:
        said = _STANDING[row.state] + said.removeprefix("not read: ")
    if row.silence is not None:
        said = f"silence {row.silence}: {said}"
    return said if all(other.sentence == row.sentence for other in group) else f"e.g. {said}"


def _age(group: Group) -> str:
    held = group[0].held
    if in_force(group[0]) is State.PENDING and "/" in held:
        return f"{held} polls"
    ages = [row.age_seconds for row in group if row.age_seconds is not None]
    return duration(max(ages, default=None))


def _trouble_line(cells: list[str], age: str, width: int) -> list[Span]:
    state, check, target, sentence = cells
    before = f"  {check}  {target}  "
    room = max(SHORTEST_SENTENCE, width - 2 - len(state) - len(before) - 2 - len(age))
    shown = cut(sentence, room)
    return [Span("  "), Span(state, state.strip()), Span(before), Span(f"{shown.ljust(room)}  {age}")]


def _more(row: CheckStatus) -> str:
    since = "" if row.since is None else f"since {clock(row.since, row.age_seconds)}, "
    held = f", held {row.held}" if row.held else ""
    return f"            {since}{_read(row)}, class {row.node_class.value}{held}, {row.source}"


def _read(row: CheckStatus) -> str:
    return "never read" if row.read_age_seconds is None else f"read {duration(row.read_age_seconds)} ago"


def _table_cells(group: Group, verbose: bool) -> list[str]:
    first = group[0]
    ages = [row.read_age_seconds for row in group if row.read_age_seconds is not None]
    label = targets_label(group)
    unjudged = _is_unjudged(first)
    return [
        first.id,
        label if verbose else short_label(label),
        STATE_WORDS[in_force(first)],
        _value(first),
        "-" if unjudged else first.limit or "-",
        first.held or "-",
        duration(max(ages, default=None)),
        *([first.source] if verbose else []),
    ]
