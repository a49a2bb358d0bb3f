"""The metrics page: names, labels, and that nothing unread becomes a number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.errors import ErrorKind
from nodeagent.memory import XidRecord
from nodeagent.model import NODE, NodeClass, State
from nodeagent.report.given import ReportInput
from nodeagent.report.metrics import FAMILIES, Family, exposition, metrics_markdown
from nodeagent.report.samples import SAMPLES
from nodeagent.signals import Unread
from tests.report import build, scenes

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
UNITS = ("seconds", "bytes", "celsius", "ratio", "info", "total")
NO_UNIT = {
    "nodeagent_api_failing", "nodeagent_api_requests_left", "nodeagent_api_writes_held",
    "nodeagent_taint_set", "nodeagent_taint_held", "nodeagent_silences",
    "nodeagent_check_state",
    "nodeagent_check_fault_standing",
    "nodeagent_check_value",
    "nodeagent_verdict_state",
    "nodeagent_taint_wanted",
    "nodeagent_gpu_released",
    "nodeagent_signal_unread",
    "nodeagent_worker_deadline_misses",
    "nodeagent_worker_stuck",
    "nodeagent_config_reload_success",
    "nodeagent_state_file_writable",
    "nodeagent_pods_skipped",
    "nodeagent_marks_mode",
    "nodeagent_marks_entries",
    "nodeagent_marks_outside_addresses",
    "nodeagent_shaping_mode",
    "nodeagent_shaping_budget_bits_per_second",
    "nodeagent_shaping_annotations_bad",
}
"""Flags, one-hot states, counts of things, and the check's own number (whose unit is the check's)."""


def series(given: ReportInput) -> Series:
    """The page as a database would take it in."""
    page, _ = exposition(given)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def values(given: ReportInput, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one metric, by label values in the order of their names."""
    return {
        tuple(value for _, value in sorted(labels)): value
        for (found, labels), value in series(given).items()
        if found == name
    }


def test_page_is_as_agreed(golden: Callable[[str, str], str]) -> None:
    """The whole page of a broken node, letter by letter."""
    page = exposition(scenes.broken())[0].decode()

    assert page == golden("metrics-broken.txt", page)


