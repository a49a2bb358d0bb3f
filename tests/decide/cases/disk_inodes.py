"""Cases of `disk.inodes`: percent of the inodes that unprivileged processes may still make."""

from nodeagent.errors import ErrorKind
from nodeagent.signals import DiskUsage, Unread
from tests.decide.build import NOT_APPLICABLE, OK, Case, Want, bad, not_applicable, ok, unknown

GIB_BYTES = 1 << 30
SIGNAL = "disk.usage@/"


def disk(inode_count: int, available_inode_count: int, *, read_only: bool = False) -> DiskUsage:
    """A half empty file system with so many inodes."""
    return DiskUsage(
        device="/dev/sda1", fstype="ext4", size_bytes=100 * GIB_BYTES, available_bytes=50 * GIB_BYTES,
        used_bytes=50 * GIB_BYTES, read_only=read_only, inode_count=inode_count,
        available_inode_count=available_inode_count,
    )


CASES = (
    Case(name="healthy", readings={SIGNAL: disk(1000, 600)}, want=ok("/", value="60.0 %, 600 inodes left")),
    Case(name="at the limit: exactly 5 %", readings={SIGNAL: disk(1000, 50)}, want=ok("/", limit="5 %")),
    Case(
        name="over the limit", readings={SIGNAL: disk(1000, 49)},
        want=bad("/", says="/ (/dev/sda1) has 4.9 % of its inodes left"),
    ),
    Case(name="none left", readings={SIGNAL: disk(1000, 0)}, want=bad("/", value="0.0 %, 0 inodes left")),
    Case(
        name="a configured percentage", readings={SIGNAL: disk(1000, 90)}, limits={"available_percent": 10.0},
        want=bad("/"),
    ),
    Case(
        name="only the configured paths",
        readings={SIGNAL: disk(1000, 0), "disk.usage@/data": disk(1000, 900)}, limits={"paths": ("/data",)},
        want=(Want(state=NOT_APPLICABLE, target="/"), Want(state=OK, target="/data")),
    ),
    Case(
        name="a configured path that is no mount", readings={SIGNAL: disk(1000, 900)},
        limits={"paths": ("/", "/data")},
        want=(*ok("/"), *unknown("/data", says="not a mounted local file system")),
    ),
    Case(
        name="not supported: inodes are made as they are needed", readings={SIGNAL: disk(0, 0)},
        want=not_applicable("/", says="ext4 makes inodes as it needs them"),
    ),
    Case(
        name="a read-only file system is full by design", readings={SIGNAL: disk(1000, 0, read_only=True)},
        want=not_applicable("/", says="read-only"),
    ),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")}, want=unknown("/"),
    ),
    Case(name="recovered: files were deleted", readings={SIGNAL: disk(1000, 400)}, want=ok("/")),
    Case(name="missing on the board", readings={}, want=unknown()),
)
