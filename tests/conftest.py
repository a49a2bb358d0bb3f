"""Options and fixtures that more than one part of the tests uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
ALONE = ("kube", "netns", "systemd", "test_demo.py")
"""Folders and files of tests that measure time or look at the whole host: nothing runs beside them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden`: write what is produced now as what is expected."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in tests/golden")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what must run by itself, so that `make unit` can spread all the rest over the cores."""
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in ALONE:
            item.add_marker(pytest.mark.alone)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], str]:
    """The text of tests/golden/NAME; with --update-golden the text produced now is written there first."""

    def expected(name: str, produced: str) -> str:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(produced, encoding="utf-8")
        return path.read_text(encoding="utf-8") if path.is_file() else f"no {path}: --update-golden"

    return expected


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI everything that a test needs is present, so a skip is a hole in the net: it fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter is not None else []
    if os.environ.get("CI") == "true" and skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"{len(skipped)} skipped: in CI nothing may skip", red=True)
