"""The agreement between the daemon and both kinds of worker, spoken by the real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent import wire
from nodeagent.child import PARENT_PID_VARIABLE
from nodeagent.observe import gpus, node
from nodeagent.signals import XidEvent
from tests.fakenvml.control import FakeNvml

ROOT = Path(__file__).parents[2]
MODULES = {
    "nvml": ("nodeagent.drivers.nvml", gpus.SIGNALS),
    "host": ("nodeagent.drivers.host", node.SIGNALS),
}
OF_SOME_NODES = {"ib.counters", "net.target", "net.gateway"}
"""Of ports that there are, targets that are configured, and gateways where no target is."""
HEAVY = {"asyncio", "structlog", "prometheus_client", "hypothesis", "http.client", "urllib.request", "ssl"}

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing: apt-get install gcc")
kinds = pytest.mark.parametrize("kind", MODULES)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a node with eight scripted GPUs, as the daemon would give it."""
    fake = FakeNvml(tmp_path / "scenario")
    fake.start("H100")
    return {**fake.environment(), "PYTHONPATH": str(ROOT), PARENT_PID_VARIABLE: str(os.getpid())}


def converse(kind: str, environment: dict[str, str], *requests: wire.Request) -> list[wire.Message]:
    """Everything a worker says until it leaves at the end of its input."""
    command = (sys.executable, "-P", "-m", MODULES[kind][0])
    asked = b"".join(map(wire.encode, requests))
    pipe = subprocess.PIPE
    done = subprocess.run(command, input=asked, stdout=pipe, env=environment, timeout=60, check=True)
    return [wire.decode_message(line) for line in done.stdout.splitlines()]


@kinds
def test_every_request_has_one_end_after_all_its_values(kind: str, environment: dict[str, str]) -> None:
    """Two requests give two ends in order, and nothing but events may follow the last."""
    said = converse(kind, environment, wire.request(1), wire.request(2))
    ends = [message for message in said if isinstance(message, wire.Done)]
    assert [end.id for end in ends] == [1, 2]
    assert all(end.error_kind is None for end in ends)
    assert isinstance([message for message in said if not isinstance(message, XidEvent)][-1], wire.Done)


@kinds
def test_every_value_is_of_the_signals_own_type(kind: str, environment: dict[str, str]) -> None:
    """Signals are those of the sampler, each value decodes, no target is said twice."""
    said = converse(kind, environment, wire.request(1))
    values = [message for message in said if isinstance(message, wire.Value | wire.Missing)]
    told, known = {message.signal for message in values}, set(MODULES[kind][1])
    assert told <= known
    assert known - told <= OF_SOME_NODES
    assert len({(message.signal, message.target) for message in values}) == len(values)
    for message in values:
        if isinstance(message, wire.Value):
            assert message.typed() is not None


@kinds
def test_a_mark_stands_before_every_value(kind: str, environment: dict[str, str]) -> None:
    """The first word is a mark, so that even the first call has a name when it hangs."""
    said = converse(kind, environment, wire.request(1))
    assert isinstance(said[0], wire.Mark)
    first = next(n for n, message in enumerate(said) if isinstance(message, wire.Value | wire.Missing))
    assert all(isinstance(message, wire.Mark) for message in said[:first])
    assert all(message.call for message in said if isinstance(message, wire.Mark))


@kinds
def test_only_the_end_of_input_ends_a_worker(kind: str, environment: dict[str, str]) -> None:
    """SIGTERM and SIGINT, as a service manager sends to all, do not end it inside a call; its pipe does."""
    command = (sys.executable, "-P", "-m", MODULES[kind][0])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        for number in (1, 2):
            process.stdin.write(wire.encode(wire.request(number)))
            process.stdin.flush()
            while not isinstance(message := wire.decode_message(process.stdout.readline()), wire.Done):
                pass
            assert message.id == number
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
        process.stdin.close()
        assert process.wait(10) == 0


@kinds
def test_a_worker_of_another_parent_leaves_at_once(kind: str, environment: dict[str, str]) -> None:
    """A child whose daemon died before it could follow it does not stay."""
    environment[PARENT_PID_VARIABLE] = "1"
    assert converse(kind, environment, wire.request(1)) == []


@kinds
def test_a_worker_imports_little(kind: str) -> None:
    """No event loop, no logger, no HTTP client: two small processes stand beside the daemon."""
    module = MODULES[kind][0]
    program = f"import sys, runpy; runpy.run_module('{module}', run_name='x'); print(*sys.modules)"
    command = (sys.executable, "-P", "-c", program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    loaded = done.stdout.split()
    assert not HEAVY & set(loaded)
    assert ("pynvml" in loaded) == (kind == "nvml")


def test_the_daemons_side_never_loads_pynvml() -> None:
    """Importing the worker and the samplers leaves pynvml to the child."""
    program = "import sys, nodeagent.observe.gpus, nodeagent.observe.node; print('pynvml' in sys.modules)"
    command = (sys.executable, "-c", program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "False"
