"""A check is complete with a module, a table of cases, a runbook page and a row in the docs."""

from __future__ import annotations

import importlib.util
import pkgutil
from pathlib import Path

import pytest

from nodeagent.decide import checks as package
from nodeagent.decide.check import Check
from nodeagent.decide.registry import registry

ROOT = Path(__file__).parent.parent
RUNBOOKS = ROOT / "nodeagent/runbooks"
CASES = ROOT / "tests/decide/cases"
DOCS = ROOT / "docs/checks.md"
NEEDED_CASES = (
    "healthy",
    "at the limit",
    "over the limit",
    "unread",
    "not supported",
    "missing on the board",
)
"""Beginnings of case names that every table must have."""


def missing_parts(
    check_id: str, runbooks: Path = RUNBOOKS, cases: Path = CASES, docs: Path = DOCS
) -> list[str]:
    """What a check still lacks, each part named."""
    page = runbooks / f"{check_id}.md"
    table = cases / f"{check_id.replace('.', '_')}.py"
    rows = docs.read_text().splitlines() if docs.is_file() else []
    parts = {
        f"runbook page {page.name}": page.is_file() and len(page.read_text().splitlines()) > 5,
        f"table of cases {table.name}": table.is_file(),
        f"row in {docs.name}": any(row.startswith(f"| `{check_id}` |") for row in rows),
    }
    return [f"{check_id}: no {part}" for part, there in parts.items() if not there]


@pytest.mark.parametrize("check_id", sorted(registry()))
def test_every_check_is_complete(check_id: str) -> None:
    """Module (it is registered), cases, runbook and docs row are all there."""
    lacking = missing_parts(check_id)

    assert lacking == [], f"{', '.join(lacking)}; docs/adding-a-check.md says where each belongs"


@pytest.mark.parametrize("check_id", sorted(registry()))
def test_every_table_has_the_cases_that_matter(check_id: str) -> None:
    """Healthy, at the limit, over it, unread, not supported, missing: none may be left out."""
    table = importlib.import_module(f"tests.decide.cases.{check_id.replace('.', '_')}")
    names = [case.name for case in table.CASES]

    assert missing_cases(names) == []
    assert len(names) == len(set(names))


def missing_cases(names: list[str]) -> list[str]:
    """Kinds of case that a table with these names lacks."""
    return [kind for kind in NEEDED_CASES if not any(name.startswith(kind) for name in names)]


def test_a_missing_case_is_noticed() -> None:
    """The search for kinds of case can fail."""
    assert missing_cases(["healthy", "unread: timeout"]) == [
        "at the limit", "over the limit", "not supported", "missing on the board",
    ]  # fmt: skip


def test_an_incomplete_check_is_named(tmp_path: Path) -> None:
    """Each missing part is named; a check with all parts is not."""
    lacking = missing_parts("no.such", tmp_path, tmp_path, tmp_path / "checks.md")
    (tmp_path / "no.such.md").write_text("line\n" * 9)
    (tmp_path / "no_such.py").write_text("CASES = ()\n")
    (tmp_path / "checks.md").write_text("| `no.such` | ... |\n")

    assert lacking == [
        "no.such: no runbook page no.such.md", "no.such: no table of cases no_such.py",
        "no.such: no row in checks.md",
    ]  # fmt: skip
    assert missing_parts("no.such", tmp_path, tmp_path, tmp_path / "checks.md") == []


def test_every_module_of_checks_contributes() -> None:
    """The package scan finds at least one check in each module."""
    for module_info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{module_info.name}")
        assert module.CHECKS, module_info.name


def test_nothing_is_left_over_from_a_check_that_is_gone() -> None:
    """Runbooks and tables belong to a registered check."""
    pages = {page.stem for page in RUNBOOKS.glob("*.md")}
    tables = {table.stem for table in CASES.glob("*.py") if not table.stem.startswith("_")}

    assert pages - set(registry()) == set()
    assert tables - {check_id.replace(".", "_") for check_id in registry()} == set()


@pytest.mark.parametrize("check", registry().values(), ids=lambda check: check.id)
def test_every_check_describes_itself(check: Check) -> None:
    """Title, source, family and limits are filled in, and parents exist."""
    assert check.title and check.source and check.signals
    assert check.family in {"gpu", "driver", "node", "agent"}
    assert set(check.depends_on) <= set(registry())
    assert check.common_cause in {"", "fabric", "links", "driver", "clock", "disk", "runtime", "maintenance"}
    assert 1 <= check.hold.bad_polls <= check.hold.of_polls
    assert check.hold.proof in {"reads", "reset"}
    assert all(limit.unit and limit.meaning for limit in check.limits)
    assert all(not isinstance(limit.default, list | dict) for limit in check.limits)
