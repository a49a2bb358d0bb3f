"""Storms of events: what is folded, what is held back, and that every count is told."""

from typing import Any

from nodeagent.report.events import Priority
from nodeagent.report.fold import Fold


def _entry(message: str, priority: Priority = Priority.WARNING, **fields: Any) -> dict[str, Any]:
    return {"message": message, "priority": priority, **fields}


def _messages(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["message"] for entry in entries]


def test_repeat_within_the_window_is_folded() -> None:
    """The first line is written, an identical one is not."""
    fold = Fold(window_seconds=30)

    assert _messages(fold.admit(_entry("a"), 0.0)) == ["a"]
    assert fold.admit(_entry("a"), 1.0) == []


def test_another_cycle_number_is_still_a_repeat() -> None:
    """Fields that tick on by themselves do not make an event new."""
    fold = Fold()
    fold.admit(_entry("a", cycle=1), 0.0)

    assert fold.admit(_entry("a", cycle=2), 1.0) == []


def test_another_target_is_not_a_repeat() -> None:
    """Two GPUs with the same fault are two lines."""
    fold = Fold()
    fold.admit(_entry("a", target="gpu0"), 0.0)

    assert _messages(fold.admit(_entry("a", target="gpu1"), 1.0)) == ["a"]


def test_count_is_told_when_the_window_ends() -> None:
    """The folded repeats come back as one line with their number."""
    fold = Fold(window_seconds=30)
    for second in range(5):
        fold.admit(_entry("a"), float(second))

    told = fold.due(31.0)

    assert told == [{"message": "a (4 times more in 31 s)", "priority": Priority.WARNING, "repeats": 4}]


def test_lasting_storm_gives_one_line_a_window() -> None:
    """An event that repeats for 300 s is about one line per 30 s."""
    fold = Fold(window_seconds=30)
    written = [message for tenth in range(3000) for message in _messages(fold.admit(_entry("a"), tenth / 10))]

    assert len(written) == 10


def test_stop_tells_every_count() -> None:
    """Nothing folded is lost with the process."""
    fold = Fold()
    fold.admit(_entry("a"), 0.0)
    fold.admit(_entry("a"), 0.1)

    assert _messages(fold.due(0.2, everything=True)) == ["a (once more in 0 s)"]
    assert fold.due(0.2, everything=True) == []


def test_different_lines_have_a_ceiling_that_is_told() -> None:
    """10,000 different lines in one window leave 200, and one line that counts the rest."""
    fold = Fold(window_seconds=30, lines_per_window=200)
    written = [entry for number in range(10_000) for entry in fold.admit(_entry(f"m{number}"), 1.0)]

    assert len(written) == 200
    assert _messages(fold.due(31.0)) == ["9800 log lines were held back in 31 s, too many came at once."]


def test_critical_line_passes_a_storm_of_warnings() -> None:
    """The ceiling of the others does not hide a critical event."""
    fold = Fold(lines_per_window=5)
    for number in range(100):
        fold.admit(_entry(f"m{number}"), 1.0)

    assert _messages(fold.admit(_entry("dead", Priority.CRITICAL), 1.0)) == ["dead"]


def test_memory_is_bounded_and_evicted_counts_are_told() -> None:
    """The oldest event gives way with its count, so the table never outgrows its bound."""
    fold = Fold(maximum_keys=2)
    fold.admit(_entry("a"), 0.0)
    fold.admit(_entry("a"), 0.0)
    fold.admit(_entry("b"), 0.0)

    assert _messages(fold.admit(_entry("c"), 0.0)) == ["a (once more in 0 s)", "c"]
