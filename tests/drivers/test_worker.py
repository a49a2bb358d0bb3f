"""A worker's child may hang, die and lie; the daemon's side of the pipe stays in order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent import wire
from nodeagent.drivers.worker import Worker
from nodeagent.errors import DriverError, ErrorKind
from tests.drivers.rig import ECHO, HandClock, alive, run, scripted, until, until_state, worker

ROOT = Path(__file__).parents[2]
BLOCKED = "sys.stdin.readline()\nmark('nvmlInit')\ntime.sleep(600)\n"
GATED = """
gate = %r
for line in sys.stdin:
    mark('gate')
    while not os.path.exists(gate): time.sleep(0.01)
    done(json.loads(line)['id'])
"""


def gated(path: Path) -> tuple[str, ...]:
    """A child whose call returns as soon as a file exists."""
    return scripted(GATED % str(path))


def test_a_late_answer_is_used(tmp_path: Path) -> None:
    """A call that was counted stuck and returns by itself ends in a good read by the same process."""

    async def main(it: Worker) -> None:
        reading = asyncio.create_task(it.read())
        stuck = await until_state(it, "stuck")
        assert (stuck.pending_call, stuck.misses >= 3) == ("gate", True)
        (tmp_path / "gate").touch()
        assert (await reading).error_kind is None
        idle = it.status
        assert (idle.state, idle.pid, idle.misses, idle.restarts) == ("idle", stuck.pid, 0, 0)
        assert idle.pending_call is None

    run(main, worker(gated(tmp_path / "gate"), kill_seconds=60))


def test_a_stuck_child_is_killed_and_replaced_once() -> None:
    """A call that hangs beyond the kill deadline ends the read by name, and the next read has a new child."""

    async def main(it: Worker) -> None:
        pids = []
        for restarts in (1, 2):
            reading = asyncio.create_task(it.read())
            pids.append((await until_state(it, "stuck")).pid)
            with pytest.raises(DriverError, match="nvmlInit did not return in") as failed:
                await reading
            assert failed.value.kind is ErrorKind.TIMEOUT
            assert it.status.restarts == restarts
        assert pids[0] != pids[1]
        assert not any(alive(pid) for pid in pids if pid)

    run(main, worker(scripted(BLOCKED)))


def test_a_child_inside_a_call_is_not_killed_until_it_counts_as_stuck(tmp_path: Path) -> None:
    """Parking refuses while a call is in flight and leaves the process; the call's return completes it."""

    async def main(it: Worker) -> None:
        reading = asyncio.create_task(it.read())
        await until(lambda: it.status.pending_call == "gate")
        pid = it.status.pid
        with pytest.raises(DriverError, match="gate has not returned yet") as refused:
            await it.park("released")
        assert refused.value.kind is ErrorKind.TIMEOUT
        assert pid is not None and alive(pid)
        (tmp_path / "gate").touch()
        with pytest.raises(DriverError) as ended:
            await reading
        assert ended.value.kind is ErrorKind.BUSY
        await until_state(it, "released")
        assert not alive(pid)

    run(main, worker(gated(tmp_path / "gate"), stuck_seconds=60, call_deadline_seconds=60, stop_seconds=0.2))


def test_a_stuck_child_does_not_stand_in_the_way_of_a_release() -> None:
    """Parking kills a child that is already counted stuck."""

    async def main(it: Worker) -> None:
        reading = asyncio.create_task(it.read())
        pid = (await until_state(it, "stuck")).pid
        await it.release()
        assert it.status.state == "released"
        assert pid is not None and not alive(pid)
        with pytest.raises(DriverError):
            await reading

    run(main, worker(scripted(BLOCKED), kill_seconds=600, stop_seconds=0.2))


def test_a_killed_child_is_named_and_replaced() -> None:
    """kill -9 on an idle child shows as died and the next read succeeds with another process."""

    async def main(it: Worker) -> None:
        await it.read()
        first = it.status.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: it.status.pid is None)
        status = it.status
        assert (status.error_kind, status.error_cause, status.restarts) == (ErrorKind.LOST, "died", 1)
        assert "signal 9" in status.error_detail
        await it.read()
        assert it.status.pid not in (None, first)
        assert it.status.error_kind is None

    run(main, worker(scripted(ECHO)))


