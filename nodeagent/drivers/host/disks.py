"""Local file systems from mountinfo, each measured with statvfs.

What is found by itself is only ever a local disk: a network or FUSE file system can hang whoever
touches it, and is touched only when the operator names its path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from nodeagent import wire
from nodeagent.child import Channel
from nodeagent.drivers.host.system import driver_error, read_bounded
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.host_signals import MountFlags
from nodeagent.model import NODE
from nodeagent.signals import DiskUsage, Unread

SIGNAL = "disk.usage"
FLAGS_SIGNAL = "disk.mount"
MOUNTINFO_LIMIT_BYTES = 16 << 20
DISK_LIMIT = 256
"""More local disks than this are not measured."""

_LOCAL_WITHOUT_BLOCK_DEVICE = ("btrfs", "zfs", "bcachefs")
_CLUSTERED = ("gfs", "gfs2", "ocfs2", "gpfs", "lustre", "beegfs")
_ALWAYS_FULL = ("squashfs", "iso9660", "udf", "erofs", "cramfs", "romfs")
_REMOTE = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "virtiofs", "afs", "coda", "ncpfs", "glusterfs",
    "pvfs2", "orangefs", *_CLUSTERED,
)
_ESCAPE = re.compile(rb"\\([0-7]{3})")


class Mount(Struct, frozen=True, kw_only=True):
    """One line of mountinfo."""

    device_number: tuple[int, int]
    mount_point: bytes
    """As pid 1 sees it, escapes resolved."""
    fstype: str
    device: str
    mount_read_only: bool
    super_read_only: bool
    reason: str = ""
    """Why the super block is read-only, where it says more than "ro"."""

    @property
    def read_only(self) -> bool:
        """True when nothing can be written through this mount."""
        return self.mount_read_only or self.super_read_only

    @property
    def can_hang(self) -> bool:
        """True for network, cluster and FUSE file systems."""
        return self.fstype.startswith("fuse") or self.fstype in _REMOTE

    @property
    def local_disk(self) -> bool:
        """True for a file system on a disk of this node that can fill up."""
        if self.can_hang or self.fstype in _ALWAYS_FULL:
            return False
        return self.device_number[0] != 0 or self.fstype in _LOCAL_WITHOUT_BLOCK_DEVICE


def parse_mountinfo(text: bytes) -> list[Mount]:
    """Mounts in order; a line that is not of proc(5)'s form is left out."""
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(b" - ")
        fields, source = before.split(b" "), after.split(b" ")
        numbers = re.fullmatch(rb"(\d{1,9}):(\d{1,9})", fields[2]) if len(fields) > 5 else None
        if not separator or numbers is None or len(source) < 3:
            continue
        options = source[2].split(b",")
        # ext4 no longer sets "ro" after an error (6.15): it says these instead.
        reason = next((word for word in (b"emergency_ro", b"shutdown") if word in options), b"")
        mounts.append(Mount(
            device_number=(int(numbers[1]), int(numbers[2])), mount_point=_unescape(fields[4]),
            fstype=source[0].decode("ascii", "replace"), device=shown(_unescape(source[1])),
            mount_read_only=b"ro" in fields[5].split(b","),
            super_read_only=b"ro" in options or reason != b"", reason=reason.decode(),
        ))
    return mounts


def local_disks(mounts: Iterable[Mount]) -> list[Mount]:
    """One mount for each local disk: the shortest mount point, away from what can hang."""
    visible = {mount.mount_point: mount for mount in mounts}
    hanging = [point for point, mount in visible.items() if mount.can_hang]
    chosen: dict[tuple[int, int], Mount] = {}
    for point in sorted(visible, key=lambda point: (len(point), point)):
        mount = visible[point]
        if mount.local_disk and not any(_beneath(point, other) for other in hanging):
            chosen.setdefault(mount.device_number, mount)
    return list(chosen.values())


