"""The argument tree and the way from a command line to an exit code; each command is a module of its own.

It imports no driver and nothing slow: `nodeagent status` is typed in a hurry and by monitoring, so every
command loads its own parts when it runs.
"""

from __future__ import annotations

import argparse
import importlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from nodeagent import __version__
from nodeagent.cli_common import (
    USAGE,
    CliError,
    complain,
    no_answer_code,
    out,
    out_json,
    silence_stdout,
)

_DURATIONS = "90s, 15m, 1h30m or 2d"
_UNITS_SECONDS = (86400, 3600, 60, 1)
_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", re.ASCII)
_MODULES = {
    "run": "nodeagent.cli_run",
    "status": "nodeagent.cli_reading",
    "check": "nodeagent.cli_reading",
    "history": "nodeagent.cli_reading",
    "explain": "nodeagent.cli_explain",
    "net": "nodeagent.cli_net",
    "gpu": "nodeagent.cli_gpu",
    "pause": "nodeagent.cli_node",
    "unpause": "nodeagent.cli_node",
    "node": "nodeagent.cli_node",
    "silence": "nodeagent.cli_silence",
    "unsilence": "nodeagent.cli_silence",
    "config": "nodeagent.cli_config",
    "self-test": "nodeagent.cli_self_test",
    "version": "nodeagent.cli_config",
}
"""Command -> module with a function of the same name (- becomes _): (args) -> exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # not so in a test, or when started with stdout closed
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
    except CliError as error:
        complain(error.sentence, *error.more)
        return error.exit_code
    except SystemExit as finished:  # argparse has printed help
        return int(finished.code or 0)
    try:
        return _command(args)
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # stdout on a full disk
        if sys.stdout is not None:
            silence_stdout()
        complain(f"output cannot be written: {error.strerror or error}")
        return no_answer_code(args)


def _command(args: argparse.Namespace) -> int:
    module = importlib.import_module(_MODULES[args.command])
    function = getattr(module, args.command.replace("-", "_"))
    try:
        return int(function(args))
    except CliError as error:
        if getattr(args, "json", False):
            out_json("error", error=error.sentence, exit_code=error.exit_code)
        complain(error.sentence, *error.more)
        return error.exit_code


# --------------------------------------------------------------------------- arguments


class _Parser(argparse.ArgumentParser):
    """argparse exits 2 on wrong usage, which monitoring would read as CRITICAL; here it is 64."""

    def __init__(self, **more: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **more)

    def error(self, message: str) -> NoReturn:
        raise CliError(USAGE, _clear(message, self), f"help: {self.prog} --help")

    def print_help(self, file: Any = None) -> None:
        out(self.format_help())

    def options(self) -> list[str]:
        """Every option of this parser."""
        return [option for action in self._actions for option in action.option_strings]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line as a namespace with `command`. Raises CliError(64), SystemExit(0) after help."""
    parser, commands = build_parser()
    args, unknown = parser.parse_known_args(list(argv))
    if unknown:
        name = " ".join(word for word in (args.command, getattr(args, "verb", "")) if word)
        known, first = commands[name], unknown[0]
        if not first.startswith("-"):
            known.error(f"{name} takes no argument {_quoted(first)}")
        known.error(f"unknown option {_quoted(first)} for {name}{_near(first, known.options())}")
    args.config = getattr(args, "config", None)
    args.socket = getattr(args, "socket", None)
    return args


def build_parser() -> tuple[argparse.ArgumentParser, dict[str, _Parser]]:
    """The whole tree, and each command's own parser."""
    # SUPPRESS: a default of the command's parser would overwrite what stood before the command.
    common = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--config", metavar="FILE", help="default /etc/nodeagent/nodeagent.toml")
    common.add_argument("--socket", metavar="PATH", help="the agent's socket; default: as configured")
    parser = _Parser(prog="nodeagent", parents=[common], description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"nodeagent {__version__}")
    tree = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    commands: dict[str, _Parser] = {}
    for name, text in _COMMANDS.items():
        commands[name] = tree.add_parser(name, parents=[common], help=text, description=text)
    for name in ("status", "check", "history", "explain"):
        _add_look(commands[name])
    for name in ("version", "config", "self-test"):
        commands[name].add_argument("--json", action="store_true", help="one JSON object")
    commands["check"].add_argument("ids", metavar="ID", nargs="*", help="check ids; all without one")
    commands["history"].add_argument(
        "--since", metavar="TIME", type=duration_seconds, help="only the last 6h, 90m, 2d"
    )
    commands["explain"].add_argument(
        "what", metavar="WHAT", nargs="+", help="a check id, `xid 79` or `sxid 12028`"
    )
    commands["self-test"].add_argument(
        "--other-node", metavar="NAME", default="", help="also try to write this Node, which is not the own"
    )
    _add_silence(commands["silence"], commands["unsilence"])
    commands |= _add_net(commands["net"], common)
    commands |= _add_gpu(commands["gpu"], common)
    commands |= _add_node(commands["node"], common)
    _add_pause(commands["pause"])
    commands |= _add_config(commands["config"], common)
    return parser, commands


