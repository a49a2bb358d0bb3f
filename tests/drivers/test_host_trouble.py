"""Trouble of the node itself, provoked for real, as the host worker reads it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodeagent.drivers.host import kernel
from nodeagent.wire import HostArguments

ROOT = Path(__file__).parents[2]
SLEEPER = """
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    if (argc < 2 || open(argv[1], O_RDONLY) < 0)
        return 1;
    if (vfork() == 0) {  /* the parent sleeps uninterruptibly until the child ends */
        sleep(15);
        _exit(0);
    }
    return 0;
}
"""
GREEDY = "data = bytearray(96 << 20)"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: sudo make test")


def provoked(name: str, folder: Path) -> list[dict[str, Any]]:
    """What was read in namespaces of its own, step by step."""
    argv = ["unshare", "-m", "-p", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m",
            "tests.drivers.provoke", name, str(folder)]  # fmt: skip
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@needs_root
def test_inodes_and_read_only_are_seen_on_a_real_file_system(tmp_path: Path) -> None:
    """64 inodes are used up while there is room; a remount takes the right to write from the super block."""
    fresh, crowded, frozen = provoked("disks", tmp_path)

    assert fresh["disk.usage"]["inode_count"] == 64
    assert fresh["disk.usage"]["available_inode_count"] > 40
    assert crowded["disk.usage"]["available_inode_count"] == 0
    assert crowded["disk.usage"]["available_bytes"] > 1 << 20
    flags = [step["disk.mount"]["super_read_only"] for step in (fresh, crowded, frozen)]
    assert flags == [False, False, True]
    assert frozen["disk.usage"]["read_only"]


@needs_root
def test_a_process_that_sleeps_with_a_gpu_open_is_found(tmp_path: Path) -> None:
    """By its open device, with its name, and for how long it has not run; before there is nobody."""
    source = tmp_path / "sleeper.c"
    source.write_text(SLEEPER)
    subprocess.run(["cc", "-o", str(tmp_path / "sleeper"), str(source)], check=True, timeout=60)

    before, *scans = provoked("stuck", tmp_path)

    assert (before["holder_count"], before["blocked"]) == (0, [])
    # the child of vfork has inherited the device, and is asleep as everybody is
    assert [scan["holder_count"] for scan in scans] == [2, 2, 2]
    assert [[task["name"] for task in scan["blocked"]] for scan in scans] == [["sleeper"]] * 3
    seconds = [scan["blocked"][0]["blocked_seconds"] for scan in scans]
    assert seconds[0] == 0.0
    assert 0.9 <= seconds[1] < seconds[2]


@contextlib.contextmanager
def small_group() -> Any:
    """A control group of 32 MiB, by version 1 or 2."""
    old, unified = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    parent = old if old.is_dir() else unified
    group = parent / f"nodeagent-test-{os.getpid()}"
    group.mkdir()
    try:
        limit = "memory.limit_in_bytes" if parent == old else "memory.max"
        (group / limit).write_text(str(32 << 20))
        yield group
    finally:
        group.rmdir()


@needs_root
def test_a_kill_for_want_of_memory_is_counted() -> None:
    """A process that takes more than its group may have is killed, and the kernel's count tells."""
    before = kernel.oom_kills(HostArguments()).total_count
    with small_group() as group:
        join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        argv = ["sh", "-c", join, str(group), sys.executable, "-c", GREEDY]
        done = subprocess.run(argv, capture_output=True, timeout=60, check=False)

    assert done.returncode == -9
    assert kernel.oom_kills(HostArguments()).total_count > before


@needs_root
def test_the_tools_are_there() -> None:
    """Without them the tests above would prove nothing."""
    assert [tool for tool in ("unshare", "mkfs.ext4", "cc", "mount") if shutil.which(tool) is None] == []
