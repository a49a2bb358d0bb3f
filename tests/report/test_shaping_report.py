"""Shaping for people and scripts: golden screens, the modes of the status line, metrics, pending ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nodeagent.decide import network
from nodeagent.decide.limits import NamespaceShares, ShapeOptions
from nodeagent.decide.marks import MarkOptions
from nodeagent.report import net_schema
from nodeagent.report.given import ReportInput
from nodeagent.report.metrics import exposition
from nodeagent.report.net_status import network_status
from nodeagent.report.render_net import TopView, render_diff, render_network, render_show, render_top
from nodeagent.report.traffic import build_diff, build_show, build_top, find_pod
from nodeagent.signals import Snapshot
from nodeagent.traffic import PodList
from tests.decide.build import now
from tests.decide.mark_world import World, shaping_world
from tests.report import net_scenes
from tests.report.build import given, memory, readings

LIMIT, GUARANTEE = "nodeagent.io/internet-egress-limit", "nodeagent.io/internet-egress-guarantee"
ANNOTATIONS = {
    "llama-0-worker-3": {LIMIT: "100M", GUARANTEE: "60M"}, "rank-7d9f": {LIMIT: "10Mbit", GUARANTEE: "60M"},
    "proxy": {}, "prepare": {},
}  # fmt: skip
SHAPING = ShapeOptions(
    budget_bits_per_second=100_000_000, pod_limit_bits_per_second=80_000_000,
    namespaces={"kube-system": NamespaceShares(limit_bits_per_second=1_000_000)},
)


def world(**spoilt: Any) -> World:
    """Two shaped pods, 50 Mbit/s of one of them, guarantees that add up to more than the budget."""
    found = shaping_world(step_seconds=10.0)
    assert found.tc is not None
    for name, value in spoilt.items():
        setattr(found.tc, name, value)
    found.options = MarkOptions(shaping=SHAPING)
    pods = (msgspec.structs.replace(one, annotations=ANNOTATIONS[one.name]) for one in net_scenes.PODS)
    found.pods, found.links = PodList(source="kubelet", pods=tuple(pods)), net_scenes.LINKS
    found.settle()
    found.cycle()
    minors = {claim.name: claim.minor for claim in found.memory.marks.claims.values()}
    found.tc.send(minors["llama-0-worker-3"], 62_500_000, drops=7, overlimits=90, lends=1, borrows=3)
    found.cycle()
    return found


def scene(found: World) -> ReportInput:
    """The report's input of this world as it was last read."""
    settings = given().settings
    settings = msgspec.structs.replace(
        settings, network=msgspec.structs.replace(settings.network, internet_budget="100M")
    )
    board = {f"{key.signal.replace('.', '__')}": one.value for key, one in found.last_readings.items()}
    return given(
        board=readings(**board), settings=settings,
        remembered=memory(
            marks=found.memory.marks, traffic=found.memory.traffic, shape=found.memory.shape
        ),
    )  # fmt: skip


def show(found: World, name: str) -> str:
    """Text of `net show`."""
    shown = scene(found)
    uid = find_pod(shown, name)
    assert uid is not None
    return render_show(build_show(shown, uid))


