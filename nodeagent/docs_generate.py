"""Writes the pages of `docs/` that would go stale by hand: settings, checks and metrics from their records.

`python -m nodeagent.docs_generate` writes them; a test compares them. It reads only this package, so the
pages say nothing that the code does not.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from msgspec import Struct

from nodeagent import settings
from nodeagent.config import keys, values
from nodeagent.decide.check import Check, Limit
from nodeagent.decide.registry import registry
from nodeagent.report.metrics import metrics_markdown

ROOT = Path(__file__).parent.parent


def attribute_docs(noun: type[Struct]) -> dict[str, str]:
    """Field -> the docstring that follows it in the source, on one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(noun))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


# --------------------------------------------------------------------------- settings


def config_markdown() -> str:
    """The whole text of docs/config.md."""
    parts = [_CONFIG_HEAD]
    for name, noun in get_type_hints(settings.Settings).items():
        if name != "checks":
            parts.append(_section(name, noun))
    parts.append(_checks_section())
    return "\n".join(parts)


def _section(name: str, noun: type[Struct]) -> str:
    hints = get_type_hints(noun, include_extras=True)
    docs = attribute_docs(noun)
    defaults = noun()
    rows = [
        _row(key, values.right(hint), getattr(defaults, key), docs[key])
        for key, hint in hints.items()
        if get_origin(hint) is not dict
    ]
    text = _table(f"## `[{name}]`\n\n{_sentence(noun)}", rows)
    for key, hint in hints.items():
        if get_origin(hint) is dict and is_noun(hint.__args__[1]):
            text += "\n" + _named(name, key, hint.__args__[1])
        elif get_origin(hint) is dict:
            words = values.right(hint.__args__[1])
            text += f"\n### `[{name}.{key}]`\n\n{docs[key]}\n\nKey: a number in quotes. Value: {words}.\n"
    return text


def is_noun(hint: Any) -> bool:
    """True for a section of its own."""
    return isinstance(hint, type) and issubclass(hint, Struct)


def _named(section: str, key: str, noun: type[Struct]) -> str:
    docs, defaults = attribute_docs(noun), noun()
    rows = [
        _row(inner, values.right(hint), getattr(defaults, inner), docs[inner])
        for inner, hint in get_type_hints(noun, include_extras=True).items()
    ]
    return _table(f'### `[{section}.{key}."NAME"]`\n\n{_sentence(noun)}', rows)


def _checks_section() -> str:
    docs = attribute_docs(settings.CheckSettings)
    fields = {"class": "node_class"}
    rows = []
    for key, hint in keys.check_hints().items():
        meaning = docs[fields.get(key, key)].removeprefix("Key `class`: ")
        default = settings.CheckSettings().enabled if key == "enabled" else None
        rows.append(_row(key, values.right(hint), default, meaning))
    return _table(f'## `[checks."ID"]`\n\n{_CHECKS_TEXT}', rows)


def _sentence(noun: type[Struct]) -> str:
    text = (noun.__doc__ or "").partition(": ")[2].strip()
    return text[:1].upper() + text[1:]


def _row(key: str, allowed: str, default: Any, meaning: str) -> str:
    shown = "as the check says" if default is None else f"`{values.show(default)}`"
    return f"| `{key}` | {_cell(allowed)} | {shown} | {_cell(meaning)} |"


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([head, "", "| key | value | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --------------------------------------------------------------------------- checks


def checks_markdown() -> str:
    """The whole text of docs/checks.md."""
    checks = registry()
    parts = [_CHECKS_HEAD, *(_summary(check) for check in checks.values())]
    return "\n".join(parts) + "\n\n" + "\n".join(_details(check) for check in checks.values())


def _summary(check: Check) -> str:
    page = f"[page](../nodeagent/runbooks/{check.id}.md)"
    cells = [f"`{check.id}`", check.title, check.family, f"`{check.node_class.value}`", page]
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _details(check: Check) -> str:
    hold = check.hold
    raised = f"{hold.bad_polls} bad of {hold.of_polls} polls"
    cleared = f"{hold.good_polls} good polls in a row and {hold.minimum_seconds:g} s after the last bad poll"
    if hold.proof == "reset":
        cleared += "; a fault of class reset, reboot or vendor also needs a seen reset or a new boot"
    facts = {
        "Title": check.title,
        "Class": f"`{check.node_class.value}`",
        "Raised": hold.raised_words or raised,
        "Cleared": hold.cleared_words or cleared,
        "Read from": check.source,
        "Muted while raised": ", ".join(f"`{other}`" for other in check.depends_on),
        "Common cause": check.common_cause,
        "Boot grace": f"{check.boot_grace_seconds:g} s" if check.boot_grace_seconds else "",
    }
    lines = [f"## `{check.id}`", "", *(f"- {label}: {text}" for label, text in facts.items() if text), ""]
    if check.limits:
        lines += ["| limit | unit | default | meaning |", "|---|---|---|---|"]
        lines += [_limit(limit) for limit in check.limits]
        lines.append("")
    return "\n".join(lines)


def _limit(limit: Limit) -> str:
    default = list(limit.default) if isinstance(limit.default, tuple) else limit.default
    cells = [f"`{limit.name}`", limit.unit, f"`{values.show(default)}`", limit.meaning]
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


_GENERATED = "<!-- Generated by `make docs`; change the source, not this page. -->"
_CONFIG_HEAD = f"""\
{_GENERATED}
# Configuration

`/etc/nodeagent/nodeagent.toml`, then `conf.d/*.toml` beside it in order of name; a later file wins key by
key. No file at all means defaults. `--config FILE` names another main file, which must then exist.

- `nodeagent config check` judges the files, touches nothing, and says what a class that taints does.
- `nodeagent config show --sources` prints every value in force and where it comes from.
- `systemctl reload nodeagent` (SIGHUP) takes the files anew. A file with an error changes nothing: the
  configuration before stays in force, and status, journal and metrics say so. At start it is exit 78.

A section or key that this version does not know is an error that names the nearest known one, so that a
typing error cannot pass for a setting. All problems of all files are shown at once, one a line.
"""
_CHECKS_TEXT = """\
What is changed of one check; ids and limits are in [checks.md](checks.md). The id stands in quotes:
`[checks."disk.full"]`. Besides these keys each check takes its own limits, of the type of their default.
A class chosen here outranks what the check finds; `reset`, `reboot` and `vendor` make it taint the node."""
_CHECKS_HEAD = f"""\
{_GENERATED}
# Checks

Every value can be changed in `[checks."ID"]`, see [config.md](config.md). `nodeagent explain ID` prints the
values in force on a node and the first screen of the page.

| id | title | family | class | runbook |
|---|---|---|---|---|"""

PAGES: Mapping[str, Callable[[], str]] = {
    "docs/config.md": config_markdown,
    "docs/checks.md": checks_markdown,
    "docs/metrics.md": metrics_markdown,
}
"""Path below the repository -> its text."""


def main() -> int:
    """Write every page that differs; say which."""
    for name, page in PAGES.items():
        path = ROOT / name
        text = page().rstrip("\n") + "\n"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
