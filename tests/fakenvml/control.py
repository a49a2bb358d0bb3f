"""Builds the scripted NVML library and writes the scenario that drives it.

Tests, benchmarks and the demo use it where a real GPU driver would be; it must
never import pynvml, so that what it says of a GPU and what is read stay apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "src"
LIBRARY_NAME = "libnvidia-ml.so.1"
COMPILER_FLAGS = [
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-pthread",
]
EVENTS_KEPT = 256
LAST_EVENT = "# last event"
EVENT_WORDS = ("event ", "system_event ", LAST_EVENT)
# Functions that came after driver 550: for `start(..., missing=ABSENT_IN_550)`.
ABSENT_IN_550 = (
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetNvLinkInfo",
    "nvmlDeviceGetRemappedRows_v2",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "nvmlSystemEventSetCreate",
    "nvmlSystemEventSetFree",
    "nvmlSystemEventSetWait",
    "nvmlSystemRegisterEvents",
)
_COUNTS_SLOTS = 1024
_MASK_64 = (1 << 64) - 1

# What a reset cures: key and the value after it. Rates of volatile counters end, too.
CLEARED_BY_RESET = {
    "state": "ok",
    "recovery_action": "0",
    "remap.pending": "0",
    "retired.pending": "0",
    "repair.channel": "0",
    "repair.tpc": "0",
    "ecc.corrected.volatile.dram": "0",
    "ecc.corrected.volatile.sram": "0",
    "ecc.uncorrected.volatile.dram": "0",
    "ecc.uncorrected.volatile.sram": "0",
}


class InUseError(Exception):
    """A GPU cannot be reset while a process holds the driver; names the pids."""

    def __init__(self, gpu: int, pids: Sequence[int]) -> None:
        self.pids = tuple(pids)
        names = ", ".join(str(pid) for pid in self.pids)
        super().__init__(f"GPU {gpu} is in use by another client: pid {names}")


def build_library(build_root: Path | None = None, missing: Sequence[str] = ()) -> Path:
    """Return a directory that holds the library, compiled only if it is stale.

    `missing` names functions that the library shall not export, as an old driver
    does not. The default root is one per user under the temporary directory.
    Raises RuntimeError with the compiler's words when it does not compile.
    """
    root = build_root or Path(tempfile.gettempdir()) / f"fakenvml-build-{os.getuid()}"
    digest = hashlib.sha256(repr((COMPILER_FLAGS, sorted(missing))).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    target = root / digest.hexdigest()[:16]
    if (target / LIBRARY_NAME).exists():
        return target
    root.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=root))
    try:
        _compile(scratch, missing)
        with contextlib.suppress(OSError):  # another process was first: its build is as good
            scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _compile(directory: Path, missing: Sequence[str]) -> None:
    if shutil.which("gcc") is None:
        raise RuntimeError("the NVML library is compiled with gcc, which is missing: apt-get install gcc")
    command = ["gcc", *COMPILER_FLAGS, f"-Wl,-soname,{LIBRARY_NAME}"]
    if missing:
        hidden = " ".join(f"{name};" for name in sorted(missing))
        script = directory / "symbols.map"
        script.write_text(f"{{ global: nvml*; local: {hidden} *; }};\n")
        command.append(f"-Wl,--version-script={script}")
    command += ["-o", str(directory / LIBRARY_NAME), *map(str, sorted(SOURCES.glob("*.c"))), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the library does not compile:\n{done.stderr}")


class FakeNvml:
    """One node's GPUs, as the scenario file at `path`; several processes may edit it."""

    def __init__(self, path: Path, build_root: Path | None = None) -> None:
        self.path = Path(path)
        self._build_root = build_root

    # -- the file

    @contextlib.contextmanager
    def edit(self) -> Iterator[list[str]]:
        """Give the scenario's lines to be altered in place, then replace the file by rename."""
        with Path(f"{self.path}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = self.path.read_text(errors="replace").splitlines() if self.path.exists() else []
            yield lines
            fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            fresh.write_text("\n".join(lines) + "\n")
            stamp = time.time_ns()
            os.utime(fresh, ns=(stamp, stamp))  # a coarse clock could give two writes one time
            fresh.replace(self.path)

    def _put(self, prefix: str, text: str) -> None:
        """Replace the lines that begin with the words of `prefix`, else append."""
        with self.edit() as lines:
            lines[:] = [line for line in lines if not f"{line} ".startswith(f"{prefix} ")]
            lines.append(text)

    def remove(self, prefix: str) -> None:
        """Remove every line that begins with the words of `prefix`."""
        with self.edit() as lines:
            lines[:] = [line for line in lines if not f"{line} ".startswith(f"{prefix} ")]

    def start(
        self,
        profile: str,
        gpus: int = 8,
        driver: str | None = None,
        missing: Sequence[str] = (),
    ) -> None:
        """Write a fresh scenario: a healthy idle node of that profile."""
        with self.edit() as lines:
            lines[:] = [f"{LAST_EVENT} {_last_event(lines)}"]
            lines.extend([f"driver {driver}"] if driver else [])
            lines.append(f"profile {profile} {gpus}")
            lines.extend(f"missing {name}" for name in missing)

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment (default: this process's) in which pynvml finds the library."""
        environment = dict(os.environ if base is None else base)
        library = str(build_library(self._build_root, self.missing()))
        others = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{library}:{others}" if others else library
        environment["FAKENVML_SCENARIO"] = str(self.path)
        return environment

    def missing(self) -> list[str]:
        """Return the functions that the scenario says the library lacks."""
        words = [line.split() for line in self.path.read_text(errors="replace").splitlines()]
        return [word[1] for word in words if len(word) == 2 and word[0] == "missing"]

    # -- the driver

    def set_driver(self, version: str, library: str | None = None) -> None:
        """Load another kernel driver ("none": unload); processes with the old library are stale.

        `library` differs from `version` while an upgrade in place waits for the
        reload of the kernel driver: only processes started since then are refused.
        """
        with self.edit() as lines:
            lines[:] = [line for line in lines if line.split()[:1] not in (["driver"], ["library"])]
            lines.insert(0, f"driver {version}")
            if library:
                lines.insert(1, f"library {library}")

    def clients(self) -> list[int]:
        """Return the pids that hold the driver now; forget those that died with it."""
        pids = []
        for entry in sorted(Path(f"{self.path}.clients").glob("*")):
            with contextlib.suppress(FileNotFoundError), entry.open() as held:
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    entry.unlink()
                except BlockingIOError:
                    pids.append(int(entry.name))
        return pids

    def calls(self, function: str) -> int:
        """Return how often `function` was called since the start, by all processes together."""
        try:
            table = Path(f"{self.path}.counts").read_bytes()
        except FileNotFoundError:
            return 0
        key = _hash(function)
        for step in range(_COUNTS_SLOTS):
            found, count = struct.unpack_from("<QQ", table, (key + step) % _COUNTS_SLOTS * 16)
            if found in (0, key):
                return int(count)
        return 0

    # -- the GPUs

    def set_gpu(self, gpu: int | str, key: str, value: object, per_second: float = 0) -> None:
        """Set one key of a GPU ("*": of all); a counter may rise `per_second` from now on."""
        rise = f" rate={per_second} since={time.monotonic():.6f}" if per_second else ""
        self._put(f"gpu {gpu} {key}", f"gpu {gpu} {key} {value}{rise}")

    def set_link(
        self, gpu: int | str, link: int | str, key: str, value: object, per_second: float = 0
    ) -> None:
        """Set one key of an NVLink; a counter may rise `per_second` from now on."""
        rise = f" rate={per_second} since={time.monotonic():.6f}" if per_second else ""
        self._put(f"nvlink {gpu} {link} {key}", f"nvlink {gpu} {link} {key} {value}{rise}")

    def raise_ecc(self, gpu: int, per_second: float, kind: str = "corrected") -> None:
        """Let DRAM errors of a kind ("corrected", "uncorrected") rise, volatile and aggregate."""
        for life in ("volatile", "aggregate"):
            self.set_gpu(gpu, f"ecc.{kind}.{life}.dram", 0, per_second)

    def set_field(self, gpu: int | str, field: int, *, value: int | None = None, code: int = 0) -> None:
        """Override one field value: its number, or the return code in its place."""
        said = f"value {value}" if value is not None else f"return {code}"
        self._put(f"field {gpu} {field}", f"field {gpu} {field} {said}")

    def set_processes(self, gpu: int, processes: Mapping[int, int]) -> None:
        """Set the compute processes of a GPU: pid to bytes of GPU memory."""
        with self.edit() as lines:
            lines[:] = [line for line in lines if not line.startswith(f"process {gpu} ")]
            lines += [f"process {gpu} {pid} {size}" for pid, size in processes.items()]

    def add_event(self, gpu: int, kind: str, data: int, gi: int | None = None, ci: int | None = None) -> int:
        """Raise an event ("xid", "dbe", ...) and return its id; the oldest are dropped."""
        instance = (f" gi={gi}" if gi is not None else "") + (f" ci={ci}" if ci is not None else "")
        return self._append_event("event", f"{gpu} {kind} {data}{instance}")

    def add_system_event(self, kind: str, gpu_id: int) -> int:
        """Raise "unbind" or "bind" of a GPU and return the event's id."""
        return self._append_event("system_event", f"{kind} {gpu_id}")

    def _append_event(self, word: str, rest: str) -> int:
        with self.edit() as lines:
            own = [line for line in lines if line.startswith(f"{word} ")]
            number = _last_event(lines) + 1
            for line in own[: max(0, len(own) - EVENTS_KEPT + 1)]:
                lines.remove(line)
            lines.append(f"{word} {number} {rest}")
        return number

    # -- calls that fail, wait or kill

    def add_rule(
        self,
        function: str,
        action: str,
        *,
        gpu: int | None = None,
        excluded: Sequence[str] = (),
        from_call: int = 1,
        times: int = 0,
        node_wide: bool = False,
    ) -> str:
        """Add a "call" line and return it, for `remove`.

        `action` is "return CODE", "block", "delay MILLISECONDS" or "kill HOW". It
        acts from the `from_call`-th call on, `times` times (0: always), counted in
        each process or over all of them.
        """
        parts = ["call", function, action, f"id={time.monotonic_ns()}"]
        parts += [f"gpu={gpu}"] if gpu is not None else []
        parts += [f"except={','.join(excluded)}"] if excluded else []
        parts += [f"from={from_call}"] if from_call != 1 else []
        parts += [f"times={times}"] if times else []
        parts += ["scope=node"] if node_wide else []
        line = " ".join(parts)
        with self.edit() as lines:
            lines.append(line)
        return line

    def clear_rules(self) -> None:
        """Remove every rule; calls that wait go on."""
        self.remove("call")

    # -- the reset tool

    def reset(self, gpu: int) -> None:
        """Reset a GPU as the driver would. Raises InUseError while a process holds it."""
        users = set(self.clients())
        for line in self.path.read_text(errors="replace").splitlines():
            words = line.split()
            if words[:2] == ["process", str(gpu)]:
                users.add(int(words[2]))
        if users:
            raise InUseError(gpu, sorted(users))
        cleared = [f"gpu {gpu} {key}" for key in CLEARED_BY_RESET] + [f"field {gpu} 230"]
        with self.edit() as lines:
            lines[:] = [line for line in lines if not f"{line} ".startswith(tuple(f"{c} " for c in cleared))]
            lines += [f"gpu {gpu} {key} {value}" for key, value in CLEARED_BY_RESET.items()]


def _last_event(lines: Sequence[str]) -> int:
    """Return the highest event id so far; a fresh start keeps it, as sets in use count on growth."""
    words = [line.removeprefix(LAST_EVENT).split() for line in lines if line.startswith(EVENT_WORDS)]
    return max((int(word[-1] if len(word) == 1 else word[1]) for word in words), default=0)


def _hash(text: str) -> int:
    """FNV-1a, 64 bit, as in src/counters.c."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & _MASK_64
    return value or 1
