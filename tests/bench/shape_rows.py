"""The rows about limits of pods' internet egress: do they hold, and what they cost others and the agent."""

from __future__ import annotations

from functools import partial

from tests.bench import net_agent, shape_beside, shape_rates
from tests.bench.budget import Budget

BACKEND = "nft"
BUDGET = "10G"
"""Without a limit of its own a pod has the budget, so each of the 250 has a class."""


def figure(name: str) -> float:
    """One of the agent's times, every pod with a class."""
    return float(getattr(net_agent.figures(BACKEND, BUDGET), name))


RATES = (
    Budget(
        name="shape-least", bound=97, unit="% of the limit", digits=1, is_least=True, slow=True,
        what="HTB class bytes over 10 s, 1 Mbit/s to 5 Gbit/s, TCP and UDP, least",
        measure=shape_rates.least_wire,
    ),
    Budget(
        name="shape-most", bound=101, unit="% of the limit", digits=1, slow=True,
        what="HTB class bytes over 10 s, 1 Mbit/s to 5 Gbit/s, TCP and UDP, most",
        measure=shape_rates.most_wire,
    ),
    Budget(
        name="shape-payload", bound=93, unit="% of the limit", digits=1, is_least=True, slow=True,
        what="TCP goodput over 10 s, 1 Mbit/s to 5 Gbit/s, least", measure=shape_rates.least_payload,
    ),
    Budget(
        name="shape-first", bound=100, unit="% of limit, burst and one packet", digits=1, slow=True,
        what="HTB class bytes in the first second, 1 Mbit/s to 5 Gbit/s, most",
        measure=shape_rates.most_first,
    ),
    Budget(
        name="shape-cluster", bound=0.97, unit="", digits=3, is_least=True,
        what="cluster TCP throughput of a limited pod, internet share full against idle",
        measure=shape_rates.cluster_ratio,
    ),
    Budget(
        name="shape-packets", bound=0.80, unit="", digits=3, is_least=True, slow=True,
        what="cluster packets/s, 64-byte, 250 shaped pods against none, nft",
        measure=shape_beside.own_packets_ratio,
    ),
)
AGENT = (
    Budget(
        name="shape-sync", bound=800, unit="ms", slow=True,
        what="250 dual-stack pods visible to all entries and classes read back, first sync, nft",
        measure=partial(figure, "sync_milliseconds"),
    ),
    Budget(
        name="shape-compare", bound=60, unit="ms", slow=True,
        what="a compare of 250 shaped pods that finds nothing, CPU, nft",
        measure=partial(figure, "compare_milliseconds"),
    ),
    Budget(
        name="shape-added", bound=15, unit="ms", slow=True, what="one pod added to 250 shaped ones, CPU, nft",
        measure=partial(figure, "added_milliseconds"),
    ),
    Budget(
        name="shape-latency", bound=1, unit="s", digits=2, slow=True,
        what="pod's address visible to entry and class read back, p95 of 50, nft",
        measure=partial(figure, "latency_seconds"),
    ),
    Budget(
        name="shape-restart", bound=0, unit="",
        what="kernel writes of a restart with 250 shaped pods, tc too, nft",
        measure=partial(net_agent.restart_writes, BACKEND, BUDGET),
    ),
)
BUDGETS = (*RATES, *AGENT)
