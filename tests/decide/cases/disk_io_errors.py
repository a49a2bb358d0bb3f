"""Cases of `disk.io_errors`: new errors by the kernel log, by file systems, by SCSI."""

from nodeagent.errors import ErrorKind
from nodeagent.host_signals import DiskErrors
from nodeagent.signals import KernelLogStatus, Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown
from tests.decide.fault_build import counted

LOG = KernelLogStatus(sequence=9, records=9, lost_records=0, refused_records=0, reopened=0, backfilled=True)
LINE = "I/O error, dev sda, sector 2048 op 0x0:(READ)"
SDA, NVME = "disk.errors@sda", "disk.errors@nvme0n1"
LINES, FILES, SCSI = "disk lines", "file system errors", "scsi errors"

CASES = (
    Case(
        name="healthy", readings={SDA: DiskErrors(scsi_errors=7), "kernel_log": LOG},
        want=ok("sda", value="0 errors", limit="0 errors in 3600 s"),
    ),
    Case(
        name="healthy: what the disk remembers is no news",
        readings={SDA: DiskErrors(file_system_errors=3, fstype="ext4")},
        want=ok("sda", value="0 errors, 3 ever on its ext4"),
    ),
    Case(
        name="at the limit: refused commands", readings={SDA: DiskErrors(scsi_errors=17)},
        memory=counted(SCSI, of="sda", count=10), want=ok("sda", value="0 errors, 10 failed commands"),
    ),
    Case(
        name="over the limit: a line of the kernel log",
        readings={SDA: DiskErrors(scsi_errors=7), "kernel_log": LOG},
        memory=counted(LINES, of="sda", text=LINE), want=bad("sda", says=LINE, cause="kernel log"),
    ),
    Case(
        name="an error that the file system noticed",
        readings={SDA: DiskErrors(file_system_errors=4, fstype="ext4")},
        memory=counted(FILES, of="sda"), want=bad("sda", says="errors of its ext4", cause="file system"),
    ),
    Case(
        name="too many failed commands", readings={SDA: DiskErrors(scsi_errors=18)},
        memory=counted(SCSI, of="sda", count=11), want=bad("sda", cause="scsi", says="11 commands to sda"),
    ),
    Case(
        name="a device that only the kernel log knows",
        readings={SDA: DiskErrors(scsi_errors=1), "kernel_log": LOG},
        memory=counted(LINES, of="dm-3", text="I/O error, dev dm-3"),
        want=(*bad("dm-3", cause="kernel log"), *ok("sda")),
    ),
    Case(
        name="a dead controller", readings={NVME: DiskErrors(state="dead")},
        want=bad("nvme0n1", cause="controller", says="controller of nvme0n1 is dead"),
    ),
    Case(
        name="a controller that is reset", readings={NVME: DiskErrors(state="resetting")},
        want=ok("nvme0n1", value="0 errors, controller resetting"),
    ),
    Case(
        name="a tolerated error", limits={"errors": 1},
        readings={SDA: DiskErrors(scsi_errors=7), "kernel_log": LOG},
        memory=counted(LINES, of="sda", text=LINE), want=ok("sda", value="1 errors"),
    ),
    Case(
        name="recovered: the window is over", readings={SDA: DiskErrors(scsi_errors=7), "kernel_log": LOG},
        memory=counted(LINES, of="sda", age_seconds=3601.0, text=LINE), want=ok("sda"),
    ),
    Case(
        name="not supported: no counter and no kernel log", readings={"disk.errors@vda": DiskErrors()},
        want=not_applicable("vda", says="the kernel log is not read"),
    ),
    Case(
        name="no local disk", readings={"disk.errors": Unread(kind=ErrorKind.ABSENT, reason="no local disk")},
        want=not_applicable(says="no local disk"),
    ),
    Case(
        name="unread: blank after a good read",
        readings={"disk.errors": Unread(kind=ErrorKind.DENIED, reason="EACCES")}, want=unknown(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