def test_page_says_its_format() -> None:
    """A scraper is told what it gets."""
    assert exposition(scenes.quiet())[1].startswith("text/plain; version=")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_metric_names_follow_the_rules(family: Family) -> None:
    """Prefix, lower case, base unit last, and _total for counters alone."""
    assert re.fullmatch(r"nodeagent_[a-z][a-z0-9_]*[a-z0-9]", family.name)
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert family.name.rpartition("_")[2] in UNITS or family.name in NO_UNIT
    assert not re.search(
        r"_(milliseconds|ms|minutes|hours|kib|mib|gib|percent|count|sum|bucket)\b", family.name
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_labels_are_few_and_bounded(family: Family) -> None:
    """No label takes a message, a pod, a process or a time."""
    allowed = {
        "check",
        "target",
        "state",
        "class",
        "signal",
        "kind",
        "worker",
        "gpu",
        "xid",
        "version",
        "key",
        "effect",
        "value",
        "index",
        "uuid",
        "name",
        "namespace",
        "destination",
        "direction",
        "mode",
        "family",
        "source",
        "reason",
        "verb",
        "priority_level",
    }
    if family.name == "nodeagent_pod_traffic_bytes_total":  # only where it is asked for
        allowed |= {"pod"}

    assert set(family.labels) <= allowed
    assert family.help.endswith(".")


def test_every_declared_metric_has_samples_and_none_is_undeclared() -> None:
    """The declaration and the code that fills it cannot drift apart."""
    assert {f.name for f in FAMILIES if f.kind != "summary"} == set(SAMPLES)


@pytest.mark.parametrize("scene", scenes.SCENES)
def test_page_never_holds_a_series_twice(scene: str) -> None:
    """A repeated series makes a scraper drop the whole page."""
    page = exposition(scenes.SCENES[scene]())[0].decode()
    names = Counter(line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#"))

    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) > 10


@pytest.mark.parametrize("scene", scenes.SCENES)
def test_check_state_is_one_hot(scene: str) -> None:
    """Exactly one state is 1 for each check and target, and one verdict for the node."""
    given = scenes.SCENES[scene]()
    per_row: Counter[tuple[str, str]] = Counter()
    for (check, _, target), value in values(given, "nodeagent_check_state").items():
        per_row[check, target] += int(value)

    assert set(per_row.values()) == {1}
    assert len(per_row) == len(given.check_rows)
    assert sum(values(given, "nodeagent_verdict_state").values()) == 1


def test_unread_value_has_no_sample() -> None:
    """A check that could not be read has no number, not a zero."""
    unread = build.row("ecc.uncorrected", build.GPUS[0], State.UNKNOWN, number=0.0)
    read = build.row("ecc.uncorrected", build.GPUS[1], number=0.0)
    given = build.given(check_rows=(unread, read))

    assert values(given, "nodeagent_check_value") == {("ecc.uncorrected", build.GPUS[1]): 0.0}


def test_unread_signal_is_told_by_kind() -> None:
    """Why a signal is missing can be alerted on; counters of it vanish instead of falling to zero."""
    denied = Unread(kind=ErrorKind.DENIED, reason="permission denied")
    given = build.given(board=build.readings(kernel_log=denied, state_file=denied))

    assert values(given, "nodeagent_signal_unread") == {
        ("denied", "kernel_log", NODE): 1.0,
        ("denied", "state_file", NODE): 1.0,
    }
    assert values(given, "nodeagent_kernel_log_records_total") == {}
    assert values(given, "nodeagent_state_file_writable") == {}


def test_standing_fault_is_told_while_it_cannot_be_read() -> None:
    """An alert on a fault does not end because the fault can no longer be read."""
    standing = values(scenes.released(), "nodeagent_check_fault_standing")

    assert standing == {("ecc.uncorrected", "reset", build.GPUS[3]): 1.0}


def test_switch_errors_do_not_mix_with_gpu_errors() -> None:
    """An SXid is no Xid of the same number."""
    record = XidRecord(
        pci_address="0000:c5:00.0",
        number=79,
        node_class=NodeClass.RESET,
        first=build.ago(9),
        last=build.ago(9),
        kernel_count=2,
    )
    given = build.given(remembered=build.memory(xids={"0000:c5:00.0|sxid 79": record}))

    assert values(given, "nodeagent_xid_total") == {("0000:c5:00.0", "sxid:79"): 2.0}


def test_hanging_call_shows_its_age() -> None:
    """The one metric to alert on when the driver blocks."""
    assert values(scenes.driver_hangs(), "nodeagent_worker_pending_seconds") == {
        ("host",): 0.0,
        ("nvml",): 40.0,
    }


def test_cycles_are_a_summary() -> None:
    """Sum and count give the mean duration over any window."""
    found = series(scenes.quiet())

    assert found["nodeagent_cycle_duration_seconds_count", frozenset()] == 4711
    assert found["nodeagent_cycle_duration_seconds_sum", frozenset()] == 9.5


def test_page_exists_before_the_first_cycle_has_ended() -> None:
    """A scrape in the first second is answered, and claims nothing."""
    found = series(build.given(decision=None, board={}))
    verdict = {name for (name, labels), value in found.items() if ("state", "unknown") in labels and value}

    assert verdict == {"nodeagent_verdict_state"}
    assert not any(name == "nodeagent_verdict_since_timestamp_seconds" for name, _ in found)


def test_strange_names_cannot_break_the_page() -> None:
    """A mount point may hold quotes, line ends and bytes that are no UTF-8."""
    odd = '/mnt/a"b\\c\nd\udcff'
    given = build.given(check_rows=(build.row("disk.full", odd, number=1.0),))

    assert values(given, "nodeagent_check_value") == {("disk.full", '/mnt/a"b\\c\nd?'): 1.0}


def test_documentation_of_metrics_is_fresh() -> None:
    """docs/metrics.md is what the declarations say; `make docs` writes it."""
    page = Path(__file__).parents[2] / "docs" / "metrics.md"

    assert page.read_text(encoding="utf-8") == metrics_markdown()


def test_refused_requests_are_counted_by_reason() -> None:
    """What the server turned away is a counter for each reason, zero included."""
    given = msgspec.structs.replace(scenes.quiet(), requests_refused={"timeout": 3, "too_many": 0})

    assert values(given, "nodeagent_requests_refused_total") == {("timeout",): 3.0, ("too_many",): 0.0}
