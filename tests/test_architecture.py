"""The architecture as a test: import contracts from setup.cfg, and nothing asynchronous in judgement."""

from __future__ import annotations

import ast
import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OFFENDERS = {
    "nodeagent/decide/offender.py": "import os\nimport nodeagent.act\n",
    "nodeagent/decide/checks/offender.py": "from nodeagent.decide.checks import ecc\n",
    "nodeagent/drivers/offender.py": "from nodeagent.drivers import clock\n",
}
"""Files that break all contracts between them."""
ASYNCHRONOUS = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
COMMANDS = sorted((ROOT / "nodeagent").glob("cli*.py"))
PURE = (*sorted((ROOT / "nodeagent/decide").rglob("*.py")), ROOT / "nodeagent/observe/snapshot.py")


def _contracts() -> list[str]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    names = [name for name in config.sections() if name.startswith("importlinter:contract:")]
    return [config[name]["name"] for name in names]


def _lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run the import contracts of `tree`/setup.cfg on `tree`/nodeagent."""
    command = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    # The environment's PYTHONPATH must not win over the tree under test.
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", command],
        cwd=tree, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def asynchronous(text: str) -> list[int]:
    """Lines that define or await something asynchronous, or import asyncio."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        module = node.module if isinstance(node, ast.ImportFrom) else None
        if isinstance(node, ASYNCHRONOUS) or "asyncio" in (*names, module):
            lines.append(node.lineno)
    return lines


def direct_imports(text: str, package: str) -> list[str]:
    """Modules of `package` that the text imports by itself."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name == package or name.startswith(f"{package}.")]


def test_import_contracts_are_kept() -> None:
    """Every contract in setup.cfg holds."""
    done = _lint(ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(_contracts())} kept, 0 broken" in done.stdout


def test_import_contracts_can_be_broken(tmp_path: Path) -> None:
    """A tree with one offender per contract breaks every one of them."""
    shutil.copytree(ROOT / "nodeagent", tmp_path / "nodeagent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    for name, text in OFFENDERS.items():
        (tmp_path / name).write_text(text)

    done = _lint(tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    assert [name for name in _contracts() if f"{name} BROKEN" not in done.stdout] == []


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_judgement_never_waits(path: Path) -> None:
    """Nothing in decide/ and in the snapshot is asynchronous."""
    assert asynchronous(path.read_text()) == []


def test_an_await_is_noticed() -> None:
    """The search for asynchronous code can fail."""
    text = "import asyncio\nfrom asyncio import sleep\nasync def f():\n    await sleep(1)\n"

    assert sorted(asynchronous(text)) == [1, 2, 3, 4]


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.name)
def test_command_line_imports_no_driver(path: Path) -> None:
    """No command reaches an outside world by itself; it talks to the socket."""
    assert direct_imports(path.read_text(), "nodeagent.drivers") == []


def test_every_command_is_looked_at() -> None:
    """The files of the command line are found."""
    assert {"cli.py", "cli_run.py", "cli_reading.py", "cli_gpu.py"} <= {path.name for path in COMMANDS}


def test_a_driver_import_is_noticed() -> None:
    """The search for direct imports can fail."""
    assert direct_imports("from nodeagent import drivers\n", "nodeagent.drivers") == ["nodeagent.drivers"]
    assert direct_imports("import nodeagent.drivers.nvml\n", "nodeagent.drivers") == [
        "nodeagent.drivers.nvml"
    ]