def _add_look(parser: _Parser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("-v", "--verbose", action="store_true", help="nothing folded or cut, absolute times")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="auto: on a terminal"
    )


def _add_gpu(parser: _Parser, common: _Parser) -> dict[str, _Parser]:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)
    release = verbs.add_parser(
        "release", parents=[common], help="let go of every GPU so that it can be reset"
    )
    release.add_argument(
        "--for", metavar="TIME", dest="for_seconds", type=duration_seconds, help="90s, 15m, 1h30m"
    )
    resume = verbs.add_parser("resume", parents=[common], help="open the GPUs again")
    repaired = verbs.add_parser("repaired", parents=[common], help="say that a GPU or NVSwitch was repaired")
    repaired.add_argument("target", metavar="TARGET", help="PCI address, like 0000:4e:00.0")
    repaired.add_argument("--reason", metavar="TEXT", required=True, help="who repaired what")
    return {"gpu release": release, "gpu resume": resume, "gpu repaired": repaired}


def _add_pause(parser: _Parser) -> None:
    parser.add_argument(
        "--for", metavar="TIME", dest="for_seconds", type=duration_seconds, required=True, help="15m, 1h, 2d"
    )
    parser.add_argument("--reason", metavar="TEXT", required=True, help="who and why; it is shown")


def _add_node(parser: _Parser, common: _Parser) -> dict[str, _Parser]:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)
    release = verbs.add_parser(
        "release", parents=[common], help="take our taints, ledger and conditions off the Node"
    )
    resume = verbs.add_parser("resume", parents=[common], help="write faults to the Node again")
    return {"node release": release, "node resume": resume}


def _add_silence(silence: _Parser, unsilence: _Parser) -> None:
    silence.add_argument("checks", metavar="CHECK", nargs="*", help="one or more check ids")
    silence.add_argument(
        "--target", metavar="TARGET", help="GPU index or PCI address, mount point, ...; default: every target"
    )
    silence.add_argument(
        "--for", metavar="TIME", dest="for_seconds", type=duration_seconds, help="90s, 15m, 1h30m; at most 7d"
    )
    silence.add_argument("--reason", metavar="TEXT", help="why, for whoever reads the status next")
    silence.add_argument("--list", action="store_true", help="the silences that stand")
    silence.add_argument("--json", action="store_true", help="one JSON object")
    unsilence.add_argument("numbers", metavar="ID", nargs="+", type=int, help="as status and --list say")


def _add_net(parser: _Parser, common: _Parser) -> dict[str, _Parser]:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)
    top = verbs.add_parser("top", parents=[common], help="pods by traffic, live; s sort, / filter, q quit")
    top.add_argument("--once", action="store_true", help="one table, rates over two seconds")
    top.add_argument("--namespaces", action="store_true", help="one line for each namespace")
    show = verbs.add_parser("show", parents=[common], help="a pod's addresses, class, mark and counters")
    show.add_argument("pod", metavar="POD", help="namespace/name or uid")
    diff = verbs.add_parser("diff", parents=[common], help="what is not yet as wanted; exit 1 when anything")
    cleanup = verbs.add_parser("cleanup", parents=[common], help="take away all rules and sets of ours")
    cleanup.add_argument("--dry-run", action="store_true", help="say what would go, remove nothing")
    cleanup.add_argument("--yes", action="store_true", help="even while an agent runs")
    for verb in (top, show, diff, cleanup):
        verb.add_argument("--json", action="store_true", help="one JSON object")
    for verb in (top, diff):
        verb.add_argument("-v", "--verbose", action="store_true", help="nothing cut, every part")
    return {"net top": top, "net show": show, "net diff": diff, "net cleanup": cleanup}


