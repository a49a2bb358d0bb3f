"""Small counters of the kernel and of block devices, from scripted trees and from the machine itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.drivers.host import block, kernel
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.host_signals import DiskErrors, KernelCount, MemoryPressure
from nodeagent.wire import HostArguments

PRESSURE = (
    "some avg10=1.00 avg60=42.50 avg300=3.00 total=9\nfull avg10=0.00 avg60=7.00 avg300=1.00 total=5\n"
)
MEMORY = "MemTotal:       1000 kB\nMemFree:        1 kB\nMemAvailable:    300 kB\n"
HUNG = "sys/kernel/hung_task_timeout_secs"
COUNT = "sys/kernel/hung_task_detect_count"

READS: tuple[tuple[str, Callable[[HostArguments], Any], dict[str, str], Any], ...] = (
    # what it is, the reader, files, the value or (kind, a word of the reason)
    ("pressure", kernel.memory_pressure, {"pressure/memory": PRESSURE, "meminfo": MEMORY},
     MemoryPressure(some_percent=42.5, full_percent=7.0, available_bytes=300 << 10, size_bytes=1000 << 10)),
    ("no PSI", kernel.memory_pressure, {"meminfo": MEMORY}, (ErrorKind.ABSENT, "psi=1")),
    ("odd pressure", kernel.memory_pressure, {"pressure/memory": "some avg60=x\n", "meminfo": MEMORY},
     (ErrorKind.INVALID, "no averages")),
    ("kills", kernel.oom_kills, {"vmstat": "nr_free_pages 1\noom_kill 17\ndrop_slab 0\n"},
     KernelCount(total_count=17)),
    ("a kernel that does not count kills", kernel.oom_kills, {"vmstat": "nr_free_pages 1\n"},
     (ErrorKind.ABSENT, "does not count")),
    ("hung tasks", kernel.hung_tasks, {HUNG: "120\n", COUNT: "3\n"}, KernelCount(total_count=3)),
    ("an older kernel", kernel.hung_tasks, {HUNG: "120\n"}, (ErrorKind.ABSENT, "no counter")),
    ("the search is off", kernel.hung_tasks, {HUNG: "0\n", COUNT: "3\n"}, (ErrorKind.ABSENT, "is off")),
    ("no search", kernel.hung_tasks, {}, (ErrorKind.ABSENT, "does not look")),
    ("an odd count", kernel.hung_tasks, {HUNG: "120\n", COUNT: "many\n"}, (ErrorKind.INVALID, "no number")),
)


def tree(root: Path, files: dict[str, str]) -> str:
    """A folder with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


@pytest.mark.parametrize(("name", "read", "files", "wanted"), READS, ids=[row[0] for row in READS])
def test_the_kernel_tells(
    name: str, read: Callable[[HostArguments], Any], files: dict[str, str], wanted: Any, tmp_path: Path
) -> None:
    """Each count, or whether this kernel has none or told something odd."""
    arguments = HostArguments(proc_root=tree(tmp_path, files))
    if not isinstance(wanted, tuple):
        assert read(arguments) == wanted, name
        return
    with pytest.raises(DriverError) as raised:
        read(arguments)

    assert raised.value.kind is wanted[0]
    assert wanted[1] in str(raised.value)


def test_this_machine_tells_too() -> None:
    """The real /proc has what the readers look for."""
    pressure = kernel.memory_pressure(HostArguments())

    assert 0 < pressure.available_bytes <= pressure.size_bytes
    assert kernel.oom_kills(HostArguments()).total_count >= 0


DEVICES = {
    "block/sda/device/ioerr_cnt": "0x1f\n", "block/nvme0n1/device/state": "live\n", "block/vda/size": "8\n",
    "block/loop0/size": "8\n", "block/sr0/device/ioerr_cnt": "0x3\n", "block/cciss!c0d0/size": "8\n",
    "fs/ext4/sda1/errors_count": "2\n", "fs/ext4/features/lazy_itable_init": "supported\n",
    "fs/btrfs/uuid-1/devinfo/1/error_stats": "write_errs 1\nread_errs 2\nflush_errs 0\n",
    "fs/btrfs/uuid-1/devinfo/2/error_stats": "write_errs 0\nread_errs 4\n",
    "fs/btrfs/features/raid1c34": "0\n",
}


def test_disks_tell_their_errors(tmp_path: Path) -> None:
    """By device and file system; images, optical drives and what is no device are left out."""
    found = block.disk_errors(HostArguments(sys_root=tree(tmp_path, DEVICES)))

    assert found == {
        "btrfs:uuid-1": DiskErrors(file_system_errors=7, fstype="btrfs"),
        "cciss/c0d0": DiskErrors(),
        "nvme0n1": DiskErrors(state="live"),
        "sda": DiskErrors(scsi_errors=31),
        "sda1": DiskErrors(file_system_errors=2, fstype="ext4"),
        "vda": DiskErrors(),
    }


def test_a_node_without_a_disk_has_no_errors_of_disks(tmp_path: Path) -> None:
    """Absent, which is not zero."""
    with pytest.raises(DriverError) as raised:
        block.disk_errors(HostArguments(sys_root=tree(tmp_path, {"block/loop0/size": "8\n"})))

    assert raised.value.kind is ErrorKind.ABSENT
