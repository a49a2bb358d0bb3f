"""How the house limits are measured: sizes of files and functions, docstrings, units in names.

Each rule takes text or types and returns offenders as readable lines, so that a test can feed it one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parent.parent
FOLDERS = ("nodeagent", "tests", "systemd", "scripts", "docs", "deploy")
SUFFIXES = (".py", ".c", ".h", ".sh")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
UNITS = (
    "_seconds", "_nanoseconds", "_bytes", "_bits_per_second", "_percent", "_celsius", "_watts", "_ratio",
    "_polls", "_records", "_rows", "_count", "_errors", "_sequence", "_corrected", "_uncorrected", "_pages",
)  # fmt: skip
"""Endings that say what a number counts; the last eight name things that are counted."""
CHECKING = "check|expect|assert|verify|must|wait_until|until|golden"
"""Beginnings of helpers that fail when what they look for is not there."""


def sources(*suffixes: str) -> list[Path]:
    """Every file of ours with one of these suffixes (default: all kinds of code)."""
    wanted = suffixes or SUFFIXES
    roots = [ROOT / folder for folder in FOLDERS]
    return sorted(p for root in roots for p in root.rglob("*") if p.suffix in wanted and p.is_file())


def too_long_file(name: str, text: str) -> list[str]:
    """The file, when it has more than 400 lines."""
    lines = len(text.splitlines())
    return [f"{name}: {lines} lines, limit {MAX_FILE_LINES}"] if lines > MAX_FILE_LINES else []


def too_long_functions(name: str, text: str) -> list[str]:
    """Functions with more than 50 lines, signature to end."""
    spans = {".py": _python_spans, ".c": _brace_spans, ".h": _brace_spans, ".sh": _brace_spans}
    return [
        f"{name}:{start}: {function} has {lines} lines, limit {MAX_FUNCTION_LINES}"
        for function, start, lines in spans[Path(name).suffix](text)
        if lines > MAX_FUNCTION_LINES
    ]


def _python_spans(text: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def _brace_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """C and shell functions: a head in the first column, `{`, and a `}` in the first column.

    A prototype ends with `;` before any `{` and is none.
    """
    name, start, opened = "", 0, False
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"(?:[A-Za-z_][\w\s*]*[\s*])?(\w+)\s*\(", line)
        if not start and head:
            name, start, opened = head[1], number, False
        opened = opened or (start > 0 and "{" in line)
        if start and opened and line.startswith("}"):
            yield name, start, number - start + 1
            start = 0
        elif start and not opened and line.rstrip().endswith(";"):
            start = 0


def undocumented(name: str, text: str) -> list[str]:
    """Public modules, classes, functions and methods without a docstring."""
    tree = ast.parse(text)
    missing = [] if ast.get_docstring(tree) else [f"{name}: module has no docstring"]
    for node in _public(tree):
        if not ast.get_docstring(node):
            missing.append(f"{name}:{node.lineno}: {node.name} has no docstring")
    return missing


def _public(
    tree: ast.Module | ast.ClassDef,
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node
            yield from _public(node)


def claims_without_words(name: str, text: str) -> list[str]:
    """Test functions without a docstring."""
    return [
        f"{name}:{node.lineno}: {node.name} has no docstring"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]


def without_assertion(name: str, text: str) -> list[str]:
    """Test functions that can hardly fail: no assert, no pytest.raises or fail, no helper that checks."""
    offenders = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
            continue
        body = ast.unparse(node)
        if not re.search(rf"\bassert\b|pytest\.(raises|fail)|\b({CHECKING})\w*\(", body):
            offenders.append(f"{name}:{node.lineno}: {node.name} asserts nothing")
    return offenders


def unitless_numbers(struct: type[msgspec.Struct], pure_counts: frozenset[str]) -> list[str]:
    """Numeric fields of one noun whose name has no unit and that are not on the list of pure counts."""
    offenders = []
    for field in msgspec.structs.fields(struct):
        name = f"{struct.__name__}.{field.name}"
        named = field.name.endswith(UNITS) or name in pure_counts
        if _is_number(msgspec.inspect.type_info(field.type)) and not named:
            offenders.append(f"{name} is a number without a unit in its name")
    return offenders


def _is_number(kind: Any) -> bool:
    if isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return True
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_is_number(part) for part in kind.types)
    if isinstance(kind, msgspec.inspect.DictType):
        return _is_number(kind.value_type)
    return isinstance(kind, msgspec.inspect.Metadata) and _is_number(kind.type)