def test_a_crash_during_a_call_names_the_call() -> None:
    """The status of a child that crashed says in which call it was."""

    async def main(it: Worker) -> None:
        with pytest.raises(DriverError) as failed:
            await it.read()
        assert failed.value.kind is ErrorKind.LOST
        assert "signal 11 during nvmlDeviceGetName" in it.status.error_detail

    crash = "sys.stdin.readline()\nmark('nvmlDeviceGetName')\nos.kill(os.getpid(), 11)\n"
    run(main, worker(scripted(crash)))


def test_restarts_back_off_and_a_good_read_resets_them(tmp_path: Path) -> None:
    """The pause doubles from 1 s to 10 min, scaled by the injected jitter, until a read succeeds."""
    clock = HandClock()
    body = f"if not os.path.exists({str(tmp_path / 'well')!r}): sys.exit(1)\n" + ECHO

    async def failing(it: Worker) -> float:
        with pytest.raises(DriverError):
            await it.read()
        pause_seconds = it.ready_at_seconds - clock.now_seconds
        assert it.status.state == "backoff"
        with pytest.raises(DriverError, match="started again in") as refused:
            await it.read()
        assert refused.value.kind is ErrorKind.BUSY
        clock.now_seconds = it.ready_at_seconds
        return pause_seconds

    async def main(it: Worker) -> None:
        pauses = [await failing(it) for _ in range(12)]
        assert pauses == [0.5 * min(600, 2**n) for n in range(12)]
        (tmp_path / "well").touch()
        await it.read()
        (tmp_path / "well").unlink()
        await it.replace("test")
        assert it.ready_at_seconds - clock.now_seconds == 0.5

    run(main, worker(scripted(body), clock=clock, entropy=lambda: 0.5))


def test_a_worker_that_cannot_start_is_an_error_and_not_a_crash() -> None:
    """A command that does not exist is absent, shown in the status, and backs off."""

    async def main(it: Worker) -> None:
        with pytest.raises(DriverError) as failed:
            await it.read()
        assert failed.value.kind is ErrorKind.ABSENT
        assert "cannot start the worker" in it.status.error_detail

    run(main, worker(("/nonexistent/python",)))


def test_the_child_gets_nothing_of_the_daemons_but_two_pipes() -> None:
    """No descriptor, no session and no notify socket is inherited."""
    body = (
        "sys.stdin.readline()\n"
        "fds = sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[3:-1]\n"
        "bad = fds or os.getsid(0) != os.getpid() or 'NOTIFY_SOCKET' in os.environ\n"
        "say('{\"type\":\"done\",\"id\":1,\"error_detail\":\"%s\"}' % (bad or ''))\nsys.stdin.read()\n"
    )

    async def main(it: Worker) -> None:
        assert (await it.read()).error_detail == ""

    with open(os.devnull) as other:  # noqa: PTH123 - an inheritable descriptor is the point
        os.set_inheritable(other.fileno(), True)
        os.environ["NOTIFY_SOCKET"] = "/nonexistent"
        try:
            run(main, worker(scripted(body)))
        finally:
            del os.environ["NOTIFY_SOCKET"]


DAEMON = """
import asyncio, sys
from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.worker import Worker, python_module
async def main():
    it = Worker("host", python_module("nodeagent.drivers.host"), SystemClock())
    await it.read()
    print(it.status.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_a_killed_daemon_leaves_no_child() -> None:
    """The kernel ends the worker with its daemon, also when the daemon had no chance to say so."""
    command = (sys.executable, "-c", DAEMON)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as daemon:
        assert daemon.stdout is not None
        pid = int(daemon.stdout.readline())
        assert alive(pid)
        daemon.kill()
    asyncio.run(until(lambda: not alive(pid)))


def test_a_second_read_while_one_is_pending_is_refused(tmp_path: Path) -> None:
    """One request at a time: the second is busy and does not disturb the first."""

    async def main(it: Worker) -> None:
        first = asyncio.create_task(it.read())
        await until(lambda: it.status.pending_call == "gate")
        with pytest.raises(DriverError, match="another read is pending"):
            await it.read()
        (tmp_path / "gate").touch()
        assert (await first) == wire.Done(id=1)

    run(main, worker(gated(tmp_path / "gate")))
