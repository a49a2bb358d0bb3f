"""The metrics page: what the reports say, as numbers for a time series database.

Made anew from the last cycle at each scrape, on a registry of its own: nothing here lives between
scrapes, so a metric can never speak of a GPU that is gone. A value that was not read has no sample;
it is never 0. No label grows with pods, messages or time.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from nodeagent.report.families import CLUSTER_FAMILIES, Family
from nodeagent.report.given import ReportInput
from nodeagent.report.samples import SAMPLES

FAMILIES = (
    Family(
        name="nodeagent_build_info", kind="gauge", labels=("version",), help="Always 1; the agent's version."
    ),
    Family(
        name="nodeagent_check_state",
        kind="gauge",
        labels=("check", "target", "state"),
        help="1 for the state a check is in on a target, 0 for the others. The target is a GPU's PCI "
        "address, a mount point or node.",
    ),
    Family(
        name="nodeagent_check_fault_standing",
        kind="gauge",
        labels=("check", "target", "class"),
        help="1 while a fault is raised, also while it cannot be read or is muted. Absent otherwise.",
    ),
    Family(
        name="nodeagent_check_value",
        kind="gauge",
        labels=("check", "target"),
        help="The number a check judges, in its first limit's unit (docs/checks.md). Absent while unread.",
    ),
    Family(
        name="nodeagent_verdict_state",
        kind="gauge",
        labels=("state",),
        help="1 for the state of the node, 0 for the others.",
    ),
    Family(
        name="nodeagent_verdict_since_timestamp_seconds",
        kind="gauge",
        help="When the node left ok, or came back to it, in seconds since the epoch.",
    ),
    Family(
        name="nodeagent_taint_wanted",
        kind="gauge",
        labels=("key", "effect", "value"),
        help="1 for each taint the faults ask for. Absent when none is.",
    ),
    Family(
        name="nodeagent_taint_held",
        kind="gauge",
        labels=("key", "effect", "value"),
        help="1 for each taint that the faults ask for and silences hold back. Absent when none is.",
    ),
    Family(
        name="nodeagent_silences",
        kind="gauge",
        labels=("check",),
        help="Silences that stand. Absent for a check without one.",
    ),
    Family(
        name="nodeagent_gpu_info",
        kind="gauge",
        labels=("gpu", "index", "uuid", "name"),
        help="Always 1; joins the PCI address in other metrics to index, UUID and product name.",
    ),
    Family(
        name="nodeagent_gpu_released",
        kind="gauge",
        help="1 while NVML is released for a reset or a driver upgrade.",
    ),
    Family(
        name="nodeagent_xid_total",
        kind="counter",
        labels=("gpu", "xid"),
        help="Xid errors by number, sxid:N for an NVSwitch. Starts anew when the fault is proven gone.",
    ),
    Family(
        name="nodeagent_signal_age_seconds",
        kind="gauge",
        labels=("signal", "target"),
        help="Age of the last attempt to read a signal, successful or not.",
    ),
    Family(
        name="nodeagent_signal_unread",
        kind="gauge",
        labels=("signal", "target", "kind"),
        help="1 while a signal could not be read, with the kind of failure. Absent otherwise.",
    ),
    Family(
        name="nodeagent_worker_pending_seconds",
        kind="gauge",
        labels=("worker",),
        help="How long the worker's call in flight has not returned; 0 when none is in flight.",
    ),
    Family(
        name="nodeagent_worker_deadline_misses",
        kind="gauge",
        labels=("worker",),
        help="Deadlines missed in a row.",
    ),
    Family(
        name="nodeagent_worker_restarts_total",
        kind="counter",
        labels=("worker",),
        help="Children replaced since the daemon started.",
    ),
    Family(
        name="nodeagent_worker_stuck",
        kind="gauge",
        labels=("worker",),
        help="1 while the worker hangs in a call.",
    ),
    Family(
        name="nodeagent_kernel_log_records_total",
        kind="counter",
        help="Kernel log records read since the daemon started.",
    ),
    Family(
        name="nodeagent_kernel_log_lost_total",
        kind="counter",
        help="Records that the kernel dropped before they were read.",
    ),
    Family(
        name="nodeagent_kernel_log_refused_total",
        kind="counter",
        help="Records from user space that look like a driver's; never believed.",
    ),
    Family(
        name="nodeagent_inbox_dropped_total",
        kind="counter",
        help="Events lost because more happened at once than the inbox holds.",
    ),
    Family(
        name="nodeagent_requests_refused_total",
        kind="counter",
        labels=("reason",),
        help="Requests to the socket and the metrics port that were not taken: malformed, too_large, timeout "
        "or too_many at once.",
    ),
    Family(
        name="nodeagent_cycle_duration_seconds",
        kind="summary",
        help="Time spent in cycles, and their number.",
    ),
    Family(
        name="nodeagent_last_cycle_timestamp_seconds",
        kind="gauge",
        help="When the last cycle began, in seconds since the epoch.",
    ),
    Family(
        name="nodeagent_config_reload_success",
        kind="gauge",
        help="1 when the files in place are in force, 0 when the last reload was refused.",
    ),
    Family(
        name="nodeagent_state_file_writable",
        kind="gauge",
        help="1 when the agent can save its memory, 0 when not. Absent while unknown.",
    ),
    Family(
        name="nodeagent_namespace_traffic_bytes_total",
        kind="counter",
        labels=("namespace", "destination", "direction"),
        help="Bytes of all pods of a namespace in this boot, by destination (internet, cluster) and "
        "direction (out, in: seen from the pod).",
    ),
    Family(
        name="nodeagent_pod_traffic_bytes_total",
        kind="counter",
        labels=("namespace", "pod", "destination", "direction"),
        help="The same of each living pod; only with [network] pod_metrics. A number that is not known has "
        "no sample.",
    ),
    Family(
        name="nodeagent_node_traffic_bytes_total",
        kind="counter",
        labels=("destination", "direction"),
        help="Bytes over the uplinks in this boot, those of pods and of the host itself.",
    ),
    Family(
        name="nodeagent_pods_list_age_seconds",
        kind="gauge",
        labels=("source",),
        help="Age of the pod list in force (file, kubelet). Absent without one.",
    ),
    Family(
        name="nodeagent_pods_skipped",
        kind="gauge",
        help="Items of that list that could not be understood.",
    ),
    Family(
        name="nodeagent_marks_mode",
        kind="gauge",
        labels=("mode",),
        help="1 for how pods' packets are marked now, 0 for the others. class-only is as good.",
    ),
    Family(
        name="nodeagent_marks_entries",
        kind="gauge",
        labels=("family",),
        help="Addresses in the pod sets of family 4 or 6, as read back. Absent while unread.",
    ),
    Family(
        name="nodeagent_marks_drift_repairs_total",
        kind="counter",
        help="Parts of ours that others had changed and that were written again, in this boot.",
    ),
    Family(
        name="nodeagent_marks_outside_addresses",
        kind="gauge",
        help="Own and pod addresses that no cluster prefix covers, at most 32.",
    ),
    Family(
        name="nodeagent_shaping_mode",
        kind="gauge",
        labels=("mode",),
        help="1 for the present mode: off, waiting, count-only (the kernel lacks something), shaping.",
    ),
    Family(
        name="nodeagent_shaping_budget_bits_per_second",
        kind="gauge",
        help="The node's internet budget. Absent without one.",
    ),
    Family(
        name="nodeagent_shaping_guarantees_ratio",
        kind="gauge",
        help="Share of the pods' guarantees that the budget can give. Absent without a budget.",
    ),
    Family(
        name="nodeagent_shaping_sent_bytes_total",
        kind="counter",
        labels=("namespace",),
        help="Bytes of pods that left the shaper in this boot, link header included.",
    ),
    Family(
        name="nodeagent_shaping_dropped_packets_total",
        kind="counter",
        labels=("namespace",),
        help="Packets of pods that the shaper dropped in this boot.",
    ),
    Family(
        name="nodeagent_shaping_throttled_total",
        kind="counter",
        labels=("namespace",),
        help="How often a packet of pods had to wait in the shaper in this boot.",
    ),
    Family(
        name="nodeagent_shaping_annotations_bad",
        kind="gauge",
        help="Annotations of pods that are not taken now.",
    ),
    Family(
        name="nodeagent_shaping_annotations_rejected_total",
        kind="counter",
        help="Annotations of pods that were refused in this boot, each value once.",
    ),
    *CLUSTER_FAMILIES,
)
"""Every metric, in the order of the page."""


def exposition(given: ReportInput) -> tuple[bytes, str]:
    """The page in the Prometheus text format, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(given))
    return generate_latest(registry), CONTENT_TYPE_LATEST


