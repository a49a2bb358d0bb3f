"""A machine whose pid 1 is systemd, in private namespaces, to run the shipped unit as a node would.

Everything that it starts or mounts lives in namespaces of its own and one cgroup; leaving the context
kills the namespace's pid 1, which takes every process with it, then removes the cgroup. It must never
touch the host's mounts, units or users.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SYSTEMD = Path("/lib/systemd/systemd")
BOOT_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.05
NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup")


class MachineError(Exception):
    """The machine did not boot, or a command in it failed where it had to succeed."""


def missing_parts() -> str:
    """Return what keeps a machine from starting here, with the command that brings it; empty if nothing."""
    if os.geteuid() != 0:
        return "needs root: sudo make test"
    if not SYSTEMD.exists():
        return "needs systemd: apt-get install systemd"
    programs = {
        "unshare": "util-linux",
        "nsenter": "util-linux",
        "setpriv": "util-linux",
        "journalctl": "systemd",
    }
    for program, package in programs.items():
        if shutil.which(program) is None:
            return f"needs {program}: apt-get install {package}"
    return ""


@dataclass(frozen=True)
class Machine:
    """A booted machine; `init_pid` is its pid 1 as the host sees it."""

    init_pid: int
    console: Path

    def run(
        self, *command: str, check: bool = True, timeout_seconds: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the machine; with `check`, a failure raises MachineError with its output."""
        done = subprocess.run(
            ["nsenter", "--target", str(self.init_pid), *NAMESPACES, "--", *command],
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode != 0:
            raise MachineError(f"{' '.join(command)}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def unit_property(self, unit: str, name: str) -> str:
        """Return one property of a unit as systemd tells it."""
        return self.run("systemctl", "show", "--value", "--property", name, unit).stdout.strip()

    def write(self, path: str, text: str) -> None:
        """Write a file inside the machine, with its parent directories."""
        inside = Path(f"/proc/{self.init_pid}/root{path}")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_text(text, encoding="utf-8")


def wait_until(condition: Callable[[], bool], timeout_seconds: float, what: str) -> None:
    """Return when `condition` holds; raise MachineError naming `what` when it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise MachineError(f"not within {timeout_seconds:.0f} s: {what}")
        time.sleep(POLL_SECONDS)


def _cgroup2_root() -> Path:
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _source, target, kind, *_rest = line.split()
        if kind == "cgroup2":
            return Path(target)
    raise MachineError("no cgroup2 hierarchy is mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")


def _child_of(pid: int) -> int:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return int(text[0]) if text else 0


def _remove_cgroup(group: Path) -> None:
    for directory, _names, _files in os.walk(group, topdown=False):
        wait_until(partial(_rmdir, Path(directory)), 10.0, f"cgroup {directory} empty")


def _rmdir(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _start(group: Path, venv: Path, console: Path) -> subprocess.Popen[bytes]:
    boot = Path(__file__).with_name("boot.sh")
    enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    with_us = ["setpriv", "--pdeathsig", "KILL"]
    unshare = [*with_us, "unshare", *NAMESPACES, "--fork", "--kill-child", "--propagation", "private"]
    with console.open("wb") as output:
        return subprocess.Popen(
            ["sh", "-c", enter, "sh", *unshare, "sh", str(boot), str(venv), str(REPOSITORY)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_for_boot(process: subprocess.Popen[bytes], console: Path) -> Machine:
    def booted() -> bool:
        if process.poll() is not None:
            raise MachineError(f"boot ended with {process.returncode}: {console.read_text(errors='replace')}")
        init_pid = _child_of(process.pid)
        if not init_pid or Path(f"/proc/{init_pid}/comm").read_text(encoding="utf-8").strip() != "systemd":
            return False
        state = Machine(init_pid, console).run("systemctl", "is-active", "harness.target", check=False)
        return state.stdout.strip() == "active"

    wait_until(booted, BOOT_TIMEOUT_SECONDS, f"systemd is up; its console is in {console}")
    return Machine(_child_of(process.pid), console)


@contextmanager
def booted(venv: Path, scratch: Path) -> Iterator[Machine]:
    """Boot a machine with `venv` at /opt/nodeagent; `scratch` takes its console output."""
    group = _cgroup2_root() / f"nodeagent-test-{os.getpid()}"
    group.mkdir()
    process: subprocess.Popen[bytes] | None = None
    try:
        process = _start(group, venv, scratch / "console")
        yield _wait_for_boot(process, scratch / "console")
    finally:
        if process is not None:
            process.kill()
            process.wait(timeout=30)
        _remove_cgroup(group)