SCREENS: dict[str, Callable[[], str]] = {
    "net-top-shaped": lambda: render_top(build_top(scene(world())), width=400),
    "net-show-shaped": lambda: show(world(), "train/llama-0-worker-3"),
    "net-show-refused": lambda: show(world(), "infer/rank-7d9f"),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screens_are_as_agreed(name: str, golden: Callable[[str, str], str]) -> None:
    """The whole text, letter by letter."""
    text = SCREENS[name]()
    assert text == golden(f"{name}.txt", text)


@pytest.mark.parametrize("width", [40, 80, 100, 120, 160])
def test_a_narrow_table_loses_columns_and_no_digits(width: int) -> None:
    """Every line fits, the limit stays where there is room for it, and what went is named."""
    report = build_top(scene(world()))
    lines, whole = render_top(report, width=width).splitlines(), render_top(report, width=400).splitlines()
    rows = [line.split("  ") for line in lines[:4]]

    assert max(map(len, lines[:5])) <= width
    assert all(cell.strip() in line for row, line in zip(rows, whole, strict=False) for cell in row)
    assert ("LIMIT" in lines[0]) == (width >= 80)
    assert lines[4].startswith("--once -v shows all; not here: IN TO")


@pytest.mark.parametrize("sort", ["in total", "out total", "in", "cluster out"])
def test_the_column_that_is_sorted_by_stays(sort: str) -> None:
    """However narrow it is, as long as the names leave room for one more."""
    text = render_top(build_top(scene(world())), view=TopView(sort=sort), width=80)

    assert sort.upper().replace("IN", "INTERNET IN", sort == "in") in text.splitlines()[0]


def test_the_reports_say_what_the_screens_say() -> None:
    """Limit, guarantee, rate, drops, borrowed share as numbers; null for a pod that is not shaped."""
    report = net_schema.decode_top(msgspec.json.encode(build_top(scene(world()))))
    pods = {pod.name: pod for pod in report.pods}
    shape = pods["llama-0-worker-3"].shape

    assert shape is not None
    assert (shape.limit_bits_per_second, shape.guarantee_bits_per_second) == (100_000_000, 60_000_000)
    assert (shape.limit_from, shape.rate_bits_per_second) == ("pod", 50_000_000)
    assert (shape.dropped_packets, shape.throttled_count, shape.borrowed_ratio) == (7, 90, 0.75)
    assert pods["proxy"].shape is None
    assert report.budget is not None
    assert report.budget.rate_bits_per_second == 50_000_000


@pytest.mark.parametrize(
    ("spoilt", "mode", "says"),
    [
        ({}, "shaping", "shaping to 100 Mbit/s, guarantees cut to 83%, 1 annotation refused"),
        ({"missing": ("no ifb: modprobe ifb",)}, "count-only", "count-only, nothing shaped: no ifb"),
        ({"blocked": {"eth0": "ingress is there"}}, "shaping", "not shaped: eth0"),
    ],
)
def test_the_status_line_names_the_mode(spoilt: dict[str, Any], mode: str, says: str) -> None:
    """Shaping, or why not, beside what is marked."""
    status = network_status(scene(world(**spoilt)))

    assert status.shaping == mode
    assert says in render_network(status)


def test_without_a_budget_nothing_is_said_of_shaping() -> None:
    """Status line, table and page are those of a node that only counts."""
    status = network_status(net_scenes.marked())

    assert (status.shaping, status.budget_bits_per_second) == ("off", None)
    assert "shap" not in render_network(status)
    assert "LIMIT" not in render_top(build_top(net_scenes.marked()))


def test_metrics_tell_of_budget_drops_and_refusals() -> None:
    """Per namespace, never per pod."""
    page = exposition(scene(world()))[0].decode()

    for line in (
        'nodeagent_shaping_mode{mode="shaping"} 1.0', "nodeagent_shaping_budget_bits_per_second 1e+08",
        'nodeagent_shaping_sent_bytes_total{namespace="train"} 6.25e+07',
        'nodeagent_shaping_dropped_packets_total{namespace="train"} 7.0',
        "nodeagent_shaping_annotations_bad 1.0", "nodeagent_shaping_annotations_rejected_total 1.0",
    ):  # fmt: skip
        assert line in page


def test_what_is_pending_is_shown_with_the_marks_in_one_order() -> None:
    """A tree that is not there yet, as a dry run leaves it: device, HTB, classes, filter, then sets."""
    found = shaping_world()
    found.pods, found.links = net_scenes.PODLIST, net_scenes.LINKS
    found.cycle(cut=0)
    text = render_diff(build_diff(scene(found), found.options), verbose=True)
    lines = [line for line in text.splitlines() if not line.startswith(" ")]

    assert lines[:2] == ["+ tc device nodeagent0", "+ tc HTB on nodeagent0"]
    assert "guarantee 1 Gbit/s, limit 1 Gbit/s" in text
    assert lines.index("+ tc filter on eth0") < lines.index("+ IPv4 set nodeagent-cluster4: hash:net")
    found.settle()
    assert build_diff(scene(found), found.options).ops == []


def test_a_refusal_is_an_event_of_the_cycle() -> None:
    """Told once, with pod, value and what would be right."""
    found = world()
    before = msgspec.structs.replace(
        found.memory, shape=msgspec.structs.replace(found.memory.shape, bad=())
    )
    snapshot = Snapshot(now=now(found.seconds), node_name="a", readings=found.last_readings)
    after, _ = network.step(found.options, snapshot, before)
    told = network.notices(before, after)

    assert [notice.event for notice in told] == ["annotation_rejected"]
    assert told[0].fields["value"] == "'10Mbit'"
    assert "no unit after k, M or G" in told[0].fields["reason"]


def test_the_backlog_is_the_kernels() -> None:
    """Bytes that wait now, as last read."""
    found = world()
    assert found.tc is not None
    minors = {claim.name: claim.minor for claim in found.memory.marks.claims.values()}
    minor = minors["llama-0-worker-3"]
    found.tc.counters[minor] = msgspec.structs.replace(found.tc.counters[minor], backlog_bytes=4096)
    found.cycle()
    pods = {pod.name: pod.shape for pod in build_top(scene(found)).pods}

    assert pods["llama-0-worker-3"] is not None
    assert pods["llama-0-worker-3"].backlog_bytes == 4096
