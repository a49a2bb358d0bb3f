"""How each budget is measured, on the real daemon with eight scripted GPUs.

A measure returns one number in the unit of its budget. Time is measured as a difference or a ratio
within one run, so that the machine's speed matters as little as it can.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import processes
from tests.agent import OWN_NETWORK, Agent, is_raised

GPUS = 8
OWN_PACE: dict[str, dict[str, Any]] = {
    "gpu": {"poll_seconds": 15.0, "call_deadline_seconds": 10.0, "stuck_seconds": 30.0},
    'checks."disk.full"': {"enabled": True},
    'checks."clock.unsynced"': {"enabled": True},
    'checks."kubelet.down"': {"enabled": True},
    **{f'checks."{name}"': {"enabled": True} for name in OWN_NETWORK},
}
"""What a node without any configuration of its own does."""
MIB_BYTES = 1 << 20
SLEEPERS = """
import os
for _ in range({count}):
    if os.fork() == 0:
        os.read(0, 1)
        os._exit(0)
os.write(1, b"x")
while True:
    try:
        os.wait()
    except ChildProcessError:
        os._exit(0)
"""


@contextlib.contextmanager
def running(**options: Any) -> Iterator[Agent]:
    """A daemon at its own pace, in a directory that is removed afterwards."""
    options = {"sections": OWN_PACE, "pace_seconds": None, **options}
    with tempfile.TemporaryDirectory(prefix="nodeagent-bench-") as folder:
        program = options.pop("program", None)
        agent = Agent(Path(folder), **options)
        agent.program = program or agent.program
        with agent:
            yield agent


@contextlib.contextmanager
def sleeping_processes(count: int) -> Iterator[None]:
    """So many processes that do nothing; they end when the pipe they read does."""
    command = [sys.executable, "-I", "-S", "-c", SLEEPERS.format(count=count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        try:
            parent.stdout.read(1)
            yield
        finally:
            parent.stdin.close()
            parent.wait(60)


def cpu_percent(seconds: float = 45.0, others: int = 3000) -> float:
    """Percent of one core that daemon and workers use while nothing happens."""
    sections = {**OWN_PACE, "node": {"proc_root": "/proc"}}
    with sleeping_processes(others), running(sections=sections) as agent:
        time.sleep(5)  # the first reads and the imports are not the steady state
        pids = list(agent.processes())
        before_seconds = sum(map(processes.cpu_seconds, pids))
        began_seconds = time.monotonic()
        time.sleep(seconds)
        if sorted(agent.processes()) != sorted(pids):
            raise RuntimeError("a worker was replaced while its cost was measured")
        used_seconds = sum(map(processes.cpu_seconds, pids)) - before_seconds
        return 100 * used_seconds / (time.monotonic() - began_seconds)


@contextlib.contextmanager
def cycling() -> Iterator[Agent]:
    """A daemon that may cycle as fast as it can."""
    program = [sys.executable, str(Path(__file__).with_name("fast_daemon.py"))]
    with running(program=program) as agent:
        yield agent


def cycle_until(agent: Agent, cycles: int) -> None:
    """Read everything and judge it, again and again, until so many cycles have ended.

    Now and then an application fails, as on a node that works.
    """
    number = agent.status()["cycle"]["number"]
    while number < cycles:
        for _ in range(25):
            agent.post("/v1/check")
        agent.kernel_log.xid(agent.addresses[number % GPUS], random.choice((13, 31, 43)))
        number = agent.status()["cycle"]["number"]


def memory_bytes(agent: Agent) -> int:
    """Proportional set size of the daemon and both workers together."""
    pids = list(agent.processes())
    if len(pids) != 3:
        raise RuntimeError(f"three processes expected, {len(pids)} found")
    return sum(map(processes.pss_bytes, pids))


def memory_mib(cycles: int = 2000) -> float:
    """MiB of daemon and workers after so many cycles."""
    with cycling() as agent:
        cycle_until(agent, cycles)
        return memory_bytes(agent) / MIB_BYTES


def slope_mib(first: int = 1000, last: int = 6000, step: int = 250) -> float:
    """MiB that the regression line over these cycles rises in a thousand of them."""
    cycles, mib = [], []
    with cycling() as agent:
        for target in range(first, last + 1, step):
            cycle_until(agent, target)
            cycles.append(agent.status()["cycle"]["number"])
            mib.append(memory_bytes(agent) / MIB_BYTES)
    return 1000 * statistics.linear_regression(cycles, mib).slope


def status_milliseconds(pairs: int = 21) -> float:
    """`nodeagent status` above a python that does nothing: median of paired runs."""
    with running() as agent:
        idle = [sys.executable, "-c", "pass"]
        status = [*agent.command(), "status"]
        environment = agent.environment()
        differences = []
        for _ in range(pairs):
            idle_seconds, status_seconds = (_duration_seconds(c, environment) for c in (idle, status))
            differences.append(status_seconds - idle_seconds)
    return 1000 * statistics.median(differences)


def _duration_seconds(command: list[str], environment: dict[str, str]) -> float:
    began_seconds = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began_seconds


def xid_seconds(source: str, runs: int = 50) -> float:
    """95th percentile from an Xid 79 raised to a changed status, with all other NVML calls blocked."""
    delays: list[float] = []
    while len(delays) < runs:
        with running(sections={**OWN_PACE, "gpu": {"poll_seconds": 1.0}}) as agent:
            agent.fake.add_rule("*", "block", excluded=["nvmlEventSetWait_v2"])
            agent.wait_until(lambda s: s["pending_calls"], "every NVML call blocks")
            for gpu in range(min(GPUS, runs - len(delays))):
                time.sleep(random.uniform(0.05, 0.45))  # at any moment between two cycles
                delays.append(_raise_79(agent, gpu, source))
    return statistics.quantiles(delays, n=20, method="inclusive")[18]


def _raise_79(agent: Agent, gpu: int, source: str) -> float:
    address = agent.addresses[gpu]
    began_seconds = time.perf_counter()
    if source == "kernel":
        agent.kernel_log.xid(address, 79, "GPU has fallen off the bus.")
    else:
        agent.fake.add_event(gpu, "xid", 79)
    agent.wait_until(lambda s: is_raised(s, "xid", address), f"Xid 79 of GPU {gpu} is raised", 5)
    return time.perf_counter() - began_seconds
