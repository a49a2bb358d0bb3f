"""`nodeagent pause|unpause`, `nodeagent node release|resume`: what may be written to the API server."""

from __future__ import annotations

import argparse
import json
from typing import Any

from nodeagent.cli_common import USAGE, CliError, as_unreachable, ask, one_line, out
from nodeagent.client import Unreachable

PAUSE_SECONDS = 7 * 86400
"""Longest --for that the daemon takes."""
ANSWER_SECONDS = 20.0


def pause(args: argparse.Namespace) -> int:
    """Stop all writes to the API server for a time. Raises CliError."""
    if args.for_seconds > PAUSE_SECONDS:
        raise CliError(USAGE, "--for can be at most 7d; for longer there is the kill switch file")
    if not args.reason.strip():
        raise CliError(USAGE, "--reason is empty; say who stops writes and why")
    return _send(args, "/v1/pause", {"for_seconds": args.for_seconds, "reason": args.reason})


def unpause(args: argparse.Namespace) -> int:
    """Let writes go on. Raises CliError."""
    return _send(args, "/v1/unpause", {})


def node(args: argparse.Namespace) -> int:
    """Take everything of ours off the Node, or put it there again. Raises CliError."""
    return _send(args, f"/v1/node/{args.verb}", {})


def _send(args: argparse.Namespace, path: str, fields: dict[str, Any]) -> int:
    try:
        body = ask(args, "POST", path, json.dumps(fields).encode(), timeout_seconds=ANSWER_SECONDS)
    except Unreachable as error:
        raise as_unreachable(args, error) from None
    out(one_line(str(json.loads(body)["sentence"])) + "\n")
    return 0
