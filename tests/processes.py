"""What the kernel says of processes: who carries our marker, what they hold, what they cost.

Reads /proc only. It ends processes by pid alone, and only those that carry the marker it was given.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARKER = "NODEAGENT_TEST_RUN"
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def marked(mark: str) -> dict[int, str]:
    """Pid and command line of every living process whose environment holds MARKER=mark."""
    wanted = f"{MARKER}={mark}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words != [b""]:  # a zombie has no memory left and no command line
                    found[int(entry.name)] = b" ".join(words).decode(errors="replace").strip()
    return found


def end_marked(mark: str) -> None:
    """SIGKILL every process with this marker, and wait until they are gone."""
    end_seconds = time.monotonic() + 10
    while (left := marked(mark)) and time.monotonic() < end_seconds:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Direct children, zombies included."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return sorted(found)


def threads(pid: int) -> int:
    """Number of threads."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def descriptors(pid: int) -> list[str]:
    """What each open descriptor leads to, without the numbers of sockets and pipes."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(entry.readlink()).partition(":[")[0])
    return sorted(found)


def cpu_seconds(pid: int) -> float:
    """User and system time used so far; 0 for a process that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def pss_bytes(pid: int) -> int:
    """Proportional set size: private memory plus this process's share of what is shared."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no Pss of process {pid}")


def state(pid: int) -> str:
    """One letter: R, S, D, Z ...; "" when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
