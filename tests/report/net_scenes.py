"""A node with pods in the states that `nodeagent net` shows, as inputs of its reports."""

from __future__ import annotations

from typing import Any

import msgspec

from nodeagent.decide import marks, network
from nodeagent.decide.marks import MarkOptions
from nodeagent.errors import ErrorKind
from nodeagent.model import Now
from nodeagent.report.given import ReportInput
from nodeagent.signals import Unread
from nodeagent.traffic import (
    Counter,
    LinkState,
    MarkReading,
    MarkState,
    Pod,
    PodEntry,
    PodLink,
    PodList,
    PodPhase,
    PodSource,
    Uplink,
)
from nodeagent.traffic_memory import DriftMemory, PodCount, Tally, TrafficMemory, Uncovered
from tests.report.build import UPTIME_SECONDS, ago, given, memory, readings

OPTIONS = MarkOptions()
LLAMA, RANK, AGENT, DONE = (f"{n}" * 8 for n in "1234")
PODS = (
    Pod(uid=LLAMA, namespace="train", name="llama-0-worker-3", addresses=("10.244.1.10", "fd00:244::10"),
        phase=PodPhase.RUNNING),
    Pod(uid=RANK, namespace="infer", name="rank-7d9f", addresses=("10.244.1.11",), phase=PodPhase.RUNNING),
    Pod(uid=AGENT, namespace="kube-system", name="proxy", addresses=("10.0.0.2",), host_network=True,
        phase=PodPhase.RUNNING),
    Pod(uid=DONE, namespace="train", name="prepare", addresses=("10.244.1.11",), phase=PodPhase.SUCCEEDED),
)  # fmt: skip
LINKS = LinkState(
    uplinks=(Uplink(name="eth0", index=2, mtu=1500, operational=True, rx_bytes=9, tx_bytes=9),),
    on_link_prefixes=("10.0.0.0/24",), own_addresses=("10.0.0.2",), host_namespace=True,
    pod_links=(
        PodLink(name="veth3a91", address="10.244.1.10", rx_bytes=0, tx_bytes=0),
        PodLink(name="veth3a91", address="fd00:244::10", rx_bytes=0, tx_bytes=0),
    ),
)
GIB = 1 << 30


def _counts(scale: int) -> TrafficMemory:
    """Sums after `scale` seconds of the same traffic."""
    llama = Tally(
        internet_out_bytes=scale * 125_000_000, internet_in_bytes=scale * 1_250_000, cluster_in_bytes=3 * GIB,
        cluster_out_bytes=scale * 1_250_000_000,
    )
    rank = Tally(internet_out_bytes=scale * 1000, internet_in_bytes=0)
    agent = Tally(internet_out_bytes=77, internet_in_bytes=None)
    out = llama.internet_out_bytes + rank.internet_out_bytes + 77 + scale * 500
    return TrafficMemory(
        boot_id="b1", marks_read_seconds=UPTIME_SECONDS - 20 + scale,
        links_read_seconds=UPTIME_SECONDS - 20 + scale,
        pods={
            LLAMA: PodCount(namespace="train", name="llama-0-worker-3", tally=llama),
            RANK: PodCount(namespace="infer", name="rank-7d9f", tally=rank),
            AGENT: PodCount(namespace="kube-system", name="proxy", tally=agent),
        },
        retired={"gone": PodCount(namespace="train", name="gone", tally=Tally(internet_out_bytes=5))},
        namespaces={"train": llama, "infer": rank, "kube-system": agent},
        totals_bytes={f"4 {marks.NODE_TRAFFIC}internet-out": out},
    )


def _memory(scale: int, class_only: bool) -> Any:
    """Claims as decide makes them of these pods."""
    claims = marks.update(
        OPTIONS, network.begin_run(memory()).marks, Now(at=ago(0)), links=LINKS, reading=READ, pods=PODLIST
    )
    claims = msgspec.structs.replace(
        claims, class_only=class_only,
        drift=DriftMemory(repaired_count=3),
        uncovered=(Uncovered(address="10.244.1.11", owner="infer/rank-7d9f", prefix="10.244.1.0/24"),),
    )
    return memory(marks=claims, traffic=_counts(scale))


PODLIST = PodList(source="kubelet", pods=PODS)
READ = MarkReading(backend="nft", states=(MarkState(family=4), MarkState(family=6)))


def held(remembered: Any) -> MarkReading:
    """The kernel as it is wanted."""
    wish = marks.wish(OPTIONS, remembered.marks)
    assert wish is not None
    numbers = {"10.244.1.10": 1234567, "fd00:244::10": 12, "10.244.1.11": 0}
    counters = {address: Counter(bytes=number) for address, number in numbers.items()}
    return MarkReading(backend="nft", states=wish.states, out=counters, received=counters)


def marked(scale: int = 2, *, class_only: bool = False, **changed: Any) -> ReportInput:
    """Everything as wanted, read a moment ago; `changed` signals replace it."""
    remembered = _memory(scale, class_only)
    board = {
        "pods": PODLIST, "pods__source": PodSource(source="kubelet"), "net__links": LINKS,
        "net__marks": held(remembered),
    }  # fmt: skip
    return given(board=readings(**board | changed), remembered=remembered)


def half() -> ReportInput:
    """Another pod's entry on an address, a chain flushed, an orphan set; the kubelet does not answer."""
    wanted = held(_memory(2, False))
    four, six = wanted.states
    stale = PodEntry(address="10.244.1.11", minor=0x44, comment="old/pod/" + "9" * 8)
    four = msgspec.structs.replace(
        four, rules=tuple(rule for rule in four.rules if rule.chain != marks.EGRESS),
        pods=(*(entry for entry in four.pods if entry.address != stale.address), stale),
    )
    six = msgspec.structs.replace(six, pods=())
    reading = msgspec.structs.replace(wanted, states=(four, six))
    failed = PodSource(source="kubelet", error_kind=ErrorKind.TIMEOUT, error="no answer in 10 s")
    return marked(net__marks=reading, pods__source=failed)


def waiting() -> ReportInput:
    """No pod list yet."""
    source = PodSource(source="kubelet", error_kind=ErrorKind.DENIED, error="GET /pods on kubelet: 401")
    unread = Unread(kind=ErrorKind.DENIED, reason="EPERM")
    return given(board=readings(pods__source=source, net__marks=unread))


def switched_off() -> ReportInput:
    """No pods on this node."""
    return given(board=readings(pods__source=PodSource(source="none")))


__all__ = ["LLAMA", "OPTIONS", "half", "marked", "switched_off", "waiting"]
