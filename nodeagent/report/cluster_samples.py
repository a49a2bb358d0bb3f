"""The samples of the API server's metrics; none where there is no cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nodeagent.cluster import ApiStatus, VerbBudget
from nodeagent.report.given import ReportInput, read

Samples = Iterator[tuple[tuple[str, ...], float]]


def _api(given: ReportInput) -> ApiStatus | None:
    status = read(given, "cluster.api")
    return status if isinstance(status, ApiStatus) else None


def _per_verb(number: Callable[[VerbBudget], int]) -> Callable[[ReportInput], Samples]:
    def samples(given: ReportInput) -> Samples:
        status = _api(given)
        for verb in status.budget.verbs if status is not None else ():
            yield (verb.verb,), float(number(verb))

    return samples


def _throttled(given: ReportInput) -> Samples:
    status = _api(given)
    for throttle in status.budget.throttles if status is not None else ():
        yield (throttle.priority_level,), float(throttle.throttled_count)


def _failing(given: ReportInput) -> Samples:
    status = _api(given)
    if status is not None:
        yield (), float(bool(status.error))


def _held(given: ReportInput) -> Samples:
    if _api(given) is not None and given.decision is not None:
        yield (), float(bool(given.decision.node_writes.held))


def _taints_set(given: ReportInput) -> Samples:
    for claim in given.memory.cluster.claims.values():
        if claim.written:
            yield (claim.key, claim.effect, claim.value), 1.0


CLUSTER_SAMPLES: Mapping[str, Callable[[ReportInput], Samples]] = {
    "nodeagent_api_failing": _failing,
    "nodeagent_api_requests_total": _per_verb(lambda verb: verb.spent_count),
    "nodeagent_api_requests_withheld_total": _per_verb(lambda verb: verb.withheld_count),
    "nodeagent_api_requests_left": _per_verb(lambda verb: verb.left_count),
    "nodeagent_api_throttled_total": _throttled,
    "nodeagent_api_writes_held": _held,
    "nodeagent_taint_set": _taints_set,
}
"""Metric name -> its samples."""
