"""Small counters of the kernel in /proc: memory pressure, out-of-memory kills, hung tasks.

Nothing is judged and no setting of the kernel is changed. A kernel without one of them is told apart from
one that could not be read.
"""

from __future__ import annotations

import re
from pathlib import Path

from nodeagent.drivers.host.system import read_bounded
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.host_signals import KernelCount, MemoryPressure
from nodeagent.model import NODE
from nodeagent.wire import HostArguments

_AVERAGES = re.compile(r"^(some|full) .*\bavg60=(\d{1,3}(?:\.\d{1,6})?)", re.MULTILINE)
_MEMORY = re.compile(r"^(MemTotal|MemAvailable): +(\d{1,18}) kB", re.MULTILINE)
_OOM_KILLS = re.compile(r"^oom_kill (\d{1,20})$", re.MULTILINE)


def memory_pressure(arguments: HostArguments) -> MemoryPressure:
    """Pressure of the last 60 s, and what is available. Raises DriverError: absent where PSI is off."""
    path = Path(arguments.proc_root, "pressure/memory")
    try:
        text = _text(path)
    except DriverError as error:
        if error.kind is ErrorKind.ABSENT:
            detail = "this kernel measures no pressure; boot it with psi=1"
            raise DriverError(ErrorKind.ABSENT, NODE, f"read {path}", detail) from error
        raise
    averages = {kind: float(percent) for kind, percent in _AVERAGES.findall(text)}
    memory = {name: int(count) << 10 for name, count in _MEMORY.findall(_meminfo(arguments))}
    if averages.keys() != {"some", "full"} or memory.keys() != {"MemTotal", "MemAvailable"}:
        raise DriverError(ErrorKind.INVALID, NODE, f"read {path}", f"no averages in {text[:120]!r}")
    return MemoryPressure(
        some_percent=averages["some"], full_percent=averages["full"],
        available_bytes=memory["MemAvailable"], size_bytes=memory["MemTotal"],
    )


def oom_kills(arguments: HostArguments) -> KernelCount:
    """Processes killed for want of memory since boot. Raises DriverError: absent before Linux 4.13."""
    path = Path(arguments.proc_root, "vmstat")
    found = _OOM_KILLS.search(_text(path))
    if found is None:
        raise DriverError(ErrorKind.ABSENT, NODE, f"read {path}", "this kernel does not count its kills")
    return KernelCount(total_count=int(found[1]))


def hung_tasks(arguments: HostArguments) -> KernelCount:
    """Reports of hung tasks since boot.

    Raises DriverError: absent where the kernel does not look for them, or ("no counter") only logs them.
    """
    settings = Path(arguments.proc_root, "sys/kernel")
    timeout = _setting(settings / "hung_task_timeout_secs", "this kernel does not look for hung tasks")
    if timeout == 0:
        detail = "the search for hung tasks is off (kernel.hung_task_timeout_secs = 0)"
        raise DriverError(ErrorKind.ABSENT, NODE, "hung tasks", detail)
    only_lines = "no counter of hung tasks, lines in the kernel log only"
    return KernelCount(total_count=_setting(settings / "hung_task_detect_count", only_lines))


def _setting(path: Path, absent: str) -> int:
    try:
        text = _text(path).strip()
    except DriverError as error:
        if error.kind is ErrorKind.ABSENT:
            raise DriverError(ErrorKind.ABSENT, NODE, "hung tasks", absent) from error
        raise
    if not re.fullmatch(r"\d{1,20}", text):
        raise DriverError(ErrorKind.INVALID, str(path), "read", f"no number: {text[:80]!r}")
    return int(text)


def _meminfo(arguments: HostArguments) -> str:
    return _text(Path(arguments.proc_root, "meminfo"))


def _text(path: Path) -> str:
    return read_bounded(path).decode("utf-8", "replace")
