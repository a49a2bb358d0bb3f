"""Start, reload, second instance and end of the daemon; what it holds stays what it was."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests import processes
from tests.agent import Agent
from tests.e2e.conftest import MakeAgent


def test_a_second_daemon_gives_up_and_names_the_first(agent: Agent) -> None:
    """Exit code 69, the holder's pid in the sentence, and the first one unharmed."""
    assert agent.process is not None
    code, said = agent.cli("run")

    assert code == 69
    assert str(agent.process.pid) in said
    assert agent.status()["verdict"]["state"] == "ok"


def test_a_bad_configuration_leaves_the_good_one_in_force(agent: Agent) -> None:
    """SIGHUP with an unknown key: status says so, the limits stay, a repaired file ends the complaint."""
    good = agent.config_path.read_text()
    agent.config_path.write_text(f"{good}\n[nod]\nname = 1\n")
    agent.reload()
    status = agent.wait_until(lambda s: s["config"]["reload_error"], "the problem is shown")
    assert "nod" in status["config"]["reload_error"]
    assert status["gpus"]["healthy"] == 8

    agent.config_path.write_text(good)
    agent.reload()
    agent.wait_until(lambda s: not s["config"]["reload_error"], "the problem is gone")


def test_a_bad_configuration_at_start_is_named(make_agent: MakeAgent) -> None:
    """Exit code 78 and one sentence with the key, before anything is touched."""
    agent = make_agent()
    agent.config_path.write_text('[gpu]\npoll_secs = 3\n')
    code, said = agent.cli("run")

    assert code == 78
    assert "poll_secs" in said
    assert not agent.socket_path.parent.exists()


def test_sigterm_leaves_nothing_but_the_state_file(agent: Agent) -> None:
    """Exit code 0; no process, socket, lock or scratch file."""
    before = _files(agent.directory)
    assert agent.socket_path in before
    assert agent.stop(signal.SIGTERM) == 0

    assert agent.processes() == {}
    assert _files(agent.socket_path.parent) == set()
    assert _files(agent.state_file.parent) == {agent.state_file}
    assert agent.fake.clients() == []


def test_sigterm_ends_a_daemon_whose_nvml_hangs(agent: Agent) -> None:
    """A worker inside a call that never returns does not outlive the daemon."""
    agent.fake.add_rule("*", "block")
    agent.wait_until(lambda s: s["pending_calls"], "a call is pending")
    assert agent.stop() == 0
    end_seconds = time.monotonic() + 2
    while agent.processes() and time.monotonic() < end_seconds:
        time.sleep(0.02)

    assert agent.processes() == {}


def test_nothing_leaks(agent: Agent) -> None:
    """After reads, faults, reloads, refused requests and worker deaths it holds what it held before."""
    assert agent.process is not None
    pid = agent.process.pid
    _exercise(agent, 2)
    before = _held(pid)
    _exercise(agent, 8)

    assert _held(pid) == before


def _exercise(agent: Agent, rounds: int) -> None:
    for number in range(rounds):
        agent.kernel_log.xid(agent.pci(number % 8), 31)
        agent.fake.add_event(number % 8, "xid", 43)
        agent.reload()
        agent.get("/nowhere")
        agent.post("/v1/check")
        if number % 4 == 0:
            old = agent.workers()
            for worker in old.values():
                os.kill(worker, signal.SIGKILL)
            agent.post("/v1/check")
            agent.wait_until(lambda s, old=old: _idle(s, old), "both workers are replaced", 20)
    agent.wait_until(lambda s: _idle(s, {}), "the workers are idle")


def _idle(status: dict, old: dict[str, int]) -> bool:
    return all(w["state"] == "idle" and w["pid"] != old.get(w["kind"]) for w in status["workers"])


def _held(pid: int) -> tuple[int, list[str], int]:
    """Threads, descriptors and children, once a save in flight is over."""
    end_seconds = time.monotonic() + 5
    while processes.threads(pid) > 1 and time.monotonic() < end_seconds:
        time.sleep(0.02)
    return processes.threads(pid), processes.descriptors(pid), len(processes.children(pid))


def _files(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if not path.is_dir()}


def test_a_terminal_that_closes_ends_what_was_started_on_it(make_agent: MakeAgent) -> None:
    """SIGHUP reloads a service, but ends a daemon whose standard input is a terminal."""
    agent = make_agent()
    ours, theirs = os.openpty()
    try:
        agent.process = subprocess.Popen(
            [*agent.command(), "run"], env=agent.environment(), stdin=theirs,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        agent.wait_until(lambda s: s["phase"] == "running", "it runs")
        code = agent.stop(signal.SIGHUP)
    finally:
        os.close(ours)
        os.close(theirs)

    assert code == 0
    assert processes.marked(agent.mark) == {}
