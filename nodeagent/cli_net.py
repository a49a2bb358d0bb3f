"""`nodeagent net top|show|diff|cleanup`: pods' traffic as it is counted, and the way out.

`diff` and `cleanup` work without a daemon: the one then reads by itself, the other needs nobody.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from nodeagent.cli_common import (
    DENIED,
    OK,
    UNREACHABLE,
    CliError,
    as_unreachable,
    ask,
    complain,
    one_line,
    out,
    out_json,
    socket_path,
    with_settings,
)
from nodeagent.client import Cause, Unreachable

ANSWER_SECONDS = 15.0
"""The daemon reads first, which may wait for a lock of iptables."""
_Report = TypeVar("_Report")


def net(args: argparse.Namespace) -> int:
    """Run one verb. Raises CliError."""
    return _VERBS[args.verb](args)


def _top(args: argparse.Namespace) -> int:
    from nodeagent import cli_net_top  # noqa: PLC0415  loaded late: a quick start
    from nodeagent.report import net_schema  # noqa: PLC0415  loaded late: a quick start

    def fetch() -> net_schema.NetTopReport:
        return decoded(asked(args, "/v1/net/top"), net_schema.decode_top)

    if args.json:
        out(_raw(asked(args, "/v1/net/top")))
        return OK
    return cli_net_top.top(fetch, once=args.once, by_namespace=args.namespaces, verbose=args.verbose)


def _show(args: argparse.Namespace) -> int:
    from nodeagent.report import net_schema, render_net  # noqa: PLC0415  loaded late: a quick start

    body = asked(args, f"/v1/net/show?pod={quote(args.pod[:400], safe='/', errors='replace')}")
    out(_raw(body) if args.json else render_net.render_show(decoded(body, net_schema.decode_show)))
    return OK


def _diff(args: argparse.Namespace) -> int:
    from nodeagent.report import net_schema, render_net, schema  # noqa: PLC0415  loaded late: a quick start

    try:
        body = ask(args, "GET", "/v1/net/diff", timeout_seconds=ANSWER_SECONDS)
    except Unreachable as error:
        if error.cause not in (Cause.MISSING, Cause.REFUSED):
            raise as_unreachable(args, error) from None
        complain("no agent answers; this command reads by itself")
        body = schema.encode(_diff_without_daemon(args))
    report = decoded(body, net_schema.decode_diff)
    out(_raw(body) if args.json else render_net.render_diff(report, verbose=args.verbose))
    return report.exit_code


def _diff_without_daemon(args: argparse.Namespace) -> Any:
    from nodeagent import net_once  # noqa: PLC0415  loaded late: a quick start

    return with_settings(args, net_once.diff_once)


def _cleanup(args: argparse.Namespace) -> int:
    from nodeagent import net_cleanup  # noqa: PLC0415  loaded late: a quick start
    from nodeagent.errors import DriverError, ErrorKind  # noqa: PLC0415  loaded late: a quick start

    try:
        done = net_cleanup.cleanup(socket_path(args), dry_run=args.dry_run, force=args.yes)
    except DriverError as error:
        if error.kind is ErrorKind.BUSY:
            more = "stop it first (systemctl stop nodeagent): it would write everything again; or say --yes"
            raise CliError(UNREACHABLE, one_line(error.detail), more) from None
        code = DENIED if error.kind is ErrorKind.DENIED else UNREACHABLE
        raise CliError(code, one_line(str(error)), *_as_root(code)) from None
    if args.json:
        out_json("net-cleanup", dry_run=args.dry_run, removed=done.removed, failed=done.failed)
    else:
        verb = "would be removed" if args.dry_run else "removed"
        total = f"{verb}: {len(done.removed)}" if done.removed else "nothing of ours is there"
        out("".join(f"{one_line(line)}\n" for line in (*done.removed, total)))
    if done.failed:
        code = DENIED if done.denied else UNREACHABLE
        raise CliError(code, f"{len(done.failed)} could not be removed:", *map(one_line, done.failed))
    return OK


def _as_root(code: int) -> tuple[str, ...]:
    return ("try:  sudo nodeagent net cleanup",) if code == DENIED else ()


_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "top": _top, "show": _show, "diff": _diff, "cleanup": _cleanup,
}  # fmt: skip


def asked(args: argparse.Namespace, target: str) -> bytes:
    """Body of a good answer. Raises CliError."""
    try:
        return ask(args, "GET", target, timeout_seconds=ANSWER_SECONDS)
    except Unreachable as error:
        raise as_unreachable(args, error) from None


def decoded(body: bytes, decode: Callable[[bytes], _Report]) -> _Report:
    """The report in an answer. Raises CliError(69) when it is none of this version's."""
    import msgspec  # noqa: PLC0415  loaded late: a quick start

    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        sentence = f"the agent's answer is not what this version reads: {error}"
        raise CliError(UNREACHABLE, sentence, "try:  nodeagent version, and restart the agent") from None


def _raw(body: bytes) -> str:
    return body.decode("utf-8", "replace").rstrip("\n") + "\n"