def metrics_markdown() -> str:
    """The whole of docs/metrics.md."""
    rows = "".join(
        f"| `{family.name}` | {family.kind} | {', '.join(f'`{x}`' for x in family.labels) or '-'} "
        f"| {family.help} |\n"
        for family in FAMILIES
    )
    return (
        "# Metrics\n\nGenerated from `nodeagent/report/metrics.py` by `make docs`; edits here are lost.\n\n"
        "Served at `/metrics` on `[status] metrics_listen` and on the status socket.\n"
        "A value that could not be read has no sample.\n"
        "GPUs are labelled by PCI address, the one name that outlives a lost device; `nodeagent_gpu_info`\n"
        "joins it to UUID and index:\n\n"
        "```\nnodeagent_check_fault_standing * on (instance, target) group_left (uuid, index)\n"
        '  label_replace(nodeagent_gpu_info, "target", "$1", "gpu", "(.*)")\n```\n\n'
        f"| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}"
    )


class _Page(Collector):
    """One scrape: turns the samples of each declared family into what the library writes."""

    def __init__(self, given: ReportInput) -> None:
        self._given = given

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            if family.kind == "summary":
                yield SummaryMetricFamily(
                    family.name,
                    family.help,
                    count_value=self._given.cycles,
                    sum_value=self._given.cycles_seconds_total,
                )
                continue
            make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = make(family.name, family.help, labels=family.labels)
            for labels, value in SAMPLES[family.name](self._given):
                metric.add_metric([_encodable(label) for label in labels], value)
            yield metric


def _encodable(label: str) -> str:
    """A mount point may hold bytes that are no UTF-8; the page must."""
    return label.encode("utf-8", "replace").decode("utf-8")
