"""Provokes trouble of disks and processes in private namespaces, and prints what the host worker reads of it.

Run as the first process of namespaces of its own, by `unshare -m -p --fork --mount-proc`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from nodeagent.drivers.host.disks import DiskReader
from nodeagent.drivers.host.processes import Processes
from nodeagent.wire import HostArguments
from tests.drivers.host_channel import Heard


def disks(folder: Path) -> list[Any]:
    """A file system of 64 inodes: as made, without inodes, read-only."""
    image, mount = folder / "image", folder / "mount"
    mount.mkdir()
    _run("truncate", "-s", "8M", str(image))
    _run("mkfs.ext4", "-q", "-N", "64", str(image))
    _run("mount", "-o", "loop", str(image), str(mount))
    seen = [_disk(mount)]
    for number in range(64):
        try:
            (mount / str(number)).touch()
        except OSError:
            break
    seen.append(_disk(mount))
    _run("mount", "-o", "remount,ro", str(mount))
    seen.append(_disk(mount))
    _run("umount", str(mount))
    return seen


def stuck(folder: Path) -> list[Any]:
    """A parent that waits for its vfork child with a GPU open: before it came, then three scans of it."""
    _run("mount", "-t", "tmpfs", "none", "/dev")
    os.mknod("/dev/nvidia0", 0o666 | 0o020000, os.makedev(1, 3))
    processes = Processes()
    seen = [msgspec.to_builtins(processes.read(HostArguments()))]
    with subprocess.Popen([str(folder / "sleeper"), "/dev/nvidia0"]) as one:
        time.sleep(0.3)
        processes = Processes()
        for _ in range(2):
            seen.append(msgspec.to_builtins(processes.read(HostArguments())))
            time.sleep(1.0)
        seen.append(msgspec.to_builtins(processes.read(HostArguments())))
        one.kill()
    return seen


def _disk(mount: Path) -> Any:
    heard = Heard()
    DiskReader(heard, HostArguments()).read()  # type: ignore[arg-type]  # the same two methods
    return {
        name.partition("@")[0]: msgspec.to_builtins(value)
        for name, value in heard.values.items() if name.partition("@")[2] == str(mount)
    }


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=20, stdout=sys.stderr)


if __name__ == "__main__":
    json.dump({"disks": disks, "stuck": stuck}[sys.argv[1]](Path(sys.argv[2])), sys.stdout)
