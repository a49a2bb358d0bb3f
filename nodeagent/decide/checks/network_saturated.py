"""`network.saturated`: is a pod, or the whole budget, at its internet limit for long?

Being limited is what a limit is for; ten minutes of it mean that somebody waits for the internet, and that
either the limit or the job is wrong. A pod whose limit is the whole budget is told of by the budget.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.quantity import shown_rate
from nodeagent.shape_memory import ClassCount

SHOWN_PODS = 3


def judge(given: CheckInput) -> Iterator[Finding]:
    """Bad while the budget or a pod has been near its limit for so long; number is such pods, or 1."""
    memory = given.memory.shape
    if not memory.budget_bits_per_second:
        sentence = "nothing is shaped: [network] internet_budget is empty"
        yield not_applicable(NODE, sentence)
        return
    minutes = given.limits["seconds"] / 60
    for target, _, reading in given.values("net.shape"):
        shown = {"limit": f"{given.limits['percent']:g} % for {minutes:g} min"}
        budget, pods = memory.budget_count, _long_busy(given, reading.read_at_seconds)
        if budget is not None and _is_long(given, budget, reading.read_at_seconds):
            rate, whole = _rate(budget), shown_rate(memory.budget_bits_per_second)
            sentence = f"the node's internet budget of {whole} is used up: {rate} now"
            yield bad(target, reading, sentence, value=rate, number=1.0, cause="budget", **shown)
        elif pods:
            more = f" and {len(pods) - SHOWN_PODS} more" if len(pods) > SHOWN_PODS else ""
            sentence = f"at their limit for {minutes:g} min: {', '.join(pods[:SHOWN_PODS])}{more}"
            value = f"{len(pods)} pods"
            yield bad(target, reading, sentence, value=value, number=float(len(pods)), cause="pod", **shown)
        else:
            value = "no rate yet" if budget is None else _rate(budget)
            yield good(target, reading, value=value, number=0.0, **shown)


def _long_busy(given: CheckInput, at_seconds: float) -> list[str]:
    """The pods below the budget that are at their limit, with rate and limit."""
    memory = given.memory.shape
    names = {
        claim.uid: f"{claim.namespace}/{claim.name}"
        for claim in given.memory.marks.holders
    }
    found = []
    for uid, count in memory.pods.items():
        shares = memory.shares.get(uid)
        if shares is None or shares.limit_bits_per_second >= memory.budget_bits_per_second:
            continue
        if uid in names and _is_long(given, count, at_seconds):
            found.append(f"{names[uid]} ({_rate(count)} of {shown_rate(shares.limit_bits_per_second)})")
    return sorted(found)


def _is_long(given: CheckInput, count: ClassCount, at_seconds: float) -> bool:
    since_seconds = count.busy_since_seconds
    return since_seconds is not None and at_seconds - since_seconds >= given.limits["seconds"]


def _rate(count: ClassCount) -> str:
    return "no rate yet" if count.rate_bits_per_second is None else shown_rate(count.rate_bits_per_second)


CHECKS = (
    Check(
        id="network.saturated",
        title="Internet limits not used up",
        family="node",
        signals=("net.shape",),
        source="byte counters of the HTB classes, between two readings",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="percent", unit="%", default=90.0,
                meaning="From this share of its limit on a pod, or the budget, is near it.",
            ),
            Limit(
                name="seconds", unit="s", default=600.0,
                meaning="Near its limit at every reading for so long is bad.",
            ),
        ),
        hold=HoldRule(),
        depends_on=("network.shaper",),
    ),
)
