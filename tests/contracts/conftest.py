"""Nodes with neighbours for the contracts of what writes to the kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contracts.iptables_rig import Node
from tests.netns.world import BACKENDS, World, missing


@pytest.fixture
def world() -> Iterator[World]:
    """A private node; skipped where none can be made, with the command that helps."""
    if reason := missing():
        pytest.skip(reason)
    with World() as world:
        yield world


@pytest.fixture(params=BACKENDS)
def node(world: World, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node on each backend; at the end it must be as the neighbours left it."""
    node = Node(world, request.param)
    yield node
    node.expect_as_before()


@pytest.fixture(params=[4, 6], ids=["ipv4", "ipv6"])
def family(request: pytest.FixtureRequest) -> int:
    """Each family."""
    return int(request.param)
