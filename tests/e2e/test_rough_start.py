"""A start in a place that is not as it should be: a sentence and an exit code, or a start all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent import Agent, is_raised, prompt
from tests.drivers.fuse import DeadMount, can_mount
from tests.e2e.conftest import MakeAgent

Spoil = Callable[[Agent], None]


def _no_proc(agent: Agent) -> None:
    agent.configure({"node": {"proc_root": str(agent.directory / "nothing")}})


def _no_manager(agent: Agent) -> None:
    agent.prefix = ["env", "NOTIFY_SOCKET=garbage"]


def _lock_is_directory(agent: Agent) -> None:
    (agent.socket_path.parent / "nodeagent.lock").mkdir(parents=True)


def _lock_is_pipe(agent: Agent) -> None:
    agent.socket_path.parent.mkdir()
    os.mkfifo(agent.socket_path.parent / "nodeagent.lock")


def _no_folder(agent: Agent) -> None:
    agent.socket_path.parent.write_text("")


HOPELESS: list[tuple[Spoil, str]] = [
    (_no_proc, "node.proc_root"), (_no_manager, "NOTIFY_SOCKET"), (_lock_is_directory, "nodeagent.lock"),
    (_lock_is_pipe, "nodeagent.lock"), (_no_folder, "nodeagent.lock"),
]


@pytest.mark.parametrize(("spoil", "named"), HOPELESS, ids=[row[0].__name__ for row in HOPELESS])
def test_a_start_that_cannot_be_is_one_sentence(make_agent: MakeAgent, spoil: Spoil, named: str) -> None:
    """Exit code 78, one line that names the place, no traceback and nothing left running."""
    agent = make_agent(gpus=1)
    spoil(agent)
    done = subprocess.run(
        [*agent.prefix, *agent.command(), "run"], env=agent.environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=False,
    )

    assert (done.returncode, done.stdout.count(b"\n")) == (78, 1), done.stdout
    assert named in done.stdout.decode()
    assert agent.processes() == {}


@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-"], ids=["stderr", "all"])
def test_closed_standard_descriptors_are_no_obstacle(make_agent: MakeAgent, closed: str) -> None:
    """The agent runs, and neither its lock nor its socket stands where a library would print."""
    agent = make_agent(gpus=1)
    agent.prefix = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    agent.start()

    assert agent.process is not None
    assert Path(f"/proc/{agent.process.pid}/fd/2").readlink() == Path("/dev/null")
    assert agent.status()["verdict"]["state"] == "ok"
    assert agent.stop() == 0


def test_a_pipe_in_place_of_the_state_file_is_a_finding(make_agent: MakeAgent) -> None:
    """The start does not wait for a writer; the pipe stays where it is."""
    agent = make_agent(gpus=1, sections=prompt("agent.state"))
    agent.state_file.parent.mkdir()
    os.mkfifo(agent.state_file)
    agent.start()

    agent.wait_until(lambda s: is_raised(s, "agent.state"), "agent.state is raised")
    assert agent.state_file.is_fifo()


@pytest.mark.root
@pytest.mark.skipif(not can_mount(), reason="needs root and /dev/fuse: modprobe fuse")
def test_a_state_directory_that_never_answers_stops_nothing(make_agent: MakeAgent, tmp_path: Path) -> None:
    """The node is judged, NVML can be released, and SIGTERM ends the agent."""
    dead = tmp_path / "dead"
    agent = make_agent(gpus=1, sections={"node": {"state_file": str(dead / "memory.json")}})
    with DeadMount(dead):
        agent.start()
        assert agent.status()["state_file"]["writable"] is False
        agent.kernel_log.xid(agent.pci(0), 79)
        agent.wait_until(lambda s: is_raised(s, "xid", agent.pci(0)), "Xid 79 is raised")
        assert agent.cli("gpu", "release")[0] == 0
        assert agent.fake.clients() == []
        assert agent.stop() == 0


@pytest.mark.root
@pytest.mark.skipif(not can_mount(), reason="needs root and /dev/fuse: modprobe fuse")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_first_look_is_not_the_end_of_a_lock(
    make_agent: MakeAgent, tmp_path: Path, number: signal.Signals
) -> None:
    """While the state file is still read SIGTERM removes the lock, and SIGHUP does no harm."""
    dead = tmp_path / "dead"
    agent = make_agent(gpus=1, sections={"node": {"state_file": str(dead / "memory.json")}})
    lock = agent.socket_path.parent / "nodeagent.lock"
    with DeadMount(dead):
        agent.start(wait=False)
        assert agent.process is not None
        end_seconds = time.monotonic() + 10
        while not (lock.exists() and lock.read_text()) and time.monotonic() < end_seconds:
            time.sleep(0.01)
        time.sleep(0.2)
        agent.process.send_signal(number)
        time.sleep(0.2)
        assert agent.process.poll() == (0 if number == signal.SIGTERM else None)
        assert agent.process.poll() is None or not lock.exists()


def test_a_taken_metrics_port_is_named_and_opened_once_it_is_free(make_agent: MakeAgent) -> None:
    """The log has the address; after a reload the page is there."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        agent = make_agent(gpus=1, sections={"status": {"metrics_listen": f"127.0.0.1:{port}"}})
        agent.start()
        assert f"127.0.0.1:{port}: cannot listen" in agent.log()
    agent.reload()
    end_seconds = time.monotonic() + 10
    page = b""
    while not page and time.monotonic() < end_seconds:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            page = s.recv(65536)

    assert page.startswith(b"HTTP/1.1 200")
    assert f"127.0.0.1:{port}: the agent listens there now" in agent.log()


def test_a_storm_of_reloads_leaves_the_agent_answering(make_agent: MakeAgent) -> None:
    """However many SIGHUPs come, status answers at once and the last one counts."""
    agent = make_agent(gpus=1)
    agent.start()
    assert agent.process is not None
    end_seconds = time.monotonic() + 1
    while time.monotonic() < end_seconds:
        os.kill(agent.process.pid, signal.SIGHUP)
    agent.config_path.write_text("nonsense")
    agent.reload()

    agent.wait_until(lambda s: s["config"]["reload_error"], "the last reload is seen", 5)
