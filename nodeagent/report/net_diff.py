"""The kernel ops of a plan as lines for a person: what comes (+), goes (-) or changes (~).

Works on ops alone, beside what was read back, so that it shows exactly what the executor would be given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nodeagent.model import Op
from nodeagent.quantity import shown_rate
from nodeagent.report.net_schema import DiffOp
from nodeagent.traffic import MarkReading, MarkState, class_id

NOTHING_READ = MarkState(family=0)
Said = tuple[str, str, list[str]]
"""Sign, text, details."""


def diff_ops(ops: Sequence[Op], reading: MarkReading) -> list[DiffOp]:
    """One line for each op, in the order in which they would run."""
    states = {state.family: state for state in reading.states}
    lines = []
    for op in ops:
        if op.kind in _SHAPE_WORDS:
            lines.append(_shape_line(op))
            continue
        family = int(op.arguments["family"])
        sign, text, details = _WORDS[op.kind](op, states.get(family, NOTHING_READ))
        lines.append(
            DiffOp(
                sign=sign, kind=op.kind, target=op.target, family=family, text=f"IPv{family} {text}",
                details=details,
            )
        )
    return lines


def _shape_line(op: Op) -> DiffOp:
    """An op on tc, which serves both families."""
    sign, text = _SHAPE_WORDS[op.kind]
    details = []
    if op.kind == "class.put":
        rate, ceil = (op.arguments[f"{name}_bytes_per_second"] * 8 for name in ("rate", "ceil"))
        details = [f"guarantee {shown_rate(rate)}, limit {shown_rate(ceil)}"]
    said = f"{text} {op.target}"
    return DiffOp(sign=sign, kind=op.kind, target=op.target, family=0, text=said, details=details)


def _create_set(op: Op, _: MarkState) -> Said:
    features = [name for name in ("counters", "comment", "skbinfo") if op.arguments[name]]
    return "+", " ".join([f"set {op.target}:", op.arguments["kind"], *features]), []


def _destroy_set(op: Op, _: MarkState) -> Said:
    return "-", f"set {op.target}", []


def _cluster(op: Op, _: MarkState) -> Said:
    add, delete = op.arguments["add"], op.arguments["delete"]
    counts = [f"{len(add)} added"] * bool(add) + [f"{len(delete)} deleted"] * bool(delete)
    sign = "~" if add and delete else "+" if add else "-"
    details = [*(f"+ {prefix}" for prefix in add), *(f"- {prefix}" for prefix in delete)]
    return sign, f"set {op.target}: prefixes {', '.join(counts)}", details


def _delete_entries(op: Op, _: MarkState) -> Said:
    addresses = op.arguments["addresses"]
    return "-", f"entries of {_some(addresses)}", list(addresses)


def _put_entries(op: Op, state: MarkState) -> Said:
    entries: list[dict[str, Any]] = op.arguments["entries"]
    there = {entry.address for entry in state.pods}
    sign = "~" if any(entry["address"] in there for entry in entries) else "+"
    return sign, f"entries of {_some([e['address'] for e in entries])}", [_entry(e) for e in entries]


def _entry(entry: dict[str, Any]) -> str:
    mark = f" mark {entry['mark']:#010x}" if entry["mark"] else ""
    fresh = ", counters anew" if entry["fresh"] else ""
    return f"{entry['address']} class {class_id(entry['minor'])}{mark} {entry['comment']}{fresh}"


def _put_chain(op: Op, state: MarkState) -> Said:
    rules = op.arguments["rules"]
    sign = "~" if op.target in state.chains else "+"
    return sign, f"chain {op.target}: {_count(len(rules), 'rule')}", list(rules)


def _delete_chain(op: Op, _: MarkState) -> Said:
    return "-", f"chain {op.target}", []


def _put_jumps(op: Op, state: MarkState) -> Said:
    rules = op.arguments["rules"]
    there = any(jump.chain == op.target for jump in state.jumps)
    sign = "-" if not rules else "~" if there else "+"
    return sign, f"jumps in {op.target}: {_count(len(rules), 'jump')} first", list(rules)


def _put_host_pods(op: Op, _: MarkState) -> Said:
    add, delete = op.arguments["add"], op.arguments["delete"]
    sign = "~" if add and delete else "+" if add else "-"
    details = [*(f"+ {rule}" for rule in add), *(f"- {rule}" for rule in delete)]
    return sign, f"chain {op.target}: {_count(len(details), 'hostNetwork line')}", details


def _some(addresses: Sequence[str]) -> str:
    shown = ", ".join(addresses[:3])
    return shown if len(addresses) <= 3 else f"{shown} and {len(addresses) - 3} more"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


_SHAPE_WORDS = {
    "shape.ifb": ("+", "tc device"), "shape.htb": ("+", "tc HTB on"), "class.put": ("~", "tc class"),
    "class.delete": ("-", "tc class"), "filter.put": ("+", "tc filter on"),
    "filter.delete": ("-", "tc filter on"), "ifb.delete": ("-", "tc device"),
}  # fmt: skip
_WORDS: dict[str, Callable[[Op, MarkState], Said]] = {
    "set.create": _create_set,
    "set.cluster": _cluster,
    "set.destroy": _destroy_set,
    "entries.delete": _delete_entries,
    "entries.put": _put_entries,
    "chain.put": _put_chain,
    "chain.delete": _delete_chain,
    "host_pods.put": _put_host_pods,
    "jumps.put": _put_jumps,
}
