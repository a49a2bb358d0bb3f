"""`nodeagent explain WHAT`: what a check or an Xid means for this node, from the package and, if it
answers, the daemon. It works with the daemon dead and the configuration broken: that is when it is needed.
"""

from __future__ import annotations

import argparse
import re
import shlex

import msgspec

from nodeagent.cli_common import OK, USAGE, CliError, ask, complain, out, out_json
from nodeagent.cli_page import FIRST_COMMANDS, Page, load_page
from nodeagent.cli_record import Record, check_record, xid_record
from nodeagent.client import Unreachable
from nodeagent.config import Loaded, load
from nodeagent.config.values import nearest
from nodeagent.decide.registry import registry
from nodeagent.errors import ConfigError
from nodeagent.model import NODE, State
from nodeagent.report.render import clean, duration
from nodeagent.report.schema import CheckStatus, StatusReport, XidStatus, decode_status, in_force
from nodeagent.report.text import targets_label
from nodeagent.settings import Settings
from nodeagent.xid_data import load_xid_table

_NUMBER = re.compile(r"(?:(xid|sxid)[ ._:-]*)?([0-9]{1,6})", re.ASCII)
LABEL_WIDTH = 11


def explain(args: argparse.Namespace) -> int:
    """Print record, evidence now and the page's first screen. Raises CliError(64) for an unknown WHAT."""
    loaded = _loaded(args)
    record = find(" ".join(args.what), loaded)
    page = load_page(record.check_id)
    status, silence = _status(args)
    rows, xids = _evidence(record, status)
    if args.json:
        out_json(
            "explain", **record.as_json(), page=None if page is None else page.text,
            daemon="" if status is not None else silence,
            now=None if status is None else msgspec.to_builtins([*rows, *xids]),
        )
        return OK
    lines = [clean(f"{record.name}: {record.title}")]
    lines += [_labelled(label, text) for label, text in record.facts]
    lines += ["", *_now(record, status, silence, rows, xids)]
    lines += ["", *_page(record, page, _names(rows, xids), verbose=args.verbose)]
    out("\n".join(lines) + "\n")
    return OK


def find(what: str, loaded: Loaded) -> Record:
    """The record of a check id, `xid 79`, `79`, `xid.79` or `sxid 12028`. Raises CliError(64)."""
    words = " ".join(what.lower().split())
    checks = registry()
    if words in checks:
        return check_record(checks[words], loaded)
    number = _NUMBER.fullmatch(words)
    if number:
        return xid_record(number[1] or "", int(number[2]), loaded, checks, load_xid_table())
    shown = "".join(c if c.isprintable() else "?" for c in what)[:80]
    hint = nearest(words, checks)
    numbers = "numbers: nodeagent explain xid 79, sxid 12028"
    raise CliError(USAGE, f"nothing known of {shown}; {hint}", numbers)


def _loaded(args: argparse.Namespace) -> Loaded:
    """The configuration in force; defaults, and a word about it, where it cannot be used."""
    try:
        return load(args.config, registry())
    except ConfigError as error:
        complain(f"the configuration cannot be used, defaults are shown: {error.problems[0]}")
        return Loaded(settings=Settings(), sources={}, files=())


def _status(args: argparse.Namespace) -> tuple[StatusReport | None, str]:
    """The daemon's status, or None and why there is none."""
    try:
        return decode_status(ask(args, "GET", "/v1/status", timeout_seconds=5.0)), ""
    except Unreachable as error:
        return None, error.detail
    except (CliError, msgspec.MsgspecError) as error:
        return None, str(error)


def _evidence(record: Record, status: StatusReport | None) -> tuple[list[CheckStatus], list[XidStatus]]:
    if status is None:
        return [], []
    if record.number is None:
        rows = [row for row in status.rows if row.id == record.check_id]
        kind = {"xid": "xid", "nvswitch.sxid": "sxid"}.get(record.check_id)
        return rows, [xid for xid in status.xids if xid.kind == kind]
    return [], [xid for xid in status.xids if (xid.kind, xid.number) == (record.kind, record.number)]


# --------------------------------------------------------------------------- text


