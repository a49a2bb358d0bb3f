"""The samples of the network's metrics, read out of one cycle's input.

Per namespace they do not grow with pods; per pod only where `[network] pod_metrics` asks for it. Bytes are
sums of this boot, from the IP header on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nodeagent.decide.pod_traffic import node_traffic
from nodeagent.report.given import ReportInput
from nodeagent.report.net_status import age_seconds, network_status, value
from nodeagent.traffic import MarkReading, PodList
from nodeagent.traffic_memory import Tally

Samples = Iterator[tuple[tuple[str, ...], float]]
"""Label values in the order of the family's labels, and the value."""
SHAPING = ("off", "waiting", "count-only", "shaping")
MODES = ("off", "waiting", "class-and-mark", "class-only")
COLUMNS = (
    ("internet", "out", "internet_out_bytes"), ("internet", "in", "internet_in_bytes"),
    ("cluster", "out", "cluster_out_bytes"), ("cluster", "in", "cluster_in_bytes"),
)  # fmt: skip
"""Values of the labels destination and direction, and the field that they stand for."""


def _columns(tally: Tally, *before: str) -> Samples:
    for destination, direction, field in COLUMNS:
        number = getattr(tally, field)
        if number is not None:
            yield (*before, destination, direction), float(number)


def _namespaces(given: ReportInput) -> Samples:
    for name, tally in sorted(given.memory.traffic.namespaces.items()):
        yield from _columns(tally, name)


def _pods(given: ReportInput) -> Samples:
    """Pods that share a name (of which one is ending) are one series."""
    sums: dict[tuple[str, ...], float] = {}
    for count in given.memory.traffic.pods.values() if given.settings.network.pod_metrics else ():
        for labels, number in _columns(count.tally, count.namespace, count.name):
            sums[labels] = sums.get(labels, 0.0) + number
    yield from sorted(sums.items())


def _node(given: ReportInput) -> Samples:
    if given.memory.traffic.marks_read_seconds is not None:
        yield from _columns(node_traffic(given.memory.traffic).total)


def _list_age(given: ReportInput) -> Samples:
    pods, seconds = value(given, "pods", PodList), age_seconds(given, "pods")
    if pods is not None and seconds is not None:
        yield (pods.source,), seconds


def _skipped(given: ReportInput) -> Samples:
    pods = value(given, "pods", PodList)
    if pods is not None:
        yield (), float(pods.skipped)


def _mode(given: ReportInput) -> Samples:
    current = network_status(given).mode
    for mode in MODES:
        yield (mode,), float(mode == current)


def _entries(given: ReportInput) -> Samples:
    marks = value(given, "net.marks", MarkReading)
    for state in marks.states if marks is not None else ():
        yield (str(state.family),), float(len(state.pods))


def _repairs(given: ReportInput) -> Samples:
    yield (), float(given.memory.marks.drift.repaired_count)


def _outside(given: ReportInput) -> Samples:
    if given.memory.marks.listed:
        yield (), float(len(given.memory.marks.uncovered))


def _shaping(given: ReportInput) -> Samples:
    current = network_status(given).shaping
    for mode in SHAPING:
        yield (mode,), float(mode == current)


def _budget(given: ReportInput) -> Samples:
    if given.memory.shape.budget_bits_per_second:
        yield (), float(given.memory.shape.budget_bits_per_second)


def _refused(given: ReportInput) -> Samples:
    yield (), float(given.memory.shape.rejected_count)


def _bad(given: ReportInput) -> Samples:
    yield (), float(len(given.memory.shape.bad))


def _guarantees(given: ReportInput) -> Samples:
    if given.memory.shape.budget_bits_per_second:
        yield (), given.memory.shape.scaled_ratio


def _shaped_sums(field: str) -> Callable[[ReportInput], Samples]:
    def samples(given: ReportInput) -> Samples:
        for name, total in sorted(given.memory.shape.namespaces.items()):
            yield (name,), float(getattr(total, field))

    return samples


NET_SAMPLES: Mapping[str, Callable[[ReportInput], Samples]] = {
    "nodeagent_namespace_traffic_bytes_total": _namespaces,
    "nodeagent_pod_traffic_bytes_total": _pods,
    "nodeagent_node_traffic_bytes_total": _node,
    "nodeagent_pods_list_age_seconds": _list_age,
    "nodeagent_pods_skipped": _skipped,
    "nodeagent_marks_mode": _mode,
    "nodeagent_marks_entries": _entries,
    "nodeagent_marks_drift_repairs_total": _repairs,
    "nodeagent_marks_outside_addresses": _outside,
    "nodeagent_shaping_mode": _shaping,
    "nodeagent_shaping_budget_bits_per_second": _budget,
    "nodeagent_shaping_guarantees_ratio": _guarantees,
    "nodeagent_shaping_sent_bytes_total": _shaped_sums("sent_bytes"),
    "nodeagent_shaping_dropped_packets_total": _shaped_sums("dropped_packets_count"),
    "nodeagent_shaping_throttled_total": _shaped_sums("throttled_count"),
    "nodeagent_shaping_annotations_bad": _bad,
    "nodeagent_shaping_annotations_rejected_total": _refused,
}
"""Metric name -> its samples."""
