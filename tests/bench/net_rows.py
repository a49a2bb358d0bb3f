"""The rows about pods' packets: what marking costs each of them, and how soon it follows the pods."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.bench import net_agent, net_packets
from tests.bench.budget import Budget

BACKENDS = ("nft", "legacy")
LEAST_MARKED = {"nft": 0.80, "legacy": 0.88}


def packet_rows(backend: str) -> Iterator[Budget]:
    """Ratios of packets a second within one run."""
    yield Budget(
        name=f"net-packets-{backend}", bound=LEAST_MARKED[backend], unit="", digits=3, is_least=True,
        what=f"cluster packets/s, 64-byte, 250 marked pods against none, {backend}",
        measure=partial(net_packets.marked_ratio, backend),
    )
    yield Budget(
        name=f"net-growth-{backend}", bound=0.95, unit="", digits=3, is_least=True,
        what=f"cluster packets/s, 64-byte, 1,000 marked pods against 10, {backend}",
        measure=partial(net_packets.growth_ratio, backend),
    )


def agent_rows(backend: str) -> Iterator[Budget]:
    """Times of the daemon; one backend in each run, both when all rows are asked for."""
    slow = backend != "nft"

    def figure(name: str) -> float:
        return float(getattr(net_agent.figures(backend), name))

    yield Budget(
        name=f"net-sync-{backend}", bound=800, unit="ms", slow=slow,
        what=f"250 dual-stack pods visible to all entries read back, first sync, {backend}",
        measure=partial(figure, "sync_milliseconds"),
    )
    yield Budget(
        name=f"net-compare-{backend}", bound=60, unit="ms", slow=slow,
        what=f"a compare of 250 pods that finds nothing, CPU, {backend}",
        measure=partial(figure, "compare_milliseconds"),
    )
    yield Budget(
        name=f"net-added-{backend}", bound=15, unit="ms", slow=slow,
        what=f"one pod added to 250, CPU, {backend}", measure=partial(figure, "added_milliseconds"),
    )
    yield Budget(
        name=f"net-latency-{backend}", bound=1, unit="s", digits=2, slow=slow,
        what=f"pod's address visible to entry read back, p95 of 50, {backend}",
        measure=partial(figure, "latency_seconds"),
    )
    yield Budget(
        name=f"net-restart-{backend}", bound=0, unit="", slow=slow,
        what=f"kernel writes of a restart with 250 pods, {backend}",
        measure=partial(net_agent.restart_writes, backend),
    )


BUDGETS = (
    *(row for backend in BACKENDS for row in packet_rows(backend)),
    *(row for backend in BACKENDS for row in agent_rows(backend)),
)
