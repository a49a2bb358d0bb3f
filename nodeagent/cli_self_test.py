"""`nodeagent self-test`: whether the API server refuses what this agent must not do. It changes nothing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nodeagent.cli_common import DENIED, OK, UNREACHABLE, CliError, one_line, out, out_json, with_settings

if TYPE_CHECKING:
    from nodeagent.self_test import Row, SelfTest

NOT_PROVEN = 1
APPLY = "kubectl apply --server-side -f daemonset.yaml"


def self_test(args: argparse.Namespace) -> int:
    """Try, print a row for each, and return 0 when all came as expected, else 1. Raises CliError."""
    from nodeagent import self_test as trying  # noqa: PLC0415  loaded late: a quick start
    from nodeagent.errors import DriverError, ErrorKind  # noqa: PLC0415  loaded late: a quick start

    try:
        done = with_settings(args, lambda settings: trying.self_test(settings, args.other_node))
    except DriverError as error:
        if error.op == "find credentials":
            raise CliError(
                UNREACHABLE, f"no cluster is configured, so nothing was tried: {one_line(error.detail)}",
                "try:  run it in the agent's pod, or set [cluster] kubeconfig",
            ) from None
        code = DENIED if error.kind is ErrorKind.DENIED else UNREACHABLE
        raise CliError(code, f"nothing was tried: {one_line(str(error))}") from None
    if args.json:
        rows = [{"tried": row.tried, "expected": row.expected, "came": row.came, "passed": row.passed}
                for row in done.rows]
        out_json("self-test", node=done.node, user=done.user, passed=done.passed, rows=rows)
    else:
        out(render(done))
    return OK if done.passed else NOT_PROVEN


def render(done: SelfTest) -> str:
    """The rows as a table, and the verdict below it."""
    rows = [("", "TRIED (DRY RUN)", "EXPECTED", "CAME")]
    rows += [(_state(row), row.tried, row.expected, row.came) for row in done.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
             for row in rows]
    return "".join(f"{one_line(line.rstrip())}\n" for line in [*lines, "", *_verdict(done)])


def _state(row: Row) -> str:
    return "ok" if row.passed else "ESCAPED" if row.escaped else "FAILED"


def _verdict(done: SelfTest) -> list[str]:
    passed, total = sum(row.passed for row in done.rows), len(done.rows)
    if done.passed:
        return [f"The fence holds: {passed} of {total} as expected."]
    if any(row.escaped for row in done.rows):
        return [f"THE FENCE DOES NOT HOLD: only {passed} of {total} as expected. This agent's token can do "
                "what it must not.", f"try:  {APPLY}, wait 2 s, then this again"]
    return [f"Not proven: only {passed} of {total} as expected. Nothing escaped; see the rows that failed.",
            f"try:  {APPLY}; [cluster] taint_prefix and [node] name must be those of the fence and the token"]