def mount_of(path: bytes, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that a path is on, by its longest mount point; the later of two at one place."""
    found: Mount | None = None
    for mount in mounts:
        if _beneath(path, mount.mount_point) and (
            found is None or len(mount.mount_point) >= len(found.mount_point)
        ):
            found = mount
    return found


def flags(mount: Mount) -> MountFlags:
    """May it be written, by mountinfo alone: nothing on the disk is touched."""
    return MountFlags(
        device=mount.device, fstype=mount.fstype, mount_read_only=mount.mount_read_only,
        super_read_only=mount.super_read_only, reason=mount.reason,
    )


def shown(path: bytes) -> str:
    """A path as text that every encoding can carry."""
    return path.decode("utf-8", "backslashreplace")


class DiskReader:
    """Measures disks for one read-all."""

    def __init__(self, channel: Channel, arguments: wire.HostArguments) -> None:
        self._channel = channel
        self._arguments = arguments

    def read(self) -> None:
        """Send `disk.usage` of each local disk, then of each path that the operator named."""
        try:
            mounts = self._mounts()
        except DriverError as error:
            self._channel.send(wire.missing(SIGNAL, NODE, error))
            self._channel.send(wire.missing(FLAGS_SIGNAL, NODE, error))
            return
        disks = local_disks(mounts)[:DISK_LIMIT]
        for mount in disks:
            self._channel.send(wire.value(FLAGS_SIGNAL, shown(mount.mount_point), flags(mount)))
        for mount in disks:
            self._measure(mount.mount_point, mount, named=False)
        measured = {shown(mount.mount_point) for mount in disks}
        for path in self._arguments.paths:
            if path not in measured:
                raw = os.fsencode(path)
                self._measure(raw, mount_of(raw, mounts), named=True)

    def _mounts(self) -> list[Mount]:
        proc_root = self._arguments.proc_root
        call = "read mountinfo"
        if call in self._arguments.skip:
            detail = "the last attempt did not return; it is tried again later"
            raise DriverError(ErrorKind.TIMEOUT, NODE, call, detail)
        self._channel.mark(call)
        try:
            text = read_bounded(Path(proc_root, "1/mountinfo"), MOUNTINFO_LIMIT_BYTES)
        except DriverError:
            text = read_bounded(Path(proc_root, "self/mountinfo"), MOUNTINFO_LIMIT_BYTES)
        return parse_mountinfo(text)

    def _measure(self, path: bytes, mount: Mount | None, *, named: bool) -> None:
        target = shown(path)
        if target in self._arguments.skip:
            reason = "statvfs did not answer; it is asked again later"
            unread = Unread(kind=ErrorKind.TIMEOUT, reason=reason)
            self._channel.send(wire.Missing(signal=SIGNAL, target=target, unread=unread))
            return
        self._channel.mark("statvfs", target)
        try:
            usage = self._usage(path, mount, named=named)
        except OSError as error:
            failure = driver_error(error, target, "statvfs")
            if failure.kind is not ErrorKind.ABSENT:
                self._channel.send(wire.missing(SIGNAL, target, failure))
            return
        except DriverError as error:
            self._channel.send(wire.missing(SIGNAL, target, error))
            return
        if usage is not None:
            self._channel.send(wire.value(SIGNAL, target, usage))

    def _usage(self, path: bytes, mount: Mount | None, *, named: bool) -> DiskUsage | None:
        """None for a file system without a size. Raises OSError, DriverError."""
        reachable = _under(self._arguments.host_root, path)
        if mount is not None and not named and not _is_mount(reachable, mount):
            reachable = _under(f"{self._arguments.proc_root}/1/root", path)
            if not _is_mount(reachable, mount):
                detail = "the agent's mount namespace shows another file system there"
                raise DriverError(ErrorKind.INVALID, shown(path), "statvfs", detail)
        answer = os.statvfs(reachable)
        if answer.f_blocks == 0:
            return None
        return DiskUsage(
            device=mount.device if mount else "", fstype=mount.fstype if mount else "",
            size_bytes=answer.f_blocks * answer.f_frsize,
            available_bytes=answer.f_bavail * answer.f_frsize,
            used_bytes=(answer.f_blocks - answer.f_bfree) * answer.f_frsize,
            read_only=mount.read_only if mount else bool(answer.f_flag & os.ST_RDONLY),
            inode_count=answer.f_files, available_inode_count=answer.f_favail,
        )


def _is_mount(path: bytes, mount: Mount) -> bool:
    """False when another file system lies at the path. Btrfs gives each subvolume a number of its own."""
    if mount.fstype == "btrfs":
        return True
    number = Path(os.fsdecode(path)).stat().st_dev
    return (os.major(number), os.minor(number)) == mount.device_number


def _beneath(path: bytes, mount_point: bytes) -> bool:
    return path == mount_point or path.startswith(mount_point.rstrip(b"/") + b"/")


def _under(root: str, path: bytes) -> bytes:
    return os.fsencode(root).rstrip(b"/") + b"/" + path.lstrip(b"/")


def _unescape(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 8) & 0xFF,)), text)
