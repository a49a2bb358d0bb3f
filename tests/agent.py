"""Runs the real daemon in a directory of its own, against scripted GPUs and a scripted kernel log.

Tests, the demo and the benchmarks share it. It never touches the host's own agent, its kernel log,
or a process that it has not started.
"""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import processes
from tests.fakenvml.control import FakeNvml
from tests.kernel_log import KernelLog

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 60.0
STOP_SECONDS = 40.0
POLL_SECONDS = 0.02
NODE_NAME = "gpu-node-1"
DRIVER = "580.95.05"

Sections = Mapping[str, Mapping[str, Any]]
Status = dict[str, Any]

OWN_NETWORK = ("link.down", "link.flaps", "ib.down", "ib.flaps", "net.unreachable", "conntrack.full",
               "neighbour.full")  # fmt: skip
"""Checks of the machine's own network."""
OWN_HOST = ("clock.unsynced", "kubelet.down", "disk.full", "disk.inodes", "disk.read_only", "disk.io_errors",
            "process.stuck", "oom.kills", "kernel.hung_task", "runtime.down", "memory.pressure")  # fmt: skip
"""And of its kernel, disks and daemons."""
QUICK: dict[str, dict[str, Any]] = {
    "gpu": {"poll_seconds": 1.0, "call_deadline_seconds": 1.0, "stuck_seconds": 3.0},
    **{f'checks."{name}"': {"enabled": False} for name in (*OWN_HOST, *OWN_NETWORK)},
}
"""Short periods, and no check whose answer depends on the machine that runs the tests."""


def prompt(*checks: str) -> dict[str, dict[str, Any]]:
    """Sections in which these checks raise at the first bad poll and clear at the first proof."""
    rule = {"bad_polls": 1, "of_polls": 1, "good_polls": 1, "minimum_seconds": 0}
    return {f'checks."{check}"': dict(rule) for check in checks}


def quick_to_clear(*checks: str) -> dict[str, dict[str, Any]]:
    """Sections in which these checks raise as they always do, and clear at the first proof."""
    return {f'checks."{check}"': {"good_polls": 1, "minimum_seconds": 0} for check in checks}


def toml(sections: Sections) -> str:
    """Sections as TOML; strings, numbers, booleans and lists of them."""
    lines = []
    for name, keys in sections.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


