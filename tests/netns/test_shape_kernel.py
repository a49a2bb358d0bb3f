"""Plans of tc carried out in a real kernel by the executor's ops: it ends as wanted, and empty again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from nodeagent.act.shaping import KernelShape
from nodeagent.decide import shape_plan
from nodeagent.drivers.tc import Shaper
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import Op
from nodeagent.shape import IFB_NAME, ShapeFilter, ShapeState
from nodeagent.traffic import DEFAULT_MINOR, FIRST_MINOR, LAST_MINOR
from tests.netns.shape_rig import Tc, add_neighbours, root_class, shape_class
from tests.netns.world import World

NAMESPACE_MINOR = LAST_MINOR
DRAINED = frozenset({shape_plan.THE_IFB, FIRST_MINOR, FIRST_MINOR + 1, NAMESPACE_MINOR})
EVERY_KIND = {"shape.ifb", "shape.htb", "class.put", "class.delete",
              "filter.put", "filter.delete", "ifb.delete"}  # fmt: skip
LONGEST_BFIFO_BYTES = (1 << 32) - 1


@pytest.fixture
def tc(world: World) -> Tc:
    """A node with neighbours in tc."""
    add_neighbours(world)
    return Tc(world)


def tree(tag: str, *pods: int) -> ShapeState:
    """Budget, namespace and these pods, on one uplink."""
    inner = shape_class(NAMESPACE_MINOR, quantum_bytes=0, leaf_limit_bytes=0)
    classes = [root_class(), shape_class(DEFAULT_MINOR), *(shape_class(pod, NAMESPACE_MINOR) for pod in pods)]
    return ShapeState(
        ifb=True, htb=True, classes=tuple(sorted([*classes, *([inner] if pods else [])])),
        filters=(ShapeFilter(device="eth0", tag=tag),),
    )  # fmt: skip


def ops_to(wanted: ShapeState, actual: ShapeState) -> tuple[Op, ...]:
    """The whole plan, everything drained."""
    halves = shape_plan.plan(wanted, actual, drained=DRAINED)
    return halves.before + halves.after


async def _perform(ops: Iterable[Op], times: int) -> list[str]:
    executor = KernelShape(Shaper())
    return [await executor.perform(op) for op in ops for _ in range(times)]


def reach(tc: Tc, wanted: ShapeState, times: int = 1) -> tuple[set[str], list[str]]:
    """Plan and perform until nothing is left to do: the kinds of the ops, what they said."""
    kinds: set[str] = set()
    said: list[str] = []
    for _ in range(3):
        ops = ops_to(wanted, tc.held().state)
        kinds |= {op.kind for op in ops}
        said += tc.world.inside("node", _perform, ops, times)
    assert ops_to(wanted, tc.held().state) == ()
    return kinds, said


def test_every_op_of_a_plan_is_carried_out_and_read_back_as_wanted(tc: Tc) -> None:
    """Made, changed, a pod gone, all gone: each plan of each kind of op ends in a kernel that needs none."""
    before = tc.world.dump()
    kinds: set[str] = set()
    for wanted in (tree(tc.tag, FIRST_MINOR, FIRST_MINOR + 1), tree(tc.tag, FIRST_MINOR), tree(tc.tag)):
        kinds |= reach(tc, wanted)[0]
        assert tc.held().state == wanted
    kinds |= reach(tc, ShapeState())[0]

    assert kinds == EVERY_KIND
    assert tc.world.dump() == before


def test_every_op_of_a_plan_twice_is_once(tc: Tc) -> None:
    """An op whose answer was lost is done again: the second time it was so."""
    for wanted in (tree(tc.tag, FIRST_MINOR), tree(tc.tag), ShapeState()):
        said = reach(tc, wanted, times=2)[1]
        assert said[0::2] == ["changed"] * (len(said) // 2)
        assert said[1::2] == ["was so"] * (len(said) // 2)


def test_a_class_that_must_move_is_made_anew(tc: Tc) -> None:
    """The kernel moves no class: one under the budget that belongs to a namespace goes and comes back."""
    tc.ready(shape_class(FIRST_MINOR))
    wanted = tree(tc.tag, FIRST_MINOR)
    kinds, _ = reach(tc, wanted)

    assert "class.delete" in kinds
    assert tc.held().state == wanted


BAD_OPS = [
    (Op(kind="class.melt", target="4e:10", deadline_seconds=5), "knows no such op"),
    (Op(kind="filter.put", target="eth0", deadline_seconds=5, arguments={"tag": "", "target": "foreign0"}),
     "leads to nodeagent0, not to 'foreign0'"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "words"), BAD_OPS)
def test_an_op_that_is_none_of_a_plan_is_refused(tc: Tc, op: Op, words: str) -> None:
    """An unknown kind and another target are invalid, and nothing is written."""
    before = tc.world.dump()
    with pytest.raises(DriverError, match=words) as refused:
        tc.world.inside("node", _perform, [op], 1)

    assert refused.value.kind is ErrorKind.INVALID
    assert tc.world.dump() == before


FOREIGN_REDIRECTS = {
    "ingress of clsact": ("eth0", "ingress"),
    "egress of clsact": ("eth0", "egress"),
    "an ingress qdisc": ("vetha", "ingress"),
}


@pytest.mark.parametrize("place", FOREIGN_REDIRECTS)
def test_the_ifb_stays_while_a_foreign_filter_leads_to_it(tc: Tc, place: str) -> None:
    """Whoever's filter it is and wherever it stands: without the ifb its packets would be lost."""
    tc.ready()
    device, side = FOREIGN_REDIRECTS[place]
    tc.run("qdisc", "add", "dev", "vetha", "ingress")
    put = ("dev", device, side, "pref", "77")
    tc.run("filter", "add", *put, "protocol", "ip", "u32", "match", "ip", "dst", "192.0.2.0/24",
           "action", "mirred", "egress", "redirect", "dev", IFB_NAME)  # fmt: skip
    before = tc.world.dump()
    with pytest.raises(DriverError, match=f"not ours leads to it from {device}") as refused:
        tc.delete_ifb()
    after = tc.world.dump()
    tc.run("filter", "del", *put)

    assert refused.value.kind is ErrorKind.BUSY
    assert after == before
    assert tc.delete_ifb()


