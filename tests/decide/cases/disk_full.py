"""Cases of `disk.full`: both limits must be broken."""

from nodeagent.errors import ErrorKind
from nodeagent.signals import DiskUsage, Unread
from tests.decide.build import NOT_APPLICABLE, OK, Case, Want, bad, not_applicable, ok, unknown

GIB_BYTES = 1 << 30
SIGNAL = "disk.usage@/"


def disk(size_bytes: int, available_bytes: int, *, read_only: bool = False) -> DiskUsage:
    """A file system with so much room."""
    return DiskUsage(
        device="/dev/nvme0n1p2",
        fstype="ext4",
        size_bytes=size_bytes,
        available_bytes=available_bytes,
        used_bytes=size_bytes - available_bytes,
        read_only=read_only,
    )


FULL = disk(100 * GIB_BYTES, 1 * GIB_BYTES)

CASES = (
    Case(
        name="healthy",
        readings={SIGNAL: disk(100 * GIB_BYTES, 60 * GIB_BYTES)},
        want=ok("/", value="60.0 %, 60.0 GiB left"),
    ),
    Case(
        name="at the limit: exactly 5 % left",
        readings={SIGNAL: disk(100 * GIB_BYTES, 5 * GIB_BYTES)},
        want=ok("/"),
    ),
    Case(
        name="over the limit",
        readings={SIGNAL: disk(100 * GIB_BYTES, 5 * GIB_BYTES - 1)},
        want=bad("/", limit="5 % and 50.0 GiB", says="/dev/nvme0n1p2"),
    ),
    Case(
        name="few percent of a large disk are plenty",
        readings={SIGNAL: disk(30_000 * GIB_BYTES, 300 * GIB_BYTES)},
        want=ok("/"),
    ),
    Case(
        name="few percent of a large disk at the byte limit",
        readings={SIGNAL: disk(30_000 * GIB_BYTES, 50 * GIB_BYTES)},
        want=ok("/"),
    ),
    Case(
        name="a large disk below both limits",
        readings={SIGNAL: disk(30_000 * GIB_BYTES, 50 * GIB_BYTES - 1)},
        want=bad("/"),
    ),
    Case(
        name="few bytes of a small disk are plenty",
        readings={SIGNAL: disk(GIB_BYTES, GIB_BYTES // 2)},
        want=ok("/"),
    ),
    Case(
        name="nothing left",
        readings={SIGNAL: disk(100 * GIB_BYTES, 0)},
        want=bad("/", value="0.0 %, 0.0 GiB left"),
    ),
    Case(
        name="a configured percentage",
        readings={SIGNAL: disk(100 * GIB_BYTES, 9 * GIB_BYTES)},
        limits={"available_percent": 10.0},
        want=bad("/"),
    ),
    Case(
        name="a configured number of bytes",
        readings={SIGNAL: FULL},
        limits={"available_bytes": GIB_BYTES},
        want=ok("/"),
    ),
    Case(
        name="a read-only file system is full by design",
        readings={SIGNAL: disk(GIB_BYTES, 0, read_only=True)},
        want=not_applicable("/", says="read-only"),
    ),
    Case(name="a file system without a size", readings={SIGNAL: disk(0, 0)}, want=not_applicable("/")),
    Case(
        name="only the configured paths",
        readings={SIGNAL: FULL, "disk.usage@/data": disk(GIB_BYTES, GIB_BYTES)},
        limits={"paths": ("/data",)},
        want=(Want(state=NOT_APPLICABLE, target="/"), Want(state=OK, target="/data")),
    ),
    Case(
        name="an unread mount outside the configured paths does not matter",
        readings={
            SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="statvfs hangs"),
            "disk.usage@/data": disk(GIB_BYTES, GIB_BYTES),
        },
        limits={"paths": ("/data",)},
        want=(Want(state=NOT_APPLICABLE, target="/"), Want(state=OK, target="/data")),
    ),
    Case(
        name="a configured path that is no mount point",
        readings={},
        limits={"paths": ("/data",)},
        want=unknown("/data", says="not a mounted"),
    ),
    Case(
        name="unread: timeout",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="statvfs hangs")},
        want=unknown("/", says="statvfs hangs"),
    ),
    Case(
        name="unread: denied",
        readings={SIGNAL: Unread(kind=ErrorKind.DENIED, reason="EACCES")},
        want=unknown("/"),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="unmounted")},
        want=not_applicable("/"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
