"""A world for each test that asks for one; skipped where none can be made, with the command that helps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.netns.world import World, missing

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world() -> Iterator[MakeWorld]:
    """A factory of worlds (arguments of World); all are closed at the end."""
    if reason := missing():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(World(**options))


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A plain world, nothing on the node yet."""
    return make_world()


def pytest_make_parametrize_id(val: Any) -> str | None:
    """Families are named as people do."""
    return {4: "ipv4", 6: "ipv6"}.get(val) if isinstance(val, int) else None
