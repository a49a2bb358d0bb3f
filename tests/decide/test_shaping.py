"""The wanted class tree: numbers, guarantees within the budget, minors that stay."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.decide import shaping
from nodeagent.shape import ROOT_MINOR, ShapeClass, ShapeState
from nodeagent.shape_memory import Shares
from nodeagent.traffic import DEFAULT_MINOR, FIRST_MINOR, LAST_MINOR, PodPhase
from tests.decide.mark_world import World, links, pod, pod_list, shaping_world
from tests.decide.shape_kernel import TrafficControl, as_held

LIMIT, GUARANTEE = "nodeagent.io/internet-egress-limit", "nodeagent.io/internet-egress-guarantee"
KIB, M = 1024, 10**6


def wanted(world: World) -> ShapeState:
    """What is wanted now; fails when nothing is known."""
    found = shaping.wish(world.memory.shape, world.memory.marks)
    assert found is not None
    return found


def class_of(world: World, number: int) -> ShapeClass:
    """The class of pod `number`, as the kernel holds it."""
    minors = {claim.uid: claim.minor for claim in world.memory.marks.claims.values()}
    assert world.tc is not None
    return world.tc.classes[minors[pod(number).uid]]


NUMBERS = (
    # limit, guarantee; rate and ceil in bytes/s, burst, cburst, quantum, queue
    ("1M", "", 1_000, 125_000, 64 * KIB, 64 * KIB, 1500, 16 * KIB),
    ("10M", "10M", 1_250_000, 1_250_000, 64 * KIB, 64 * KIB, 1500, 62_500),
    ("100M", "20M", 2_500_000, 12_500_000, 64 * KIB, 64 * KIB, 2_500, 625_000),
    ("1G", "200M", 25_000_000, 125_000_000, 125_000, 625_000, 25_000, 6_250_000),
    ("5G", "5G", 625_000_000, 625_000_000, 3_125_000, 3_125_000, 60_000, 31_250_000),
    ("50G", "", 1_000, 1_250_000_000, 64 * KIB, 6_250_000, 1500, 62_500_000),
    ("1k", "", 125, 125, 25_000, 25_000, 1500, 16 * KIB),
)


@pytest.mark.parametrize(
    ("limit", "guarantee", "rate", "ceil", "burst", "cburst", "quantum", "queue"), NUMBERS
)
def test_a_class_has_the_numbers_of_the_design(
    limit: str, guarantee: str, rate: int, ceil: int, burst: int, cburst: int, quantum: int, queue: int
) -> None:
    """Burst 5 ms, at least 64 KiB; quantum 1 ms, MTU to 60000; queue 50 ms of the limit; ceil in budget."""
    world = shaping_world(budget_bits_per_second=10**10)
    asked = {LIMIT: limit} | ({GUARANTEE: guarantee} if guarantee else {})
    world.pods = pod_list(pod(1, annotations=asked))
    world.settle()

    one = class_of(world, 1)
    assert (one.rate_bytes_per_second, one.ceil_bytes_per_second) == (rate, ceil)
    assert (one.burst_bytes, one.cburst_bytes, one.quantum_bytes) == (burst, cburst, quantum)
    assert one.leaf_limit_bytes == queue


def test_no_queue_is_longer_than_a_gibibyte() -> None:
    """Beyond some 172 Gbit/s 50 ms of the limit would be more memory than a queue may hold."""
    world = shaping_world(budget_bits_per_second=10**12)
    world.pods = pod_list(pod(1, annotations={LIMIT: "171G"}), pod(2, annotations={LIMIT: "400G"}))
    world.settle()

    assert [class_of(world, number).leaf_limit_bytes for number in (1, 2)] == [1_068_750_000, 1 << 30]


@pytest.mark.parametrize("bits", [1_000, 10**6, 10**7, 10**8, 10**9, 5 * 10**9, 10**11, 10**15])
def test_a_burst_is_small_and_fits_the_kernel(bits: int) -> None:
    """At most 64 KiB or 5 ms (elsewhere a 10M pod began at 2 Gbit/s), and never 2^32 ticks of 64 ns."""
    rate_bytes = bits // 8
    burst_bytes = shaping.burst_bytes(rate_bytes)

    assert burst_bytes <= max(64 * KIB, rate_bytes * 0.005)
    assert 0 < burst_bytes / rate_bytes * 1e9 / 64 < 2**32


@settings(deadline=None)
@given(st.integers(1, 10**15 // 8))
def test_any_burst_is_read_back_as_it_was_asked_for(rate_bytes: int) -> None:
    """The kernel keeps whole ticks of 64 ns in 32 bits; what differs after them would be written for ever."""
    asked = ShapeClass(
        minor=1,
        parent=0,
        rate_bytes_per_second=rate_bytes,
        ceil_bytes_per_second=rate_bytes,
        burst_bytes=shaping.burst_bytes(rate_bytes),
        cburst_bytes=shaping.burst_bytes(rate_bytes),
        quantum_bytes=0,
    )
    assert as_held(asked) == asked


def test_the_tree_is_budget_namespace_pod() -> None:
    """Root and default class, one class a namespace, one leaf a pod; unknown senders share the budget."""
    world = shaping_world()
    world.pods = pod_list(pod(1), pod(2), pod(4), pod(5, host_network=True), pod(6, phase=PodPhase.FAILED))
    world.settle()
    tree = {one.minor: one for one in wanted(world).classes}
    leaves = [class_of(world, number) for number in (1, 2, 4)]

    assert len(tree) == 2 + 2 + 3
    assert tree[ROOT_MINOR].parent == 0
    assert tree[DEFAULT_MINOR].parent == ROOT_MINOR
    assert tree[DEFAULT_MINOR].ceil_bytes_per_second == 125 * M
    assert leaves[0].parent == leaves[2].parent != leaves[1].parent
    assert {tree[leaf.parent].parent for leaf in leaves} == {ROOT_MINOR}
    assert all(leaf.leaf_limit_bytes for leaf in (*leaves, tree[DEFAULT_MINOR]))
    assert [one.device for one in wanted(world).filters] == ["eth0"]


def test_internet_alone_is_limited_and_only_leaving_it() -> None:
    """A class is set in one chain alone, for leaving traffic, behind the RETURN of the cluster's."""
    world = shaping_world()
    world.pods = pod_list(pod(1, annotations={LIMIT: "1M"}))
    world.settle()

    for number in (4, 6):
        chains = world.kernel.families[number].chains
        setting = {
            name: [r for r in rules if "--map-prio" in r or "CLASSIFY" in r] for name, rules in chains.items()
        }
        classed = {name for name, rules in setting.items() if rules}
        assert classed == {"NODEAGENT-EGRESS"}
        assert "-j RETURN" in chains["NODEAGENT-EGRESS"][0]


