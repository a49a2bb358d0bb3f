"""What every command shares: exit codes, output that cannot fail loudly, and the way to the daemon.

Imports nothing that takes long: each command loads what it needs itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    import argparse

    from nodeagent.errors import ConfigError
    from nodeagent.settings import Settings

_T = TypeVar("_T")

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
USAGE, UNREACHABLE, DENIED, BAD_CONFIG = 64, 69, 77, 78
PLAIN_WIDTH = 100
"""Columns where the terminal does not say."""
STATUS_COMMANDS = ("status", "check")
"""Their exit code is a verdict, so no answer is 3 and not 69."""


class CliError(Exception):
    """A command ends here: one sentence for stderr, further lines below it, and the exit code."""

    def __init__(self, exit_code: int, sentence: str, *more: str) -> None:
        self.exit_code = exit_code
        self.sentence = sentence
        self.more = more
        super().__init__(sentence)


def out(text: str) -> None:
    """Write to stdout; a reader that has gone away (`| head`) is no error."""
    if sys.stdout is None:  # started with stdout closed
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()


def silence_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's exit says nothing either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def complain(*lines: str) -> None:
    """Write lines to stderr, the first with the program's name; a closed stderr is no error."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write("\n".join([f"nodeagent: {lines[0]}", *lines[1:]]) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def out_json(schema: str, **fields: Any) -> None:
    """Write one JSON object, its schema first."""
    import json  # noqa: PLC0415  only a command that builds its JSON itself pays for it

    out(json.dumps({"schema": f"nodeagent/{schema}/v1", **fields}, indent=2, default=str) + "\n")


def use_color(args: argparse.Namespace) -> bool:
    """--color decides; auto: a terminal that can, unless NO_COLOR is set."""
    if args.color != "auto":
        return bool(args.color == "always")
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "")
    return not plain and sys.stdout is not None and sys.stdout.isatty()


def terminal_width() -> int:
    """Columns of the terminal, of COLUMNS, or 100."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or PLAIN_WIDTH
    except OSError:
        return PLAIN_WIDTH


def look(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of the render functions."""
    return {"color": use_color(args), "width": terminal_width(), "verbose": args.verbose}


def socket_path(args: argparse.Namespace) -> str:
    """Where the daemon answers: --socket, else the configuration. Raises CliError."""
    if args.socket is not None:
        return str(args.socket)
    from nodeagent import config  # noqa: PLC0415  loaded late: a quick start
    from nodeagent.errors import ConfigError  # noqa: PLC0415  loaded late: a quick start

    try:
        return config.socket_path(args.config)
    except ConfigError as error:
        raise bad_config(error) from None


def bad_config(error: ConfigError) -> CliError:
    """All problems, one a line."""
    if len(error.problems) == 1:
        return CliError(BAD_CONFIG, error.problems[0])
    return CliError(BAD_CONFIG, f"the configuration has {len(error.problems)} problems:", *error.problems)


def with_settings(args: argparse.Namespace, look: Callable[[Settings], _T]) -> _T:
    """What `look` finds under the configuration in force. Raises CliError(78) for a bad one."""
    from nodeagent import config  # noqa: PLC0415  loaded late: a quick start
    from nodeagent.decide.registry import registry  # noqa: PLC0415  loaded late: a quick start
    from nodeagent.errors import ConfigError  # noqa: PLC0415  loaded late: a quick start

    try:
        return look(config.load(args.config, registry()).settings)
    except ConfigError as error:
        raise bad_config(error) from None


def ask(
    args: argparse.Namespace, method: str, target: str, body: bytes = b"", *, timeout_seconds: float = 10.0
) -> bytes:
    """Body of a good answer. Raises client.Unreachable, CliError with the daemon's own sentence."""
    from nodeagent import client  # noqa: PLC0415  loaded late: a quick start

    response = client.ask(socket_path(args), method, target, body, timeout_seconds=timeout_seconds)
    if response.status != 200:
        refuse(args, response.status, response.body)
    return response.body


def refuse(args: argparse.Namespace, status: int, body: bytes) -> NoReturn:
    """Turn an answer that is no success into the command's end."""
    import json  # noqa: PLC0415  loaded late: a quick start

    try:
        answer = json.loads(body)
        sentence = str(answer.get("error") or answer.get("sentence") or answer)
    except (ValueError, AttributeError):
        sentence = f"the agent answered with status {status}"
    wrong = status == 400 and args.command not in STATUS_COMMANDS
    raise CliError(USAGE if wrong else no_answer_code(args), one_line(sentence))


def no_answer_code(args: argparse.Namespace) -> int:
    """3 for commands whose exit code is a verdict, 69 for the others."""
    return UNKNOWN if args.command in STATUS_COMMANDS else UNREACHABLE


def one_line(text: str) -> str:
    """`text` without anything that could drive a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def as_unreachable(args: argparse.Namespace, error: Exception) -> CliError:
    """Say where was asked, what is likely wrong, and what to try; `error` is a client.Unreachable."""
    from nodeagent.client import Cause, Unreachable  # noqa: PLC0415  loaded late: a quick start

    assert isinstance(error, Unreachable)
    path = one_line(error.socket_path)
    if error.cause is Cause.DENIED:
        likely = "it is for root and the group nodeagent"
        tries = (f"sudo nodeagent {args.command}", "sudo usermod -aG nodeagent $USER, then log in again")
        return CliError(DENIED, f"{path}: permission denied: {likely}", *_try(*tries))
    likely = {
        Cause.MISSING: "the agent does not run, or its socket is elsewhere (--socket)",
        Cause.REFUSED: "the agent was killed and not started again",
        Cause.TIMEOUT: "the agent hangs or the node is overloaded",
        Cause.GARBLED: "something else answers there, or the agent was just stopped",
    }[error.cause]
    tries = ("systemctl status nodeagent", "journalctl -t nodeagent -n 20")
    return CliError(no_answer_code(args), f"{path}: {one_line(error.detail)}: {likely}", *_try(*tries))


def _try(first: str, second: str) -> tuple[str, str]:
    return f"try:  {first}", f"      {second}"
