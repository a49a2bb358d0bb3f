"""Memory over thousands of cycles: what grows by a few bytes each time shows here."""

from __future__ import annotations

import pytest

from tests.bench.measures import slope_mib


@pytest.mark.slow
def test_memory_does_not_grow_with_cycles() -> None:
    """Over 5,000 cycles after the first 1,000 the regression line rises by less than 1 MiB per 1,000."""
    assert slope_mib() < 1.0
