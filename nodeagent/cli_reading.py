"""`nodeagent status`, `check` and `history`: the daemon's own reports, as text or as they came."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, TypeVar

from nodeagent.cli_common import (
    OK,
    USAGE,
    CliError,
    as_unreachable,
    ask,
    complain,
    look,
    no_answer_code,
    out,
    with_settings,
)
from nodeagent.client import Cause, Unreachable

CHECK_SECONDS = 40.0
"""The daemon gives a fresh read 10 s and the cycle after it 10 s."""

_Report = TypeVar("_Report")


def status(args: argparse.Namespace) -> int:
    """Print the node's state; the exit code is its verdict. Raises CliError."""
    from nodeagent.report import render, schema  # noqa: PLC0415  loaded late: a quick start

    body = _asked(args, "GET", "/v1/status")
    report = _decoded(args, body, schema.decode_status)
    out(_raw(body) if args.json else render.render_status(report, **look(args)))
    return report.exit_code


def history(args: argparse.Namespace) -> int:
    """Print the changes of state. Raises CliError."""
    from nodeagent.report import render, schema  # noqa: PLC0415  loaded late: a quick start

    query = "" if args.since is None else f"?since_seconds={args.since:.0f}"
    body = _asked(args, "GET", f"/v1/history{query}")
    report = _decoded(args, body, schema.decode_history)
    out(_raw(body) if args.json else render.render_history(report, **look(args)))
    return OK


def check(args: argparse.Namespace) -> int:
    """Read now, by the daemon or without it; the exit code is the worst of the rows. Raises CliError."""
    import json  # noqa: PLC0415  loaded late: a quick start

    from nodeagent.decide.registry import registry  # noqa: PLC0415  loaded late: a quick start
    from nodeagent.report import render, schema  # noqa: PLC0415  loaded late: a quick start

    require_known(args.ids, list(registry()))
    if args.ids == ["network.kernel"]:
        args.verbose = True  # it is asked for feature by feature
    if args.ids == ["network.kernel"] and os.geteuid() == 0:
        body = schema.encode(_check_without_daemon(args))  # root may try out what the confined daemon may not
    else:
        body = _checked(args, json.dumps({"ids": args.ids}).encode())
    report = _decoded(args, body, schema.decode_check)
    out(_raw(body) if args.json else render.render_check(report, **look(args)))
    return report.exit_code


def _checked(args: argparse.Namespace, request: bytes) -> bytes:
    """The daemon's rows, or this command's own where no daemon answers."""
    from nodeagent.report import schema  # noqa: PLC0415  loaded late: a quick start

    try:
        return ask(args, "POST", "/v1/check", request, timeout_seconds=CHECK_SECONDS)
    except Unreachable as error:
        if error.cause not in (Cause.MISSING, Cause.REFUSED):
            raise as_unreachable(args, error) from None
        complain("no agent answers; this command reads by itself, once, without holds")
        return schema.encode(_check_without_daemon(args))


def _check_without_daemon(args: argparse.Namespace) -> Any:
    from nodeagent import once  # noqa: PLC0415  loaded late: a quick start

    return with_settings(args, lambda settings: once.check_once(settings, tuple(args.ids)))


def require_known(ids: list[str], known: list[str]) -> None:
    """Raise CliError(64) for the first id that is no check, with the nearest one."""
    from nodeagent.config.values import nearest  # noqa: PLC0415  loaded late: a quick start

    for check_id in ids:
        if check_id not in known:
            shown = "".join(c if c.isprintable() else "?" for c in check_id)[:80]
            raise CliError(USAGE, f"no check {shown}; {nearest(check_id, known)}")


def _asked(args: argparse.Namespace, method: str, target: str) -> bytes:
    try:
        return ask(args, method, target)
    except Unreachable as error:
        raise as_unreachable(args, error) from None


def _decoded(args: argparse.Namespace, body: bytes, decode: Callable[[bytes], _Report]) -> _Report:
    import msgspec  # noqa: PLC0415  loaded late: a quick start

    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        sentence = f"the agent's answer is not what this version reads: {error}"
        more = "try:  nodeagent version, and restart the agent"
        raise CliError(no_answer_code(args), sentence, more) from None


def _raw(body: bytes) -> str:
    return body.decode("utf-8", "replace").rstrip("\n") + "\n"
