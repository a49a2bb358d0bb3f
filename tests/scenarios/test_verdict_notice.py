"""What the journal says when the node's word changes."""

from __future__ import annotations

import pytest

from tests.scenarios.world import GPU_A, World, disk


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda world: world.xid(79), f"xid 79 on {GPU_A}"),
        (lambda world: world.put({"disk.usage@/": disk(1.0)}), "disk.full"),
    ],
)  # fmt: skip
def test_the_reason_names_each_fault_once(break_it: object, reason: str) -> None:
    """A GPU's fault with its place, the node's own fault by its name alone."""
    world = World()
    world.run(60)
    break_it(world)  # type: ignore[operator]
    world.run(60)

    assert [fields["reason"] for fields in world.told("verdict_changed")] == [reason]
