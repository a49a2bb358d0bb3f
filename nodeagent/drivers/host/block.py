"""Errors of block devices as sysfs counts them, of SCSI, NVMe, ext4 and btrfs.

The kernel answers from its own memory: no command is sent to a disk. So SMART, and NVMe's critical
warning, which the kernel does not publish, are not read here.
"""

from __future__ import annotations

import re
from pathlib import Path

from nodeagent.drivers.host.system import driver_error, read_bounded
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.host_signals import DiskErrors
from nodeagent.wire import HostArguments

DEVICE_LIMIT = 256
_NO_DISK = re.compile(r"(?:ram|zram|loop|sr|fd|nbd|rbd)\d")
"""Memory, images, removable and network devices."""


def disk_errors(arguments: HostArguments) -> dict[str, DiskErrors]:
    """By device, and by `btrfs:UUID` for file systems over many. Raises DriverError: absent without sysfs."""
    sys_root = Path(arguments.sys_root)
    try:
        names = sorted(path.name for path in (sys_root / "block").iterdir())
    except OSError as error:
        raise driver_error(error, str(sys_root / "block"), "list") from error
    found = {_shown(name): _device(sys_root / "block" / name) for name in names if not _NO_DISK.match(name)}
    for path in _entries(sys_root / "fs/ext4"):
        count = _number(path / "errors_count")
        if count is not None:
            known = found.get(_shown(path.name), DiskErrors())
            found[_shown(path.name)] = DiskErrors(
                scsi_errors=known.scsi_errors, state=known.state, file_system_errors=count, fstype="ext4"
            )
    for path in _entries(sys_root / "fs/btrfs"):
        errors = _btrfs(path)
        if errors is not None:
            found[f"btrfs:{path.name}"] = DiskErrors(file_system_errors=errors, fstype="btrfs")
    if not found:
        raise DriverError(ErrorKind.ABSENT, "node", "list block devices", "no local disk")
    return dict(sorted(found.items())[:DEVICE_LIMIT])


def _device(path: Path) -> DiskErrors:
    is_nvme = path.name.startswith("nvme")
    return DiskErrors(
        scsi_errors=_number(path / "device/ioerr_cnt"),
        state=_word(path / "device/state") if is_nvme else "",
    )


def _btrfs(path: Path) -> int | None:
    """Errors of all its devices, as the file system keeps them; None on kernels before 5.14."""
    devices = _entries(path / "devinfo")
    texts = [text for device in devices if (text := _word(device / "error_stats"))]
    counts = [int(count) for text in texts for count in re.findall(r"_errs (\d{1,20})", text)]
    return sum(counts) if counts else None


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []  # no such file system on this node


def _number(path: Path) -> int | None:
    """A decimal or 0x number; None where the device has none, or is gone meanwhile."""
    text = _word(path)
    if re.fullmatch(r"0x[0-9a-f]{1,16}", text, re.IGNORECASE):
        return int(text, 16)
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def _word(path: Path) -> str:
    try:
        return read_bounded(path, 4096).decode("ascii", "replace").strip()
    except DriverError:
        return ""  # this kind of device has none


def _shown(name: str) -> str:
    """sysfs writes the slash of `cciss/c0d0` as an exclamation mark."""
    return name.replace("!", "/")