def test_redirects_to_other_devices_keep_no_ifb(tc: Tc) -> None:
    """Another agent's redirect to its own ifb is none to ours."""
    tc.ready()
    tc.run("filter", "add", "dev", "eth0", "ingress", "pref", "77", "protocol", "ip", "u32", "match", "ip",
           "dst", "192.0.2.0/24", "action", "mirred", "egress", "redirect", "dev", "foreign0")  # fmt: skip

    assert tc.delete_ifb()


def test_a_queue_that_no_kernel_can_hold_is_said(tc: Tc) -> None:
    """The class stands with the longest queue there is, and the error names the number."""
    tc.ready()
    words = f"leaf_limit_bytes is {LONGEST_BFIFO_BYTES}, not {10**13}"
    with pytest.raises(DriverError, match=words) as refused:
        tc.put_class(shape_class(FIRST_MINOR, leaf_limit_bytes=10**13))

    assert refused.value.kind is ErrorKind.INVALID
    assert shape_class(FIRST_MINOR, leaf_limit_bytes=LONGEST_BFIFO_BYTES) in tc.held().state.classes


def test_a_number_that_fits_nowhere_is_an_error_of_the_driver(tc: Tc) -> None:
    """Nothing else may come out of an op: it would end the executor."""
    tc.ready()
    with pytest.raises(DriverError, match="a number is too large") as refused:
        tc.put_class(shape_class(FIRST_MINOR, rate_bytes_per_second=1 << 64, ceil_bytes_per_second=1 << 64))

    assert refused.value.kind is ErrorKind.INVALID
