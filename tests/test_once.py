"""Commands that look without a daemon leave everything as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent import net_once, once
from nodeagent.settings import GpuSettings, NodeSettings, PodSettings, Settings


def settings(folder: Path) -> Settings:
    """A node without GPUs and pods, its state file in `folder`."""
    node = NodeSettings(name="a", state_file=str(folder / "memory.json"), kernel_log="/dev/null")
    return Settings(node=node, gpu=GpuSettings(enabled="false"), pods=PodSettings(source="none"))


@pytest.mark.parametrize("command", ["check", "net diff"])
def test_a_wrong_proc_root_is_one_sentence(tmp_path: Path, command: str) -> None:
    """Exit code 78 and the key, whichever command looks without a daemon."""
    path = tmp_path / "nodeagent.toml"
    path.write_text(f'[node]\nproc_root = "{tmp_path}"\n[status]\nsocket = "{tmp_path}/none.sock"\n')
    argv = [sys.executable, "-m", "nodeagent", "--config", str(path), *command.split()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, "Traceback" in done.stderr, "proc_root" in done.stderr) == (78, False, True)


@pytest.mark.parametrize("command", ["check", "net diff"])
def test_an_unusable_state_file_is_left_where_it_is(tmp_path: Path, command: str) -> None:
    """Only a daemon sets a torn state file aside; who merely looks touches nothing."""
    (tmp_path / "memory.json").write_text('{"schema": 1, "torn')
    if command == "check":
        once.check_once(settings(tmp_path), ())
    else:
        net_once.diff_once(settings(tmp_path))

    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("memory.json", '{"schema": 1, "torn')]
