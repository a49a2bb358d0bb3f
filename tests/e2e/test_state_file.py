"""A state file that cannot be read or written is a finding, never a crash and never a loss."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.agent import NODE_NAME, Agent, is_raised, prompt, row
from tests.e2e.conftest import MakeAgent

ROOT_ONLY = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("nsenter") is None,
    reason="needs root, unshare and nsenter: apt-get install util-linux, then sudo",
)

Spoil = Callable[[dict], bytes]


def _torn(state: dict) -> bytes:
    return json.dumps(state).encode()[:-40]


def _foreign(state: dict) -> bytes:
    return json.dumps({**state, "node_name": "another-node"}).encode()


def _newer(state: dict) -> bytes:
    return json.dumps({**state, "schema": state["schema"] + 1, "unheard_of": {}}).encode()


def _garbage(_state: dict) -> bytes:
    return os.urandom(4096)


@pytest.mark.parametrize("spoil", [_torn, _foreign, _newer, _garbage], ids=lambda f: f.__name__)
def test_an_unusable_state_file_is_set_aside(make_agent: MakeAgent, spoil: Spoil) -> None:
    """It is kept beside itself, named in status, and replaced by a good one."""
    agent = make_agent()
    agent.start()
    agent.wait_until(lambda _: agent.state_file.exists(), "the state is saved")
    agent.stop()
    spoiled = spoil(json.loads(agent.state_file.read_bytes()))
    agent.state_file.write_bytes(spoiled)
    agent.start()
    status = agent.wait_until(lambda s: agent.state_file.exists(), "the state is saved anew")

    kept = [path for path in agent.state_file.parent.iterdir() if path != agent.state_file]
    assert [path.read_bytes() for path in kept] == [spoiled]
    assert str(kept[0]) in status["state_file"]["set_aside"]
    assert json.loads(agent.state_file.read_bytes())["node_name"] == NODE_NAME
    assert status["gpus"]["healthy"] == 8


FULL = 'mount -t tmpfs -o size=64k state "$0" && dd if=/dev/zero of="$0/filler" bs=4k 2>/dev/null; exec "$@"'
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@pytest.mark.root
@ROOT_ONLY
@pytest.mark.parametrize(
    ("script", "reason", "repair"),
    [
        (FULL, "No space left on device", ["rm", "{0}/filler"]),
        (READ_ONLY, "Read-only file system", ["mount", "-o", "remount,bind,rw", "{0}"]),
    ],
    ids=["ENOSPC", "EROFS"],
)
def test_a_state_file_that_cannot_be_written_is_a_finding(
    make_agent: MakeAgent, script: str, reason: str, repair: list[str]
) -> None:
    """The agent starts and judges, shows the kernel's reason, and saves once it can."""
    agent = _in_own_mounts(make_agent, script)
    agent.start()
    status = agent.wait_until(lambda s: not s["state_file"]["writable"], "the failure is shown")
    assert reason in status["state_file"]["detail"]
    assert reason in agent.log()
    assert status["gpus"]["healthy"] == 8

    assert agent.process is not None
    command = [word.format(agent.state_file.parent) for word in repair]
    subprocess.run(["nsenter", "-m", "-t", str(agent.process.pid), *command], check=True)
    agent.kernel_log.xid(agent.pci(0), 31)  # something to save
    agent.wait_until(lambda s: s["state_file"]["writable"], "the state is saved", 20)


@pytest.mark.root
@ROOT_ONLY
def test_a_full_disk_under_the_state_file_raises_a_check(make_agent: MakeAgent) -> None:
    """`agent.state` is raised and names the file and the reason."""
    agent = _in_own_mounts(make_agent, FULL)
    agent.start()
    status = agent.wait_until(lambda s: is_raised(s, "agent.state"), "agent.state is raised", 30)

    sentence = row(status, "agent.state")["sentence"]
    assert str(agent.state_file) in sentence
    assert "No space left on device" in sentence


def _in_own_mounts(make_agent: MakeAgent, script: str) -> Agent:
    """An agent whose state directory is mounted anew, in a mount namespace that ends with it."""
    agent = make_agent(sections=prompt("agent.state"))
    folder = agent.state_file.parent
    folder.mkdir()
    agent.prefix = ["unshare", "--mount", "sh", "-c", script, str(folder)]
    return agent
