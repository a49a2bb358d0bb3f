"""The demo tells its story to the end and leaves nothing, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import processes
from tests.agent import ROOT
from tests.demo_story import STORY

COMMAND = [sys.executable, str(ROOT / "tests" / "demo.py")]


def _environment(scratch: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(scratch), **more}


def _left(scratch: Path) -> list[object]:
    """Files under the scratch directory, and processes whose command line names it."""
    found: list[object] = list(scratch.iterdir())
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and processes.state(int(entry.name)) not in ("", "Z"):
            found += [entry] if str(scratch).encode() in _words(entry) else []
    return found


def _words(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def test_the_demo_plays_every_step(tmp_path: Path) -> None:
    """Each step's outcome is reached, one frame for each, and the scratch directory is empty again."""
    command, environment = [*COMMAND, "--fast"], _environment(tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("$ nodeagent status") == len(STORY)
    assert _left(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """A signal in the middle of a step: exit code 130, no process, no file."""
    with subprocess.Popen(COMMAND, env=_environment(tmp_path), stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        while "$ nodeagent status" not in demo.stdout.readline():
            assert demo.poll() is None
        time.sleep(0.5)
        demo.send_signal(number)
        assert demo.wait(30) == 130
    assert _left(tmp_path) == []


def test_without_a_compiler_the_demo_says_what_to_install(tmp_path: Path) -> None:
    """One sentence with the command, before anything is started."""
    environment = _environment(tmp_path, PATH=str(tmp_path))
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 69
    assert "apt-get install gcc" in done.stderr
    assert done.stdout == ""
