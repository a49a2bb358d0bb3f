"""What a set and an entry of ours are."""

from __future__ import annotations

from msgspec import Struct

from nodeagent.traffic import Counter

NAME_BYTES = 31
COMMENT_BYTES = 255


class SetSpec(Struct, frozen=True, kw_only=True):
    """The header of a set."""

    name: str
    kind: str = "hash:ip"
    """hash:ip | hash:net"""
    family: int = 4
    counters: bool = False
    comment: bool = False
    skbinfo: bool = False
    """Entries carry a mark and a priority."""
    max_elements: int = 65536


class SetEntry(Struct, frozen=True, kw_only=True):
    """One entry, whole."""

    value: str
    """Address, or prefix `address/length`, in canonical text form."""
    priority: int = 0
    """skb->priority: class major in the upper 16 bits, minor in the lower."""
    mark: int = 0
    mark_mask: int = 0
    """Bits of the packet mark that `mark` replaces; 0: none."""
    comment: str = ""
    counter: Counter = Counter()
    """As read; never written."""


class SetReading(Struct, frozen=True, kw_only=True):
    """One set as the kernel holds it."""

    spec: SetSpec
    entries: tuple[SetEntry, ...] = ()
    """By address, numerically."""
    references: int = 0
    """Rules that name it; such a set cannot be destroyed."""
