"""The demo tells its story to the end and leaves nothing, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import demo_cluster, demo_pods, processes
from tests.agent import ROOT
from tests.demo_story import STORY
from tests.netns.world import missing

COMMAND = [sys.executable, str(ROOT / "tests" / "demo.py")]


def _environment(scratch: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(scratch), **more}


def _left(scratch: Path, pid: int) -> list[object]:
    """Files in the scratch directory of a demo, its processes, its network namespaces."""
    found: list[object] = list(scratch.iterdir())
    found += Path("/run/netns").glob(f"nanet{pid}x*")
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and processes.state(int(entry.name)) not in ("", "Z"):
            found += [entry] if f"TMPDIR={scratch}".encode() in _environment_of(entry) else []
    return found


def _environment_of(entry: Path) -> bytes:
    try:
        return (entry / "environ").read_bytes()
    except OSError:
        return b""


def test_the_demo_plays_every_step(tmp_path: Path) -> None:
    """Each step's outcome is reached, one frame for each, and the scratch directory is empty again."""
    command, environment = [*COMMAND, "--fast"], _environment(tmp_path)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        said = demo.communicate(timeout=90)[0]

    assert demo.returncode == 0, said
    assert said.count("$ nodeagent status") == len(STORY)
    assert said.count("$ kubectl get node") == (0 if demo_cluster.missing() else len(STORY))
    assert ("Without an API server" in said) == bool(demo_cluster.missing())
    assert said.count("$ nodeagent net top") == (0 if missing() else len(demo_pods.STORY))
    assert ("not shown here: this needs" in said) == bool(missing())
    assert _left(tmp_path, demo.pid) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """A signal in the middle of a step: exit code 130, no process, no file."""
    assert _interrupted(COMMAND, tmp_path, number, "$ nodeagent status") == (130, [])


@pytest.mark.root
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, "$ nodeagent net top"), (signal.SIGTERM, "$ nodeagent net top"),
     (signal.SIGINT, "Making a node")],
)  # fmt: skip
def test_interrupted_while_pods_send_it_leaves_nothing(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    """Neither a flow, an agent, nor a namespace, also where they are being made."""
    assert _interrupted([*COMMAND, "--act", "pods"], tmp_path, number, moment) == (130, [])


def _interrupted(
    command: list[str], scratch: Path, number: signal.Signals, moment: str
) -> tuple[int, list[object]]:
    """Signal a demo soon after it has said `moment`; its exit code, and what it left."""
    with subprocess.Popen(command, env=_environment(scratch), stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        while moment not in demo.stdout.readline():
            assert demo.poll() is None
        time.sleep(0.5)
        demo.send_signal(number)
        code = demo.wait(30)
    return code, _left(scratch, demo.pid)


def test_without_its_programs_the_second_act_says_what_to_install(tmp_path: Path) -> None:
    """One line with what helps, and no failure."""
    command, environment = [*COMMAND, "--act", "pods"], _environment(tmp_path, PATH=str(tmp_path))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "not shown here" in line)
    assert "apt-get install" in line or "sudo make demo" in line


def test_without_a_compiler_the_demo_says_what_to_install(tmp_path: Path) -> None:
    """One sentence with the command, before anything is started."""
    environment = _environment(tmp_path, PATH=str(tmp_path))
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 69
    assert "apt-get install gcc" in done.stderr
    assert done.stdout == ""
