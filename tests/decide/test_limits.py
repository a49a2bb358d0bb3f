"""Shares of pods: whose word counts, and what a bad word leaves in force."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.decide import limits
from nodeagent.decide.limits import NamespaceShares, ShapeOptions
from nodeagent.settings import NamespaceSettings, NetworkSettings, Settings
from nodeagent.shape_memory import OwnShares, ShapeMemory, Shares
from nodeagent.traffic import PodPhase
from tests.decide.mark_world import pod, pod_list

L, G, BANDWIDTH = (
    "nodeagent.io/internet-egress-limit", "nodeagent.io/internet-egress-guarantee",
    "kubernetes.io/egress-bandwidth",
)  # fmt: skip
M = 10**6
NODE = ShapeOptions(budget_bits_per_second=1000 * M, pod_limit_bits_per_second=100 * M)
TEAM = {"team-1": NamespaceShares(limit_bits_per_second=50 * M, guarantee_bits_per_second=5 * M)}


NOTHING = OwnShares()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One pod's annotations and what must hold."""

    name: str
    annotations: dict[str, str] = field(default_factory=dict)
    want: tuple[int, int, str] | None
    """Limit and guarantee in Mbit/s, whose limit."""
    last: OwnShares = NOTHING
    options: dict[str, Any] = field(default_factory=dict)
    pod: dict[str, Any] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    says: str = ""


