"""Cases of `disk.read_only`: what was writable in this boot and is not any more."""

from nodeagent.errors import ErrorKind
from nodeagent.host_signals import MountFlags
from nodeagent.memory import Memory, MountSeen
from nodeagent.model import NodeClass
from nodeagent.signals import Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown

ROOT, DATA = "disk.mount@/", "disk.mount@/data"


def flags(*, mount: bool = False, super_block: bool = False, reason: str = "") -> MountFlags:
    """A file system whose mount or super block is read-only."""
    return MountFlags(
        device="/dev/sda1", fstype="ext4", mount_read_only=mount, super_read_only=super_block, reason=reason
    )


def seen(point: str = "/", *, super_writable: bool = True, mount_writable: bool = True) -> Memory:
    """A mount point that was writable before."""
    one = MountSeen(
        device="/dev/sda1", fstype="ext4", super_writable=super_writable, mount_writable=mount_writable
    )
    return Memory(mounts={point: one})


CASES = (
    Case(name="healthy", readings={ROOT: flags()}, memory=seen(), want=ok("/", value="writable")),
    Case(
        name="at the limit: read-only since it was first seen", readings={ROOT: flags(super_block=True)},
        memory=seen(super_writable=False, mount_writable=False),
        want=not_applicable("/", says="since it was first seen"),
    ),
    Case(
        name="over the limit: the root turned read-only", readings={ROOT: flags(super_block=True)},
        memory=seen(),
        want=bad(
            "/", says="/ (/dev/sda1, ext4) turned read-only", cause="super block", node_class=NodeClass.REBOOT
        ),
    ),
    Case(
        name="newer kernels say why", readings={ROOT: flags(super_block=True, reason="emergency_ro")},
        memory=seen(), want=bad("/", value="read-only, emergency_ro", says="turned read-only after an error"),
    ),
    Case(
        name="another file system than the root asks for no reboot", readings={DATA: flags(super_block=True)},
        memory=seen("/data"), want=bad("/data", node_class=NodeClass.CHECK),
    ),
    Case(
        name="somebody remounted one mount", readings={ROOT: flags(mount=True)}, memory=seen(),
        want=bad("/", cause="mount", node_class=NodeClass.CHECK, says="its file system is still writable"),
    ),
    Case(
        name="a mount that never was writable", readings={DATA: flags(mount=True)},
        memory=seen("/data", mount_writable=False), want=not_applicable("/data"),
    ),
    Case(
        name="an image that nobody writes", readings={DATA: flags(mount=True, super_block=True)},
        want=not_applicable("/data"),
    ),
    Case(
        name="it must be writable, the operator says", readings={DATA: flags(super_block=True)},
        limits={"required_paths": ("/data",)}, want=bad("/data"),
    ),
    Case(
        name="what must be writable is not mounted", readings={ROOT: flags()}, memory=seen(),
        limits={"required_paths": ("/data",)}, want=(*ok("/"), *unknown("/data")),
    ),
    Case(
        name="unread: blank after a good read", memory=seen(),
        readings={"disk.mount": Unread(kind=ErrorKind.TIMEOUT, reason="mountinfo")}, want=unknown(),
    ),
    Case(
        name="not supported", readings={"disk.mount": Unread(kind=ErrorKind.ABSENT, reason="no /proc/1")},
        want=not_applicable(),
    ),
    Case(name="recovered: writable again", readings={ROOT: flags()}, memory=seen(), want=ok("/")),
    Case(name="missing on the board", readings={}, want=unknown()),
)
