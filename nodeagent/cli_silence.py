"""`nodeagent silence` and `unsilence`: a known fault asks for no taint for a while, and stays shown."""

from __future__ import annotations

import argparse
import json
from typing import Any

from nodeagent.cli_common import OK, USAGE, CliError, as_unreachable, ask, one_line, out, terminal_width
from nodeagent.client import Unreachable

SILENCE_SECONDS = 7 * 86400
"""Longest --for that the daemon takes."""
ANSWER_SECONDS = 30.0
"""The daemon answers when its next cycle has ended and is saved, which takes it up to 20 s."""


def silence(args: argparse.Namespace) -> int:
    """Begin silences, or list them. Raises CliError."""
    if args.list:
        return _list(args)
    if not args.checks:
        raise CliError(USAGE, "CHECK is missing; name a check id, or use --list")
    if args.for_seconds is None:
        raise CliError(USAGE, "--for is missing; say how long, like --for 2h")
    if args.for_seconds > SILENCE_SECONDS:
        raise CliError(USAGE, "--for can be at most 7d; repeat the command to extend a silence")
    if not (args.reason or "").strip():
        raise CliError(USAGE, "--reason is missing or empty; say why, like --reason 'swap booked'")
    fields = {"checks": args.checks, "target": args.target or "", "for_seconds": args.for_seconds,
              "reason": args.reason}  # fmt: skip
    return _command(args, "/v1/silence", fields)


def unsilence(args: argparse.Namespace) -> int:
    """End silences. Raises CliError."""
    return _command(args, "/v1/unsilence", {"numbers": args.numbers})


def _list(args: argparse.Namespace) -> int:
    if args.checks or args.target or args.for_seconds is not None or args.reason:
        raise CliError(USAGE, "--list takes no check and no other option but --json")
    import msgspec  # noqa: PLC0415  loaded late: a quick start

    from nodeagent.report.render_silences import render_silences  # noqa: PLC0415  loaded late: a quick start
    from nodeagent.report.silence_schema import SilencesReport  # noqa: PLC0415  loaded late: a quick start

    body = _asked(args, "GET", "/v1/silences", b"")
    if args.json:
        out(body.decode("utf-8", "replace").rstrip("\n") + "\n")
        return OK
    try:
        report = msgspec.json.decode(body, type=SilencesReport)
    except msgspec.MsgspecError as error:
        raise CliError(69, f"the agent's answer is not what this version reads: {error}") from None
    out(render_silences(report, width=terminal_width()))
    return OK


def _command(args: argparse.Namespace, path: str, fields: dict[str, Any]) -> int:
    body = _asked(args, "POST", path, json.dumps(fields).encode())
    if getattr(args, "json", False):
        out(body.decode("utf-8", "replace").rstrip("\n") + "\n")
    else:
        out(one_line(str(json.loads(body)["sentence"])) + "\n")
    return OK


def _asked(args: argparse.Namespace, method: str, path: str, body: bytes) -> bytes:
    try:
        return ask(args, method, path, body, timeout_seconds=ANSWER_SECONDS)
    except Unreachable as error:
        raise as_unreachable(args, error) from None
