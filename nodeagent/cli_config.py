"""`nodeagent config show|check` and `version`: they read files and the package, never the daemon."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from nodeagent import __version__
from nodeagent.cli_common import OK, bad_config, complain, out, out_json
from nodeagent.config import Loaded, consequences, load
from nodeagent.config.values import show_key
from nodeagent.decide.check import Check
from nodeagent.decide.registry import registry
from nodeagent.decide.rules import effective_limits, effective_rule
from nodeagent.errors import ConfigError
from nodeagent.model import NodeClass

DEFAULT = "default"


def version(args: argparse.Namespace) -> int:
    """Print the version of this command."""
    if args.json:
        out_json("version", version=__version__, python=platform.python_version())
    else:
        out(f"nodeagent {__version__}\n")
    return OK


def config(args: argparse.Namespace) -> int:
    """`config show` and `config check`. Raises CliError(78)."""
    return _show(args) if args.verb == "show" else _check(args)


def _check(args: argparse.Namespace) -> int:
    checks = registry()
    try:
        loaded = load(args.config, checks)
    except ConfigError as error:
        if args.json:
            out_json("config-check", ok=False, files=[], problems=error.problems, consequences=[])
        failure = bad_config(error)
        complain(failure.sentence, *failure.more)
        return failure.exit_code
    said = consequences(loaded.settings, checks)
    if args.json:
        out_json("config-check", ok=True, files=loaded.files, problems=[], consequences=said)
        return OK
    files = ", ".join(loaded.files) or "no file, all defaults"
    out("".join(f"{line}\n" for line in (f"ok: {files}", *said)))
    return OK


def _show(args: argparse.Namespace) -> int:
    checks = registry()
    try:
        loaded = load(args.config, checks)
    except ConfigError as error:
        raise bad_config(error) from None
    rows = list(effective(loaded, checks))
    if args.json:
        settings = {
            show_key(*section, key): {"value": value, "source": source}
            for section, key, value, source in rows
        }
        out_json("config-show", files=loaded.files, settings=settings)
    else:
        out(as_toml(rows, loaded.files, sources=args.sources))
    return OK


Row = tuple[tuple[str, ...], str, Any, str]
"""Section, key, value, source."""


def effective(loaded: Loaded, checks: Mapping[str, Check]) -> Iterator[Row]:
    """Every value in force with its source, section by section."""
    for section in loaded.settings.__struct_fields__:
        if section == "checks":
            continue
        nouns = getattr(loaded.settings, section)
        tables = []
        for key in nouns.__struct_fields__:
            value = getattr(nouns, key)
            if isinstance(value, dict):
                tables.append((key, value))
            else:
                yield _row(loaded, (section,), key, value)
        for table, entries in tables:
            for key, value in entries.items():
                if isinstance(value, Struct):
                    for inner in value.__struct_fields__:
                        yield _row(loaded, (section, table, key), inner, getattr(value, inner))
                else:
                    yield _row(loaded, (section, table), key, value)
    for check_id, check in checks.items():
        for key, value in _check_values(loaded, check).items():
            yield _row(loaded, ("checks", check_id), key, value)


def _check_values(loaded: Loaded, check: Check) -> dict[str, Any]:
    rule = effective_rule(check, loaded.settings)
    return {
        "enabled": loaded.settings.check(check.id).enabled,
        "class": rule.node_class,
        "bad_polls": rule.bad_polls,
        "of_polls": rule.of_polls,
        "good_polls": rule.good_polls,
        "minimum_seconds": rule.minimum_seconds,
        **effective_limits(check, loaded.settings),
    }


def _row(loaded: Loaded, section: tuple[str, ...], key: str, value: Any) -> Row:
    source = loaded.sources.get(show_key(*section, key), DEFAULT)
    return section, key, value.value if isinstance(value, NodeClass) else value, source


def as_toml(rows: list[Row], files: Collection[str], *, sources: bool) -> str:
    """The values as a file that means the same: what none of `files` has set stands as a comment."""
    lines: list[str] = []
    before: tuple[str, ...] = ()
    for section, key, value, source in rows:
        if section != before:
            lines += [*([""] if lines else []), f"[{show_key(*section)}]"]
            before = section
        line = f"{show_key(key)} = {_toml(value)}"
        line = line if source in files else f"# {line}"
        lines.append(f"{line}  # {source}" if sources else line)
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML writes it, printable and on one line."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
