"""Reports and tables of pods' traffic: golden screens, rates, and that the unknown stays unknown."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from nodeagent.report import net_schema, schema
from nodeagent.report.given import ReportInput
from nodeagent.report.metrics import exposition
from nodeagent.report.net_status import network_status
from nodeagent.report.render import render_status
from nodeagent.report.render_net import (
    TopView,
    bit_rate,
    byte_size,
    press,
    render_diff,
    render_network,
    render_show,
    render_top,
)
from nodeagent.report.status import build_status
from nodeagent.report.traffic import build_diff, build_show, build_top, find_pod
from tests.report import net_scenes as scenes

Golden = Callable[[str, str], str]


def show(given: ReportInput, name: str) -> net_schema.NetShowReport:
    """The report of a pod that is known."""
    uid = find_pod(given, name)
    assert uid is not None
    return build_show(given, uid)


SCREENS: dict[str, Callable[[], str]] = {
    "net-top": lambda: render_top(build_top(scenes.marked(12)), build_top(scenes.marked(2))),
    "net-top-first": lambda: render_top(build_top(scenes.marked())),
    "net-top-namespaces": lambda: render_top(
        build_top(scenes.marked(12)), build_top(scenes.marked(2)), view=TopView(by_namespace=True)
    ),
    "net-top-waiting": lambda: render_top(build_top(scenes.waiting())),
    "net-show": lambda: render_show(show(scenes.marked(), "train/llama-0-worker-3")),
    "net-show-host": lambda: render_show(show(scenes.marked(), "kube-system/proxy")),
    "net-show-stolen": lambda: render_show(show(scenes.half(), "infer/rank-7d9f")),
    "net-show-finished": lambda: render_show(show(scenes.marked(), "train/prepare")),
    "net-show-gone": lambda: render_show(show(scenes.marked(), "train/gone")),
    "net-diff": lambda: render_diff(build_diff(scenes.half(), scenes.OPTIONS)),
    "net-diff-verbose": lambda: render_diff(build_diff(scenes.half(), scenes.OPTIONS), verbose=True),
    "net-diff-empty": lambda: render_diff(build_diff(scenes.marked(), scenes.OPTIONS)),
    "net-diff-waiting": lambda: render_diff(build_diff(scenes.waiting(), scenes.OPTIONS)),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screens_are_as_agreed(name: str, golden: Golden) -> None:
    """The whole text, letter by letter."""
    text = SCREENS[name]()

    assert text == golden(f"{name}.txt", text)


STATUS_LINES = [
    (scenes.marked(), "2 pods marked, no drift, read 4 s ago; 1 address outside the cluster prefixes"),
    (scenes.marked(class_only=True), "2 pods marked, class-only, no drift, read 4 s ago; 1 address outside"),
    (scenes.half(), "0 of 2 pods marked, no drift, read 4 s ago; 1 address outside the cluster prefixes; "
                    "pods as of 4 s ago: no answer in 10 s"),
    (scenes.waiting(), "nothing marked, waiting for a pod list: GET /pods on kubelet: 401"),
    (scenes.switched_off(), "off: no source of pods"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "line"), STATUS_LINES)
def test_the_status_line_says_what_is_marked(given: ReportInput, line: str) -> None:
    """Pods, mode, drift, age, and only then what is amiss."""
    assert render_network(network_status(given)).startswith(line)


def test_status_has_the_line_where_there_are_pods() -> None:
    """A node that marks nothing on purpose is not told about it, but for -v."""
    shown = [line for line in render_status(build_status(scenes.marked())).splitlines() if "Network" in line]
    off = build_status(scenes.switched_off())

    assert len(shown) == 1 and shown[0].startswith("Network   2 pods marked, ")
    assert "Network" not in render_status(off)
    assert "Network   off: no source of pods" in render_status(off, verbose=True)


@pytest.mark.parametrize(
    ("given", "known", "code"),
    [
        (scenes.marked(), True, 0),
        (scenes.half(), True, 1),
        (scenes.waiting(), False, 69),
        (scenes.switched_off(), True, 0),
    ],
)
def test_diff_tells_nothing_pending_from_nothing_known(given: ReportInput, known: bool, code: int) -> None:
    """0 nothing pending, 1 something is, 69 not known."""
    report = build_diff(given, scenes.OPTIONS)

    assert (report.known, report.exit_code) == (known, code)


def test_reports_survive_the_wire() -> None:
    """What is encoded is decoded equal, schema first."""
    given = scenes.half()
    top, diff, pod = build_top(given), build_diff(given, scenes.OPTIONS), show(given, scenes.LLAMA)

    assert net_schema.decode_top(schema.encode(top)) == top
    assert net_schema.decode_diff(schema.encode(diff)) == diff
    assert net_schema.decode_show(schema.encode(pod)) == pod
    assert schema.encode(top).startswith(b'{"schema":"nodeagent/net-top/v1"')


def test_no_rate_without_a_second_reading() -> None:
    """Equal readings, a boot between them and an unknown number give no rate, never zero."""
    first = build_top(scenes.marked(2))

    for before in (None, first, build_top(scenes.marked(12))):
        assert "bit/s" not in render_top(first, before)


def test_unknown_pods_are_not_found() -> None:
    """Neither a part of a name nor another namespace finds a pod."""
    given = scenes.marked()

    for name in ("llama-0-worker-3", "infer/llama-0-worker-3", ""):
        assert find_pod(given, name) is None
    assert find_pod(given, scenes.LLAMA) == find_pod(given, "train/llama-0-worker-3") == scenes.LLAMA


KEYS = [
    ("s", TopView(sort="in")),
    ("ssssss", TopView()),
    ("/inf", TopView(typing=True, pattern="inf")),
    ("/infq\x7f\n", TopView(pattern="inf")),
    ("/inf\x1b", TopView()),
    ("/a\x01", TopView(typing=True, pattern="a")),
    ("x", TopView()),
    ("q", TopView(ended=True)),
]


@pytest.mark.parametrize(("keys", "view"), KEYS)
def test_keys_change_the_view(keys: str, view: TopView) -> None:
    """s sorts, / filters until Enter, Escape clears, q ends but not inside a filter."""
    shown = TopView()
    for key in keys:
        shown = press(shown, key)

    assert shown == view


def test_the_table_keeps_to_filter_and_height() -> None:
    """Hidden pods are counted, not forgotten."""
    report = build_top(scenes.marked())

    filtered = render_top(report, view=TopView(pattern="train/"))
    short = render_top(report, rows=2)
    assert "infer/" not in filtered and "train/llama" in filtered
    assert "and 2 more" in short.splitlines()[2]


def test_hostile_names_do_not_reach_the_terminal() -> None:
    """Whatever a pod is called, a line stays a line."""
    report = build_top(scenes.marked())
    evil = msgspec.structs.replace(report.pods[0], name="a\x1b[2J\nb\u202e")
    screen = render_top(msgspec.structs.replace(report, pods=[evil]))

    assert "\x1b" not in screen and "\u202e" not in screen
    assert len(screen.splitlines()) == 4


@pytest.mark.parametrize("per_pod", [False, True])
def test_metrics_per_pod_are_asked_for(per_pod: bool) -> None:
    """Per namespace always, per pod by configuration; what is not known has no sample."""
    given = scenes.marked()
    network = msgspec.structs.replace(given.settings.network, pod_metrics=per_pod)
    settings = msgspec.structs.replace(given.settings, network=network)
    page = exposition(msgspec.structs.replace(given, settings=settings))[0].decode()

    where = 'direction="out",namespace="train"'
    assert f'nodeagent_namespace_traffic_bytes_total{{destination="internet",{where}}} 2.5e+08' in page
    assert ('pod="llama-0-worker-3"' in page) is per_pod
    assert 'destination="cluster",direction="out",namespace="infer"' not in page
    assert 'nodeagent_marks_mode{mode="class-and-mark"} 1.0' in page
    assert "nodeagent_marks_drift_repairs_total 3.0" in page
    assert 'nodeagent_pods_list_age_seconds{source="kubelet"} 4.0' in page


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (bit_rate(None), "-"), (bit_rate(0), "0 bit/s"), (bit_rate(9.7e9), "9.7 Gbit/s"),
        (bit_rate(999.4), "999 bit/s"), (bit_rate(4e16), "40000 Tbit/s"), (byte_size(None), "-"),
        (byte_size(1023), "1023 B"), (byte_size(212 * 1024), "212 KiB"), (byte_size(1536 << 30), "1.5 TiB"),
    ],
)  # fmt: skip
def test_numbers_have_units(made: str, text: str) -> None:
    """Decimal for rates, binary for sizes, a dash for the unknown."""
    assert made == text
