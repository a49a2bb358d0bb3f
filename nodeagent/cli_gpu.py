"""`nodeagent gpu release|resume|repaired`: commands to the daemon, each answered with one sentence."""

from __future__ import annotations

import argparse
import json
from typing import Any

from nodeagent.cli_common import USAGE, CliError, as_unreachable, ask, one_line, out
from nodeagent.client import Unreachable

RELEASE_SECONDS = 7 * 86400
"""Longest --for that the daemon takes."""
ANSWER_SECONDS = 40.0
"""The daemon answers when the command has been carried out, which takes it up to 30 s."""


def gpu(args: argparse.Namespace) -> int:
    """Send the command and print what became of it. Raises CliError."""
    fields: dict[str, Any] = {}
    if args.verb == "release" and args.for_seconds is not None:
        if args.for_seconds > RELEASE_SECONDS:
            raise CliError(USAGE, "--for can be at most 7d; repeat the command to extend a release")
        fields = {"for_seconds": args.for_seconds}
    if args.verb == "repaired":
        if not args.reason.strip():
            raise CliError(USAGE, "--reason is empty; say who repaired what")
        fields = {"target": args.target, "reason": args.reason}
    try:
        body = ask(
            args, "POST", f"/v1/gpu/{args.verb}", json.dumps(fields).encode(), timeout_seconds=ANSWER_SECONDS
        )
    except Unreachable as error:
        raise as_unreachable(args, error) from None
    out(one_line(str(json.loads(body)["sentence"])) + "\n")
    return 0
