"""Options and fixtures that more than one part of the tests uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden`: write what is produced now as what is expected."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in tests/golden")


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
