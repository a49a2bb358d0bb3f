"""Pods' traffic for a person at a terminal: tables without borders, `-` where a number is not known.

Works from the JSON reports alone. A rate is taken between two reports, over the time between the kernel
readings that they are from; never from one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.report import render_shape
from nodeagent.report.columns import aligned, fitted
from nodeagent.report.net_schema import (
    NetDiffReport,
    NetShowReport,
    NetTopReport,
    NetworkStatus,
    ShapeStatus,
    TrafficBytes,
)
from nodeagent.report.text import clean, counted, cut, duration

__all__ = ["TopView", "press", "render_diff", "render_network", "render_show", "render_top"]

SORTS = ("out", "in", "out total", "in total", "cluster out", "name")
ESCAPE, ENTER, BACKSPACE = "\x1b", "\r\n", "\x7f\b"
MAX_FILTER = 64
_COLUMNS = ("INTERNET OUT", "INTERNET IN", "OUT TOTAL", "IN TOTAL", "CLUSTER OUT", "CLUSTER IN")
_INTERNET = ("internet_out_bytes", "internet_in_bytes")
_CLUSTER = ("cluster_out_bytes", "cluster_in_bytes")
_FIRST_TO_GO = (
    "IN TOTAL", "OUT TOTAL", "CLASS", "VETH", "THROTTLED", "SENT", "BACKLOG", "BORROWED", "CLUSTER IN",
    "DROPS", "INTERNET IN", "GUARANTEE", "CLUSTER OUT", "LIMIT",
)  # fmt: skip
"""Columns that a narrow terminal does without, the first one first; never the one that is sorted by."""
_SORTED_BY = {
    "in": "INTERNET IN", "out total": "OUT TOTAL", "in total": "IN TOTAL", "cluster out": "CLUSTER OUT",
}  # fmt: skip
NAME_WIDTH = 44


class TopView(Struct, frozen=True, kw_only=True):
    """What a person asked to see."""

    sort: str = "out"
    pattern: str = ""
    """Part of `namespace/name`; "" for all."""
    typing: bool = False
    """Keys go to the pattern."""
    by_namespace: bool = False
    ended: bool = False


def press(view: TopView, key: str) -> TopView:
    """The view after one key: s sort, / filter, q quit; while typing Enter ends it and Escape clears it."""
    def changed(**more: object) -> TopView:
        fields = {name: getattr(view, name) for name in view.__struct_fields__}
        return TopView(**{**fields, **more})

    if view.typing:
        if key in ENTER:
            return changed(typing=False)
        if key == ESCAPE:
            return changed(typing=False, pattern="")
        if key in BACKSPACE:
            return changed(pattern=view.pattern[:-1])
        return changed(pattern=(view.pattern + key)[:MAX_FILTER]) if key.isprintable() else view
    if key == "s":
        return changed(sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)])
    if key == "/":
        return changed(typing=True, pattern="")
    return changed(ended=True) if key in "qQ\x03\x04" else view


# --------------------------------------------------------------------------- top


class _Line(Struct, frozen=True, kw_only=True):
    key: str
    name: str
    facts: tuple[str, ...]
    traffic: TrafficBytes
    shape: ShapeStatus | None = None
    rates: tuple[float | None, ...]
    """Bits per second: internet out, in, cluster out, in."""


def render_top(
    report: NetTopReport, before: NetTopReport | None = None, *, view: TopView | None = None,
    width: int = 120, rows: int | None = None, verbose: bool = False,
) -> str:
    """The table of `nodeagent net top`; rates against `before`, at most `rows` lines of pods."""
    view = view or TopView()
    lines = _namespace_lines(report, before) if view.by_namespace else _pod_lines(report, before)
    shown = [line for line in lines if view.pattern in line.name]
    shown.sort(key=lambda line: _order(line, view.sort))
    hidden = 0
    if rows is not None and len(shown) > rows:
        hidden, shown = len(shown) - rows + 1, shown[: max(0, rows - 1)]
    facts = ("PODS",) if view.by_namespace else ("VETH", "CLASS")
    is_shaped = report.budget is not None and not view.by_namespace
    more = render_shape.COLUMNS if is_shaped else ()
    table = [("NAMESPACE" if view.by_namespace else "POD", *facts, _COLUMNS[0], *more, *_COLUMNS[1:])]
    table += [_cells(line, verbose, is_shaped=is_shaped) for line in shown]
    first_to_go = [heading for heading in _FIRST_TO_GO if heading != _SORTED_BY.get(view.sort)]
    table, gone = fitted(table, width, first_to_go)
    left = 1 + len(set(facts) - set(gone))
    text = [line[:width] for line in aligned(table, left)]
    text += [f"and {hidden} more"] * bool(hidden)
    text += [cut(f"--once -v shows all; not here: {', '.join(gone)}", width)] * bool(gone)
    text += _total_lines(report, before)
    text += render_shape.budget_line(report.budget, report.unknown_senders, bit_rate, byte_size)
    text += [cut(line, width) for line in _caveats(report.network)]
    return "".join(f"{clean(line).rstrip()}\n" for line in text)


def _pod_lines(report: NetTopReport, before: NetTopReport | None) -> list[_Line]:
    known = {pod.uid: pod.traffic for pod in before.pods} if before is not None else {}
    return [
        _Line(
            key=pod.uid, name=f"{pod.namespace}/{pod.name}", traffic=pod.traffic, shape=pod.shape,
            facts=("host" if pod.host_network else pod.veth or "-", pod.class_id or "-"),
            rates=_rates(report, before, pod.traffic, known.get(pod.uid)),
        )
        for pod in report.pods
    ]


def _namespace_lines(report: NetTopReport, before: NetTopReport | None) -> list[_Line]:
    known = {each.namespace: each.traffic for each in before.namespaces} if before is not None else {}
    return [
        _Line(
            key=each.namespace, name=each.namespace, traffic=each.traffic, facts=(str(each.pods),),
            rates=_rates(report, before, each.traffic, known.get(each.namespace)),
        )
        for each in report.namespaces
    ]


def _rates(
    report: NetTopReport, before: NetTopReport | None, now: TrafficBytes, then: TrafficBytes | None
) -> tuple[float | None, ...]:
    if before is None or then is None:
        return (None,) * 4
    internet = _elapsed(report.marks_read_seconds, before.marks_read_seconds)
    cluster = _elapsed(report.links_read_seconds, before.links_read_seconds)
    return (
        *(_rate(getattr(now, name), getattr(then, name), internet) for name in _INTERNET),
        *(_rate(getattr(now, name), getattr(then, name), cluster) for name in _CLUSTER),
    )


def _elapsed(now_seconds: float | None, then_seconds: float | None) -> float | None:
    if now_seconds is None or then_seconds is None or now_seconds <= then_seconds:
        return None
    return now_seconds - then_seconds


def _rate(now: int | None, then: int | None, elapsed_seconds: float | None) -> float | None:
    if now is None or then is None or elapsed_seconds is None or now < then:
        return None
    return (now - then) * 8 / elapsed_seconds


def _order(line: _Line, sort: str) -> tuple[float, str]:
    """Greatest first, then by name; what is not known comes last."""
    traffic = line.traffic
    amounts: dict[str, float | None] = {
        "out": line.rates[0], "in": line.rates[1], "out total": traffic.internet_out_bytes,
        "in total": traffic.internet_in_bytes, "cluster out": line.rates[2], "name": 0.0,
    }  # fmt: skip
    amount = amounts[sort]
    return (1.0 if amount is None else -amount, line.name)


def _cells(line: _Line, verbose: bool, *, is_shaped: bool) -> tuple[str, ...]:
    out, received, cluster_out, cluster_in = map(bit_rate, line.rates)
    totals = (byte_size(line.traffic.internet_out_bytes), byte_size(line.traffic.internet_in_bytes))
    name = line.name if verbose else cut(line.name, NAME_WIDTH)
    shape = render_shape.cells(line.shape, bit_rate, byte_size) if is_shaped else ()
    return (name, *line.facts, out, *shape, received, *totals, cluster_out, cluster_in)


def _total_lines(report: NetTopReport, before: NetTopReport | None) -> list[str]:
    then = before.node_total if before is not None else None
    out, received, *_ = map(bit_rate, _rates(report, before, report.node_total, then))
    uplinks = ", ".join(report.uplinks) or "no uplink"
    sums = byte_size(report.node_total.internet_out_bytes), byte_size(report.node_total.internet_in_bytes)
    host = byte_size(report.host.internet_out_bytes), byte_size(report.host.internet_in_bytes)
    return [
        f"{counted(len(report.pods), 'pod')}, {uplinks}: internet {out} out, {received} in",
        f"since boot {sums[0]} out, {sums[1]} in; of it the host {host[0]} out, {host[1]} in",
    ]


def _caveats(status: NetworkStatus) -> list[str]:
    """What makes the table less than the whole truth."""
    if status.mode in ("off", "waiting"):
        return [f"Network is {status.mode}: {status.reason}"]
    lines = [f"Kernel not read: {status.unread}"] if status.unread else []
    if status.pods_error:
        lines.append(f"Pods are as of {duration(status.pods_age_seconds)} ago: {status.pods_error}")
    return lines


# --------------------------------------------------------------------------- show, diff, status line


def render_show(report: NetShowReport) -> str:
    """Text of `nodeagent net show POD`."""
    phase = "gone" if report.phase is None else report.phase
    lines = [f"{report.namespace}/{report.name}  {phase}{', hostNetwork' if report.host_network else ''}"]
    lines.append(f"Uid       {report.uid}")
    lines.append(f"Class     {report.wanted_class_id or 'none'}")
    if report.addresses:
        table = [("ADDRESS", "CLASS", "MARK", "VETH", "INTERNET OUT", "INTERNET IN")]
        table += [
            (
                each.address, each.class_id or "no entry", each.mark or "-", each.veth or "-",
                exact_bytes(each.internet_out_bytes), exact_bytes(each.internet_in_bytes),
            )
            for each in report.addresses
        ]
        lines += ["", *aligned(table, 4), ""]
    for label, first, second in (
        ("Internet", report.traffic.internet_out_bytes, report.traffic.internet_in_bytes),
        ("Cluster", report.traffic.cluster_out_bytes, report.traffic.cluster_in_bytes),
    ):
        lines.append(f"{label:<10}{exact_bytes(first)} out, {exact_bytes(second)} in since boot")
    lines += render_shape.show_lines(report.shape, bit_rate, byte_size)
    lines += [f"Note      {note}" for note in report.notes]
    lines += _caveats(report.network)
    return "".join(f"{clean(line).rstrip()}\n" for line in lines)


def render_diff(report: NetDiffReport, *, verbose: bool = False) -> str:
    """Text of `nodeagent net diff`: one op a line, its parts below it when `verbose`."""
    if not report.known:
        return f"not known yet: {clean(report.network.reason or report.network.unread)}\n"
    if report.network.mode == "off":
        return f"nothing is wanted: {clean(report.network.reason)}\n"
    if not report.ops:
        return "nothing pending: the kernel holds what is wanted\n"
    lines: list[str] = []
    for op in report.ops:
        lines.append(f"{op.sign} {op.text}")
        lines += [f"      {detail}" for detail in op.details] if verbose else []
    if report.network.dry_run:
        lines.append("dry run: none of it is written")
    return "".join(f"{clean(line)}\n" for line in lines)


def render_network(status: NetworkStatus) -> str:
    """The network's line in `nodeagent status`."""
    if status.mode == "off":
        return f"off: {status.reason}"
    if status.mode == "waiting":
        return f"nothing marked, waiting {status.reason}"
    number = counted(status.marked_pods, "pod")
    if status.marked_pods < status.wanted_pods:
        number = f"{status.marked_pods} of {counted(status.wanted_pods, 'pod')}"
    parts = [f"{number} marked", *(["class-only"] if status.mode == "class-only" else [])]
    parts += render_shape.status_words(status, bit_rate)
    drifted = f"{counted(status.drifted_parts, 'part')} changed by others"
    parts.append(drifted if status.drifted_parts else "no drift")
    parts.append("kernel not read" if status.unread else f"read {duration(status.read_age_seconds)} ago")
    text = ", ".join(parts)
    if status.dry_run:
        text = f"dry run, nothing is written: {text}"
    outside = status.outside_addresses
    noun = "address" if outside == 1 else "addresses"
    more = [f"{outside} {noun} outside the cluster prefixes"] * bool(outside)
    more += [f"kernel not read: {status.unread}"] if status.unread else []
    if status.pods_error:
        more.append(f"pods as of {duration(status.pods_age_seconds)} ago: {status.pods_error}")
    more += [f"{counted(status.pods_skipped, 'pod')} not understood"] * bool(status.pods_skipped)
    return "; ".join([text, *more])


# --------------------------------------------------------------------------- numbers


def bit_rate(bits_per_second: float | None) -> str:
    """`9.7 Gbit/s`, decimal as rates are; `-` when it is not known."""
    return _scaled(bits_per_second, 1000, ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"))


def byte_size(number: float | None) -> str:
    """`212 KiB`; `-` when it is not known."""
    return _scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def exact_bytes(number: int | None) -> str:
    """`1,234,567 bytes (1.2 MiB)`; `not known`."""
    if number is None:
        return "not known"
    return f"{number:,} bytes" + (f" ({byte_size(number)})" if number >= 1024 else "")


def _scaled(number: float | None, step: int, units: Sequence[str]) -> str:
    if number is None:
        return "-"
    index, amount = 0, float(number)
    while amount >= step and index < len(units) - 1:
        index, amount = index + 1, amount / step
    digits = 1 if index and round(amount, 1) < 100 else 0
    return f"{amount:.{digits}f} {units[index]}"
