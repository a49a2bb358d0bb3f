"""Rates as Kubernetes Quantities: every spelling that counts, every mistake that must not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.quantity import BadRate, bits_per_second, is_rate, shown_rate

GOOD = {
    "1k": 1_000, "1000": 1_000, "10M": 10_000_000, "+10M": 10_000_000, "1.5G": 1_500_000_000,
    "1P": 10**15, "1e6": 1_000_000, "2E3": 2_000, "1e+6": 1_000_000, "1Ki": 1_024, "1Mi": 1_048_576,
    "0.5M": 500_000, ".5M": 500_000, "5.M": 5_000_000, "1000000m": 1_000, "1000.5": 1_001, "1e15": 10**15,
    "1234567": 1_234_567, "0010M": 10_000_000,
}  # fmt: skip
BAD = {
    "": "a Kubernetes Quantity", " 10M": "a Kubernetes Quantity", "10M ": "a Kubernetes Quantity",
    "10 M": "a Kubernetes Quantity", "fast": "a Kubernetes Quantity", "10Mbit": "no unit after k, M or G",
    "10Mbps": "no unit", "10K": "thousand is a small k", "10m": "M means millions", "999": "less than 1k",
    "0": "less than 1k", "0M": "less than 1k", "-10M": "a Kubernetes Quantity", "1.1P": "more than 1P",
    "1E": "more than 1P", "1Pi": "more than 1P", "1e16": "more than 1P", "1e99": "more than 1P",
    "1e999": "a Kubernetes Quantity", "inf": "a Kubernetes Quantity", "nan": "a Kubernetes Quantity",
    "1_000k": "a Kubernetes Quantity", "0x10M": "a Kubernetes Quantity",
    "\u0661\u0660M": "a Kubernetes Quantity",
    "10M\n": "a Kubernetes Quantity", "1.2.3M": "a Kubernetes Quantity", "1" * 33: "a Kubernetes Quantity",
}  # fmt: skip


@pytest.mark.parametrize(("text", "bits"), GOOD.items())
def test_a_quantity_is_a_rate_in_bits(text: str, bits: int) -> None:
    """k, M, G are powers of 1000, Ki, Mi of 1024, fractions are rounded up."""
    assert bits_per_second(text) == bits
    assert is_rate(text)


@pytest.mark.parametrize(("text", "says"), BAD.items())
def test_what_is_no_rate_is_refused_with_a_remedy(text: str, says: str) -> None:
    """The refusal says what would be right, and for frequent mistakes which one it is."""
    with pytest.raises(BadRate) as error:
        bits_per_second(text)
    assert says in str(error.value)
    assert not is_rate(text)


@settings(deadline=None)
@given(
    st.one_of(st.text(max_size=40), st.from_regex(r"[0-9.]{1,8}[a-zA-Z+-]{0,4}[0-9]{0,3}", fullmatch=True))
)
def test_any_text_is_a_rate_in_range_or_refused(text: str) -> None:
    """Nothing else comes out, whatever a user types."""
    try:
        assert 1_000 <= bits_per_second(text) <= 10**15
    except BadRate as error:
        assert "1k to 1P" in str(error)


@pytest.mark.parametrize(
    ("bits", "shown"),
    [(999, "999 bit/s"), (10_000_000, "10 Mbit/s"), (1_500_000_000, "1.5 Gbit/s"), (10**15, "1000 Tbit/s")],
)
def test_a_rate_is_shown_with_its_unit(bits: int, shown: str) -> None:
    """People read Mbit/s, not digits."""
    assert shown_rate(bits) == shown