LAST = OwnShares(limit_bits_per_second=20 * M, guarantee_bits_per_second=10 * M)
ROWS = (
    Row(name="nothing said", want=(100, 0, "node")),
    Row(name="no default: the budget", options={"pod_limit_bits_per_second": 0}, want=(1000, 0, "node")),
    Row(name="the namespace beats the node", options={"namespaces": TEAM}, want=(50, 5, "namespace")),
    Row(
        name="the pod beats the namespace",
        annotations={L: "10M"},
        options={"namespaces": TEAM},
        want=(10, 5, "pod"),
    ),
    Row(name="both of the pod's", annotations={L: "10M", G: "10M"}, want=(10, 10, "pod")),
    Row(name="a guarantee under the node's limit", annotations={G: "2M"}, want=(100, 2, "node")),
    Row(name="above the budget is legal", annotations={L: "5G"}, want=(5000, 0, "pod")),
    Row(
        name="a namespace's guarantee above the pod's limit is cut",
        annotations={L: "1M"},
        options={"namespaces": TEAM},
        want=(1, 1, "pod"),
    ),
    Row(
        name="bad, nothing before",
        annotations={L: "fast"},
        want=(100, 0, "node"),
        refused=(L,),
        says="Quantity",
    ),
    Row(
        name="bad, the last good one holds",
        annotations={L: "10Mbit"},
        last=LAST,
        want=(20, 0, "pod"),
        refused=(L,),
        says="no unit",
    ),
    Row(name="empty is bad", annotations={L: ""}, last=LAST, want=(20, 0, "pod"), refused=(L,)),
    Row(
        name="zero is bad",
        annotations={L: "0"},
        last=LAST,
        want=(20, 0, "pod"),
        refused=(L,),
        says="less than 1k",
    ),
    Row(name="taken away is not bad", last=LAST, want=(100, 0, "node")),
    Row(
        name="guarantee above the limit is refused",
        annotations={L: "10M", G: "20M"},
        want=(10, 0, "pod"),
        refused=(G,),
        says="at most the limit, 10 Mbit/s",
    ),
    Row(
        name="guarantee above the limit, a good one before",
        annotations={L: "20M", G: "30M"},
        last=LAST,
        want=(20, 10, "pod"),
        refused=(G,),
    ),
    Row(
        name="the limit falls below the guarantee",
        annotations={L: "5M", G: "10M"},
        last=LAST,
        want=(5, 5, "pod"),
        refused=(G,),
    ),
    Row(
        name="guarantee above the node's limit",
        annotations={G: "200M"},
        want=(100, 0, "node"),
        refused=(G,),
        says="the node's default",
    ),
    Row(name="two bad ones", annotations={L: "x", G: "y"}, last=LAST, want=(20, 10, "pod"), refused=(L, G)),
    Row(name="kubernetes.io is left alone", annotations={BANDWIDTH: "1M"}, want=(100, 0, "node")),
    Row(
        name="kubernetes.io by flag",
        annotations={BANDWIDTH: "1M"},
        options={"adopt_egress_bandwidth": True},
        want=(1, 0, "pod"),
    ),
    Row(
        name="ours beats kubernetes.io",
        annotations={BANDWIDTH: "1M", L: "2M"},
        options={"adopt_egress_bandwidth": True},
        want=(2, 0, "pod"),
    ),
    Row(name="hostNetwork: nothing", pod={"host_network": True}, options={"namespaces": TEAM}, want=None),
    Row(
        name="hostNetwork: its own annotation",
        pod={"host_network": True},
        annotations={L: "9M"},
        options={"namespaces": TEAM},
        want=(9, 0, "pod"),
    ),
    Row(
        name="hostNetwork: kubernetes.io is not its own",
        pod={"host_network": True},
        annotations={BANDWIDTH: "1M"},
        options={"adopt_egress_bandwidth": True},
        want=None,
    ),
    Row(
        name="hostNetwork: a bad word alone",
        pod={"host_network": True},
        annotations={L: "x"},
        want=None,
        refused=(L,),
        says="Quantity",
    ),
    Row(name="finished", pod={"phase": PodPhase.SUCCEEDED}, annotations={L: "x"}, want=None),
    Row(
        name="another prefix", annotations={L: "1M"}, options={"prefix": "example.com"}, want=(100, 0, "node")
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_shares_are_as_the_row_says(row: Row) -> None:
    """Pod before namespace before node; a bad value never opens the tap."""
    options = ShapeOptions(**({name: getattr(NODE, name) for name in NODE.__struct_fields__} | row.options))
    one = pod(1, annotations=row.annotations, **row.pod)
    after = limits.update(options, ShapeMemory(own={one.uid: row.last}), pod_list(one))

    found = after.shares.get(one.uid)
    want = None
    if row.want is not None:
        limit, guarantee, source = row.want
        want = Shares(
            limit_bits_per_second=limit * M, guarantee_bits_per_second=guarantee * M, limit_from=source
        )
    assert found == want
    assert tuple(sorted(bad.annotation for bad in after.bad)) == tuple(sorted(row.refused))
    assert not row.says or row.says in after.bad[0].remedy
    assert all(bad.in_force and bad.value.startswith("'") for bad in after.bad)


def test_a_refusal_is_told_once_and_again_when_the_value_changes() -> None:
    """One notice and one count for each bad value, with pod, value and remedy; none while it stands."""
    first = limits.update(NODE, ShapeMemory(), pod_list(pod(1, annotations={L: "fast"})))
    again = limits.update(NODE, first, pod_list(pod(1, annotations={L: "fast"})))
    other = limits.update(NODE, again, pod_list(pod(1, annotations={L: "faster"})))

    told = [list(limits.notices(*pair)) for pair in ((ShapeMemory(), first), (first, again), (again, other))]
    assert [len(one) for one in told] == [1, 0, 1]
    assert told[0][0].fields["pod"] == "team-1/pod-1"
    assert told[0][0].fields["value"] == "'fast'"
    assert "Kubernetes Quantity" in told[0][0].fields["reason"]
    assert [one.rejected_count for one in (first, again, other)] == [1, 1, 2]


def test_pods_that_a_list_skips_keep_their_shares() -> None:
    """An odd pod in the list takes no limit away."""
    first = limits.update(NODE, ShapeMemory(), pod_list(pod(1, annotations={L: "7M"}), pod(2)))

    assert limits.update(NODE, first, pod_list(pod(2), skipped=1)).shares == first.shares
    assert set(limits.update(NODE, first, pod_list(pod(2))).shares) == {pod(2).uid}


def test_options_are_the_configuration_in_numbers() -> None:
    """Quantities of the files become bits; nothing said is 0."""
    network = NetworkSettings(
        internet_budget="10G",
        pod_limit="500M",
        namespaces={"a": NamespaceSettings(limit="1G", guarantee="10M")},
    )
    found = limits.options(Settings(network=network))

    assert (found.budget_bits_per_second, found.pod_limit_bits_per_second) == (10**10, 500 * M)
    assert found.namespaces["a"] == NamespaceShares(
        limit_bits_per_second=10**9, guarantee_bits_per_second=10 * M
    )
    assert limits.options(Settings()) == ShapeOptions()


words = st.one_of(
    st.text(max_size=300), st.sampled_from(["1k", "10M", "1P", "5G", "0", "1E", "10Mbit", "-1M"])
)


@settings(deadline=None)
@given(
    given_=st.lists(st.dictionaries(st.sampled_from([L, G, BANDWIDTH]), words), max_size=4),
    adopt=st.booleans(),
    host=st.booleans(),
)
def test_no_annotation_crashes_or_opens_the_tap(
    given_: list[dict[str, str]], adopt: bool, host: bool
) -> None:
    """Whatever is typed, in any order: a limit in range holds, and no guarantee is above it."""
    options = ShapeOptions(
        budget_bits_per_second=1000 * M, pod_limit_bits_per_second=100 * M, adopt_egress_bandwidth=adopt
    )
    memory = ShapeMemory()
    for words_of_one in given_:
        one = pod(1, annotations=words_of_one, host_network=host)
        before = memory.own.get(one.uid, OwnShares())
        memory = limits.update(options, memory, pod_list(one))
        found = memory.shares.get(one.uid)
        assert found is not None or host
        if found is not None:
            assert 1_000 <= found.limit_bits_per_second <= 10**15
            assert 0 <= found.guarantee_bits_per_second <= found.limit_bits_per_second
        refused = {bad.annotation for bad in memory.bad}
        if L in refused:
            own = memory.own.get(one.uid, OwnShares())
            assert own.limit_bits_per_second == before.limit_bits_per_second
        assert all(bad.value.isprintable() for bad in memory.bad)
