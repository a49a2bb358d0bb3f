"""Kubernetes Quantities as rates in bits/s: one grammar for the configuration and for annotations.

Pure. It never guesses: what is no Quantity, or outside 1k to 1P, is refused in words that say what would
be right.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction

from nodeagent.shape import MAX_LIMIT_BITS_PER_SECOND, MIN_LIMIT_BITS_PER_SECOND

RIGHT = 'a Kubernetes Quantity in bits/s like "10G" or "500M", 1k to 1P'
"""What a rate looks like, in words."""
MAX_CHARACTERS = 32
_PATTERN = re.compile(
    r"\+?(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+)(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_HINTS = (
    (re.compile(r"[0-9.]+m", re.ASCII), "m means thousandths; M means millions"),
    (re.compile(r"[0-9.]+K", re.ASCII), "thousand is a small k"),
    (re.compile(r"[0-9.]+ *[kmg](bit|bps|b)?(/?s|ps)?", re.ASCII | re.IGNORECASE), "no unit after k, M or G"),
)
"""Frequent mistakes, and what to say of them."""


class BadRate(ValueError):
    """Text that is no rate; it says why and what would be right."""


@functools.lru_cache(maxsize=1024)
def bits_per_second(text: str) -> int:
    """The rate that `text` names in bits/s, fractions rounded up; raises BadRate."""
    match = _PATTERN.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise BadRate(f"it must be {RIGHT}{_hint(text)}")
    bits = Fraction(match["number"].rstrip(".")) * _factor(match["suffix"] or "")
    if bits < MIN_LIMIT_BITS_PER_SECOND:
        raise BadRate(f"it is less than 1k (1000 bits/s); it must be {RIGHT}{_hint(text)}")
    if bits > MAX_LIMIT_BITS_PER_SECOND:
        raise BadRate(f"it is more than 1P; it must be {RIGHT}")
    return -(-bits.numerator // bits.denominator)


def is_rate(text: str) -> bool:
    """True when `text` names a rate from 1k to 1P."""
    try:
        bits_per_second(text)
    except BadRate:
        return False
    return True


def shown_rate(bits: int) -> str:
    """A rate for people: "40 Mbit/s", "1.5 Gbit/s"."""
    for unit, factor in (("Tbit/s", 10**12), ("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3)):
        if bits >= factor:
            return f"{bits / factor:.4g} {unit}"
    return f"{bits} bit/s"


def _factor(suffix: str) -> Fraction:
    if suffix in _BINARY:
        return Fraction(2 ** _BINARY[suffix])
    power = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return Fraction(10) ** power


def _hint(text: str) -> str:
    hints = (hint for pattern, hint in _HINTS if pattern.fullmatch(text))
    found = next(hints, "")
    return f" ({found})" if found else ""