class Agent:
    """One node: GPUs, kernel log, configuration, and the daemon when it runs.

    As a context manager it starts the daemon and leaves nothing behind, whatever happened.
    """

    def __init__(
        self,
        directory: Path,
        *,
        sections: Sections | None = None,
        profile: str = "H100",
        gpus: int = 8,
        pace_seconds: float | None = 0.25,
        prefix: Sequence[str] = (),
        build_root: Path | None = None,
    ) -> None:
        """`pace_seconds` None is the daemon's own pace; `prefix` words stand before its command.

        `build_root` is where the NVML library is compiled, by default a place kept between runs.
        """
        self.directory = directory
        self.mark = uuid.uuid4().hex
        self.socket_path = directory / "run" / "status.sock"
        self.state_file = directory / "state" / "memory.json"
        self.log_path = directory / "agent.log"
        self.proc_root = directory / "proc"
        self.config_path = directory / "nodeagent.toml"
        self.fake = FakeNvml(directory / "scenario", build_root)
        self.fake.start(profile, gpus=gpus, driver=DRIVER)
        self.kernel_log = KernelLog(directory / "kmsg")
        self.process: subprocess.Popen[bytes] | None = None
        self.program = [sys.executable, "-m", "nodeagent"]
        self._pace_seconds = pace_seconds
        self.prefix = list(prefix)
        self._manager = self._listen()
        self._make_proc()
        self.configure(sections or {})

    # -- life

    def __enter__(self) -> Agent:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, *, wait: bool = True) -> None:
        """Start the daemon; with `wait` return once it says READY."""
        self.kernel_log.replay()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *self.command(), "run"], env=self.environment(),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Return when the daemon has told its service manager that it is ready."""
        end_seconds = time.monotonic() + START_SECONDS
        while "READY=1" not in self._told():
            if self.process is None or self.process.poll() is not None:
                raise AssertionError(f"the agent ended at start:\n{self.log()}")
            if time.monotonic() > end_seconds:
                raise AssertionError(f"the agent is not ready after {START_SECONDS:g} s:\n{self.log()}")
            time.sleep(POLL_SECONDS)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the daemon, wait for its end and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"the agent did not end in {STOP_SECONDS:g} s:\n{self.log()}") from error

    def kill(self) -> None:
        """SIGKILL the daemon alone and wait for its end."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        """End every process of this node and close what is open."""
        if self.process is not None:
            self.process.kill()  # just forked, it may not carry the marker yet
        processes.end_marked(self.mark)
        if self.process is not None:
            self.process.wait(STOP_SECONDS)
        self._manager.close()
        with contextlib.suppress(OSError):
            self.kernel_log.close()

    # -- what it is given

    def command(self) -> list[str]:
        """The command line of `nodeagent` on this node, without its verb."""
        return [*self.program, "--config", str(self.config_path)]

    def environment(self) -> dict[str, str]:
        """Environment of the daemon: the scripted library, a service manager, the marker."""
        environment = self.fake.environment()
        environment |= {
            processes.MARKER: self.mark, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1",
            "NOTIFY_SOCKET": str(self.directory / "notify"),
        }
        if self._pace_seconds is not None:  # a watched daemon cycles twice in each watchdog period
            environment["WATCHDOG_USEC"] = str(int(self._pace_seconds * 2e6))
        return environment

    def configure(self, sections: Sections) -> None:
        """Write the configuration: the harness's paths, QUICK, and `sections` over both."""
        merged: dict[str, dict[str, Any]] = {
            "node": {
                "name": NODE_NAME, "kernel_log": str(self.kernel_log.path),
                "state_file": str(self.state_file), "proc_root": str(self.proc_root),
            },
            "status": {"socket": str(self.socket_path), "metrics_listen": ""},
        }
        for source in ({"gpu": {"enabled": "true"}}, QUICK, sections):
            for name, keys in source.items():
                merged[name] = {**merged.get(name, {}), **keys}
        self.config_path.write_text(toml(merged))

    def reload(self) -> None:
        """Have the daemon read its configuration anew."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def boot(self) -> None:
        """Pretend that the node has booted: another boot id, an empty kernel log. For a stopped daemon."""
        file = self.proc_root / "sys" / "kernel" / "random" / "boot_id"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{uuid.uuid4()}\n")
        self.kernel_log.records.clear()

    def set_driver(self, version: str) -> None:
        """Load another driver version, in NVML and in /proc alike."""
        self.fake.set_driver(version)
        self._write_driver_version(version)

    # -- what it says

    def raw(self, path: str) -> bytes:
        """Answer of one GET over the socket. Raises OSError when nobody listens."""
        return self._ask(f"GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")

    def get(self, path: str) -> Status:
        """The same, decoded."""
        return dict(json.loads(self.raw(path)))

    def post(self, path: str, body: object = None) -> Status:
        """Answer of one POST over the socket, decoded."""
        data = json.dumps(body) if body is not None else ""
        head = f"POST {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {len(data)}\r\nConnection: close"
        return dict(json.loads(self._ask(f"{head}\r\n\r\n{data}")))

    def _ask(self, request: str) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(self.socket_path))
            connection.sendall(request.encode())
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        return answer.partition(b"\r\n\r\n")[2]

    def status(self) -> Status:
        """`nodeagent status --json`, without the cost of the command."""
        return self.get("/v1/status")

    def cli(self, *arguments: str, deadline_seconds: float = 30) -> tuple[int, str]:
        """Run a `nodeagent` command; exit code and everything it printed."""
        done = subprocess.run(
            [*self.command(), *arguments], env=self.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=deadline_seconds, check=False,
        )
        return done.returncode, done.stdout.decode()

    def wait_until(
        self, holds: Callable[[Status], object], what: str, deadline_seconds: float = 30
    ) -> Status:
        """The first status for which `holds` is true; AssertionError with the last one otherwise."""
        end_seconds = time.monotonic() + deadline_seconds
        status: Status = {}
        while time.monotonic() < end_seconds:
            with contextlib.suppress(OSError):
                status = self.status()
                if holds(status):
                    return status
            time.sleep(POLL_SECONDS)
        shown = json.dumps({**status, "rows": faults(status)})
        raise AssertionError(f"not within {deadline_seconds:g} s: {what}\n{shown}\n{self.log()}")

    def log(self) -> str:
        """The messages of the last lines that the daemon wrote."""
        lines = self.log_path.read_text(errors="replace").splitlines()[-30:]
        return "\n".join(_message(line) for line in lines)

    def workers(self) -> dict[str, int]:
        """Kind and pid of each worker process that status names."""
        return {w["kind"]: w["pid"] for w in self.status()["workers"] if w["pid"]}

    def processes(self) -> dict[int, str]:
        """Every living process of this node, the daemon included."""
        return processes.marked(self.mark)

    def pci(self, gpu: int) -> str:
        """PCI address of a GPU by its index, as status has it."""
        return self.addresses[gpu]

    @functools.cached_property
    def addresses(self) -> dict[int, str]:
        """PCI address of each GPU by its index, as status had them first."""
        return {r["gpu_index"]: r["target"] for r in self.status()["rows"] if r["gpu_index"] is not None}

    # -- inside

    def _listen(self) -> socket.socket:
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.bind(str(self.directory / "notify"))
        manager.setblocking(False)
        return manager

    def _told(self) -> list[str]:
        lines: list[str] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                lines += self._manager.recv(4096).decode().splitlines()
        return lines

    def _make_proc(self) -> None:
        """A /proc of our own: a boot id, the mounts of pid 1, and the file of a loaded NVIDIA driver."""
        self.proc_root.mkdir()
        (self.proc_root / "1").symlink_to("/proc/1")
        self._write_driver_version(DRIVER)
        self.boot()

    def _write_driver_version(self, version: str) -> None:
        folder = self.proc_root / "driver" / "nvidia"
        folder.mkdir(parents=True, exist_ok=True)
        banner = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Release Build\n"
        (folder / "version.new").write_text(banner)
        (folder / "version.new").replace(folder / "version")


def _message(line: str) -> str:
    with contextlib.suppress(ValueError):
        said = json.loads(line)
        return f"{said['timestamp']} {said['message']} {said.get('nodeagent_traceback', '')}"
    return line


def faults(status: Status) -> list[dict[str, Any]]:
    """Rows that are neither ok nor not applicable."""
    return [row for row in status.get("rows", []) if row["state"] not in ("ok", "not_applicable")]


def row(status: Status, check: str, target: str | None = None) -> dict[str, Any]:
    """The row of a check on a target (default: its only or worst one); {} when there is none."""
    rows = [r for r in status["rows"] if r["id"] == check and target in (None, r["target"])]
    return dict(rows[0]) if rows else {}


def is_raised(status: Status, check: str, target: str | None = None) -> bool:
    """True when that row is a warning or critical."""
    return row(status, check, target).get("state") in ("warning", "critical")
