"""The name that a namespace is counted under: sums outlive pods, and must not become more for ever."""

from __future__ import annotations

from collections.abc import Mapping

MAX_NAMESPACES = 1000
OTHER_NAMESPACES = "(other)"
"""No namespace can have this name."""


def counted_as(name: str, sums: Mapping[str, object]) -> str:
    """The namespace itself, or the common name of all that come when there are too many."""
    return name if name in sums or len(sums) < MAX_NAMESPACES else OTHER_NAMESPACES