def _labelled(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{clean(text)}"


def _now(
    record: Record,
    status: StatusReport | None,
    silence: str,
    rows: list[CheckStatus],
    xids: list[XidStatus],
) -> list[str]:
    if status is None:
        return [_labelled("Now", f"not known: the agent does not answer ({silence})")]
    lines = [_row_line(alike) for alike in _folded(rows)] + [_xid_line(xid) for xid in xids]
    if not lines:
        seen = "not seen on this node" if record.number is not None else "no row: disabled, or not read yet"
        return [_labelled("Now", seen)]
    return [_labelled("Now" if index == 0 else "", line) for index, line in enumerate(lines)]


def _folded(rows: list[CheckStatus]) -> list[list[CheckStatus]]:
    """Rows that differ in nothing but their target stand together."""
    alike: dict[str, list[CheckStatus]] = {}
    for row in rows:
        key = repr((in_force(row), row.sentence, row.value, row.limit, row.held, row.since))
        alike.setdefault(key, []).append(row)
    return list(alike.values())


def _row_line(alike: list[CheckStatus]) -> str:
    row = alike[0]
    words = [in_force(row).value.replace("not_applicable", "n/a"), targets_label(alike)]
    if row.sentence:
        words.append(row.sentence)
    elif isinstance(row.value, str) and row.value:
        words.append(f"{row.value}, limit {row.limit}" if row.limit else row.value)
    if row.held:
        words.append(f"{row.held} polls")
    since = "" if row.age_seconds is None else f" (since {duration(row.age_seconds)})"
    return ", ".join(words) + since


def _xid_line(xid: XidStatus) -> str:
    stands = f"stands, class {xid.node_class.value}"
    state = stands if xid.cleared is None else f"cleared: {xid.cleared_by}"
    times = f"{xid.count} times" if xid.count != 1 else "once"
    last = f"last {duration(xid.age_seconds)} ago"
    head = f"{xid.kind} {xid.number} on {xid.target_label}, {times}, {last}, {state}"
    return f"{head}. {xid.text}" if xid.text else head


def _names(rows: list[CheckStatus], xids: list[XidStatus]) -> dict[str, list[str]]:
    """What stands for `GPU` and `MOUNT` in the page's commands: the targets in trouble, worst first."""
    quiet = (State.OK, State.NOT_APPLICABLE, State.MUTED)
    troubled = [row.target for row in rows if in_force(row) not in quiet]
    troubled += [xid.target for xid in xids if xid.cleared is None]
    found: dict[str, list[str]] = {"GPU": [], "MOUNT": []}
    for target in dict.fromkeys(troubled):
        if target != NODE:
            found["MOUNT" if target.startswith("/") else "GPU"].append(shlex.quote(target))
    return found


def _with_names(commands: list[str], names: dict[str, list[str]]) -> list[str]:
    """The commands after a line for each variable in them, so that they can be pasted as they stand."""
    lines = []
    for name, targets in names.items():
        if any(f"${name}" in command for command in commands):
            others = f"    # or {', '.join(targets[1:])}" if len(targets) > 1 else ""
            lines.append(f"{name}={targets[0]}{others}" if targets else f"{name}=...    # {_ASK[name]}")
    return [clean(line) for line in lines] + commands


_ASK = {"GPU": "its PCI address, from nodeagent status", "MOUNT": "the mount point, from nodeagent status"}


def _page(record: Record, page: Page | None, names: dict[str, list[str]], *, verbose: bool) -> list[str]:
    if page is None:
        return [_labelled("Page", "none in this version")]
    if verbose:
        return [page.text.rstrip("\n")]
    lines: list[str] = []
    for name in ("meaning", "impact"):
        if name in page.sections and record.number is None:  # of a number the record has said more
            text = page.sections[name].splitlines()
            lines += [name.capitalize(), *(f"  {line}".rstrip() for line in text), ""]
    commands = [line for line in page.commands if not line.startswith("nodeagent explain")]
    if commands:
        shown = _with_names(commands[:FIRST_COMMANDS], names)
        lines += ["First commands", *(f"  {line}" for line in shown), ""]
    return [*lines, f"Whole page: nodeagent explain {record.what} -v"]
