"""What pods send and get, counted on the node and in their own kernels: the two must agree."""

from __future__ import annotations

import pytest

from nodeagent.traffic_memory import Tally
from tests.netns import traffic
from tests.netns.agent import NetAgent, pod
from tests.netns.conftest import MakeWorld
from tests.netns.world import BACKENDS, INSIDE, INTERNET, POD_A, POD_B

pytestmark = pytest.mark.root
PLAIN = pod("plain", POD_B[4])
DUAL = pod("dual", POD_A[4], POD_A[6], namespace="other")
SIZE_BYTES = 4_000_000
TOLERANCE = 0.001


def columns(tally: Tally) -> dict[str, int | None]:
    """The four columns by the names that `traffic.seen` has."""
    return {
        "internet_out": tally.internet_out_bytes, "internet_in": tally.internet_in_bytes,
        "cluster_out": tally.cluster_out_bytes, "cluster_in": tally.cluster_in_bytes,
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_pods_are_counted_as_their_own_kernels_count(make_world: MakeWorld, backend: str) -> None:
    """Internet and cluster, out and in, IPv4 and IPv6, behind MASQUERADE: equal to 0.1 %."""
    world = make_world(masquerade=True)
    world.neighbours(backend)
    for namespace in ("pod-a", "pod-b"):
        traffic.watch(world, namespace)
    for namespace in ("outside", "inside"):
        traffic.serve(world, namespace)
    agent = NetAgent(world, backend)
    agent.pods(PLAIN, DUAL)
    agent.start().settle(PLAIN, DUAL)
    for namespace, families in (("pod-a", (4, 6)), ("pod-b", (4,))):
        for family in families:
            world.inside(namespace, traffic.exchange, INTERNET[family], SIZE_BYTES, SIZE_BYTES // 2)
            world.inside(namespace, traffic.exchange, INSIDE[family], SIZE_BYTES // 2, SIZE_BYTES)
    agent.look()

    for namespace, one in (("pod-a", DUAL), ("pod-b", PLAIN)):
        counted, wanted = columns(agent.tally(one)), traffic.seen(world, namespace)
        assert min(wanted.values()) > SIZE_BYTES // 2
        assert counted == pytest.approx(wanted, rel=TOLERANCE), namespace
