"""A row of the benchmarks: what is measured, how, and within which bound."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Budget(Struct, frozen=True, kw_only=True):
    """One row: what is measured, how, and what it may be at most, or must be at least."""

    name: str
    what: str
    bound: float
    unit: str
    measure: Callable[[], float]
    digits: int = 0
    is_least: bool = False
    """The bound is the least value that is good."""
    slow: bool = False
    """Measured only when asked for, and by `make soak`."""

    def is_named(self, words: list[str]) -> bool:
        """True when a word is this row's name, or the first part of it."""
        return any(self.name == word or self.name.startswith(f"{word}-") for word in words)


class Row(Struct, frozen=True, kw_only=True):
    """A budget and what was measured."""

    budget: Budget
    measured: float

    @property
    def over(self) -> bool:
        """True when the bound is broken."""
        budget = self.budget
        return self.measured < budget.bound if budget.is_least else self.measured > budget.bound

    def cells(self) -> tuple[str, str, str, str]:
        """What, measured, bound, ok or over."""
        budget = self.budget
        measured = f"{self.measured:.{budget.digits}f} {budget.unit}".rstrip()
        bound = f"{'>=' if budget.is_least else '<='} {budget.bound:g} {budget.unit}".rstrip()
        return budget.what, measured, bound, "over" if self.over else "ok"