def test_guarantees_above_the_budget_are_cut_alike_and_said() -> None:
    """Three pods of 500M in 1G keep their proportion, and the ratio is remembered."""
    world = shaping_world()
    asked = [pod(n, annotations={GUARANTEE: text}) for n, text in ((1, "500M"), (2, "500M"), (3, "1G"))]
    world.pods = pod_list(*asked)
    world.settle()
    rates = [class_of(world, n).rate_bytes_per_second for n in (1, 2, 3)]

    assert sum(rates) <= 125 * M
    assert rates[0] == rates[1] == pytest.approx(rates[2] / 2, rel=0.01)
    assert world.memory.shape.scaled_ratio == pytest.approx(0.5, rel=0.01)
    world.pods = pod_list(asked[0])
    world.settle()
    assert world.memory.shape.scaled_ratio == 1.0
    assert class_of(world, 1).rate_bytes_per_second == 62_500_000


shares = st.builds(
    lambda limit, guarantee: Shares(
        limit_bits_per_second=limit, guarantee_bits_per_second=min(limit, guarantee)
    ),
    st.integers(1_000, 10**15),
    st.integers(0, 10**15),
)


@settings(deadline=None)
@given(
    pods=st.dictionaries(st.text("ab", max_size=6), shares, max_size=40), budget=st.integers(2_000, 10**14)
)
def test_rates_fit_any_budget(pods: dict[str, Shares], budget: int) -> None:
    """No rate is 0 or above the pod's limit, all of them and the default class fit the budget."""
    rates, ratio = shaping.rates_bytes(pods, budget)

    assert set(rates) == set(pods)
    assert 0 <= ratio <= 1
    for uid, rate in rates.items():
        assert 1 <= rate <= max(1, pods[uid].limit_bits_per_second // 8)
    assert sum(rates.values()) < budget
    if ratio == 1:
        for uid, rate in rates.items():
            assert rate >= min(budget, pods[uid].guarantee_bits_per_second // 8)


def test_minors_survive_a_loss_of_memory() -> None:
    """Pods' from the entries, namespaces' from the tree: a new agent plans nothing."""
    world = shaping_world()
    world.pods = pod_list(*(pod(n) for n in (3, 1, 2)))
    world.settle()
    world.pods = pod_list(*(pod(n) for n in (3, 2, 5)))
    world.settle()
    before = dict(world.memory.shape.namespace_minors)
    world.memory = type(world.memory)()

    assert world.cycle() == ()
    assert world.memory.shape.namespace_minors == before


def test_a_minor_rests_before_another_namespace_gets_it() -> None:
    """60 s, like a pod's."""
    world = shaping_world(step_seconds=5.0)
    world.pods = pod_list(pod(1))
    world.settle()
    first = world.memory.shape.namespace_minors["team-1"]
    world.pods = pod_list(pod(2))
    world.settle()
    assert world.memory.shape.namespace_minors["team-2"] not in (first, 0)
    world.seconds += 61.0
    world.pods = pod_list(pod(2), pod(3))
    world.settle()
    assert world.memory.shape.namespace_minors["team-0"] == first


def test_namespaces_and_pods_never_share_a_minor() -> None:
    """Both take from FIRST to LAST, each from its end."""
    world = shaping_world()
    world.pods = pod_list(*(pod(n) for n in range(1, 40)))
    world.settle()
    pods = {claim.minor for claim in world.memory.marks.claims.values()}
    spaces = set(world.memory.shape.namespace_minors.values())

    assert min(pods) == FIRST_MINOR
    assert max(spaces) == LAST_MINOR
    assert not pods & spaces


def test_a_host_network_pod_is_shaped_by_its_own_annotation_alone() -> None:
    """With it: a class, and its rule sets it; without: counted and nothing else."""
    world = shaping_world()
    paths = {pod(n).uid: f"kubepods/pod{n}" for n in (1, 2)}
    world.options = type(world.options)(shaping=world.options.shaping, host_pod_paths=paths)
    world.pods = pod_list(pod(1, host_network=True), pod(2, host_network=True, annotations={LIMIT: "9M"}))
    world.settle()
    rules = world.kernel.families[4].chains["NODEAGENT-HOST-PODS"]
    minor = world.memory.marks.host_pods[pod(2).uid].minor

    assert minor >= FIRST_MINOR
    assert [rule.endswith(f" -j CLASSIFY --set-class 4e:{minor:x}") for rule in rules] == [False, True]
    assert world.tc is not None
    assert world.tc.classes[minor].ceil_bytes_per_second == 1_125_000
    world.memory = type(world.memory)()
    assert world.cycle() == ()
    world.pods = pod_list(pod(1, host_network=True), pod(2, host_network=True))
    world.settle()
    assert minor not in world.tc.classes
    assert not any("CLASSIFY" in rule for rule in world.kernel.families[4].chains["NODEAGENT-HOST-PODS"])


def test_without_a_budget_nothing_is_shaped_and_what_was_goes() -> None:
    """No ifb, no filter, no class; entries and counts go on."""
    world = World()
    world.tc = TrafficControl()
    world.pods = pod_list(pod(1))
    world.settle()
    assert world.tc.ops == []
    shaped = shaping_world()
    shaped.pods = pod_list(pod(1))
    shaped.settle()
    shaped.options = world.options
    shaped.settle()

    assert shaped.tc is not None
    assert shaped.tc.read().state == ShapeState()
    assert shaped.memory.shape.namespace_minors == {}
    assert shaped.kernel.read().states == world.kernel.read().states


def test_a_kernel_that_lacks_something_only_counts() -> None:
    """Nothing is written to tc, and every entry stands as without a budget."""
    world = shaping_world()
    assert world.tc is not None
    world.tc.missing = ("no ifb: modprobe ifb",)
    world.pods = pod_list(pod(1))
    world.settle()

    assert world.tc.ops == []
    assert world.memory.shape.missing == ("no ifb: modprobe ifb",)
    assert len(world.kernel.read().states[0].pods) == 1


def test_a_blocked_uplink_has_no_filter_and_the_others_do() -> None:
    """What excludes clsact on one device leaves the rest at work."""
    world = shaping_world()
    assert world.tc is not None
    world.tc.blocked = {"eth0": "an ingress qdisc is there"}
    world.links, world.pods = links(uplinks=("eth0", "eth1")), pod_list(pod(1))
    world.settle()

    assert list(world.tc.filters) == ["eth1"]
    assert world.memory.shape.blocked == {"eth0": "an ingress qdisc is there"}