def _add_config(parser: _Parser, common: _Parser) -> dict[str, _Parser]:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)
    show = verbs.add_parser("show", parents=[common], help="the configuration in force, as TOML")
    check = verbs.add_parser("check", parents=[common], help="judge the files without touching the agent")
    show.add_argument("--sources", action="store_true", help="where each value comes from")
    for verb in (show, check):
        verb.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object")
    return {"config show": show, "config check": check}


def duration_seconds(text: str) -> float:
    """Seconds of `90s`, `15m`, `1h30m`, `2d`. Raises argparse.ArgumentTypeError."""
    found = _DURATION.fullmatch(text)
    if text.isdigit():
        raise argparse.ArgumentTypeError(f"{_quoted(text)} has no unit; write it like {_DURATIONS}")
    if not text or found is None:
        raise argparse.ArgumentTypeError(f"{_quoted(text)} is no duration; write it like {_DURATIONS}")
    counts = [int(count or 0) for count in found.groups()]
    seconds = sum(count * unit for count, unit in zip(counts, _UNITS_SECONDS, strict=True))
    if seconds == 0:
        raise argparse.ArgumentTypeError(f"{_quoted(text)} is no time at all; write it like {_DURATIONS}")
    return float(seconds)


def _clear(message: str, parser: _Parser) -> str:
    """argparse's message in our words."""
    choice = re.match(r"argument ([^:]+): invalid choice: (.*) \(choose from (.*)\)\Z", message, re.DOTALL)
    if choice:
        place, given, known = choice[1], choice[2], [word.strip("' ") for word in choice[3].split(",")]
        verb = f"{parser.prog.split()[-1]} command"
        noun = {"COMMAND": "command", "VERB": verb}.get(place, f"value for {place}")
        return f"unknown {noun} {_quoted(given.strip(chr(39)))}{_near(given, known)}"
    missing = re.match(r"the following arguments are required: (.*)\Z", message)
    if missing:
        return f"{missing[1]} is missing{_MISSING.get(missing[1], '')}"
    return _quoted(re.sub(r"\Aargument ", "", message))


_MISSING = {
    "COMMAND": "; try nodeagent status",
    "WHAT": "; name a check id, `xid 79` or `sxid 12028`",
    "POD": "; name a pod like namespace/name, or its uid",
    "--reason": "; say who repaired what, like --reason 'board replaced, ticket 123'",
    "--for, --reason": "; like --for 1h --reason 'upgrade, ticket 123'",
}


def _near(word: str, known: Sequence[str]) -> str:
    import difflib  # noqa: PLC0415  only a typing error pays for it

    close = difflib.get_close_matches(word.strip("'"), known, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def _quoted(text: str) -> str:
    """What a person typed, on one line and harmless."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


_COMMANDS = {
    "run": "run the agent in the foreground",
    "status": "the node in one screen",
    "check": "read now and show every check; changes nothing",
    "explain": "what a check, an Xid or an SXid means, what is seen now, what to do",
    "history": "changes of state, oldest first",
    "net": "pods' traffic: top, show POD, diff, cleanup",
    "gpu": "let go of the GPUs for a reset, take them back, report a repair",
    "pause": "write nothing to the API server for a time",
    "unpause": "let writes to the API server go on",
    "node": "take everything of ours off the Node object, or put it there again",
    "silence": "a known fault asks for no taint for a while, and stays shown; --list",
    "unsilence": "end silences before their time",
    "config": "show or judge the configuration",
    "self-test": "prove that the API server fences this agent in; changes nothing",
    "version": "print the version",
}
_DESCRIPTION = (
    "Watches this node's GPUs, driver, disks and pods' traffic; says what is wrong, since when, what to do."
)
_EPILOG = """\
exit codes: status and check: 0 ok, 1 warning, 2 critical, 3 unknown or no agent;
            net diff: 0 nothing pending, 1 something is; self-test: 0 the fence holds, 1 not proven;
            64 usage, 69 no agent (other commands), 77 permission, 78 bad configuration"""


