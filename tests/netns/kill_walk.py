"""A death at every op, its numbers shared among worlds side by side: one waits while another works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

LANES = 3


def deaths(lanes: Sequence[Callable[[int], bool]]) -> int:
    """How many ops there were to die before.

    Each lane walks once for every number of its share, 0 onwards, and says whether the daemon died; a number
    behind the last op kills nobody and ends that lane.
    """
    def share(first: int) -> int:
        number = first
        while lanes[first](number):
            number += len(lanes)
        return (number - first) // len(lanes)

    with ThreadPoolExecutor(len(lanes)) as pool:
        return sum(pool.map(share, range(len(lanes))))
