"""Is the NVIDIA fabric manager of this node alive? Known by its pid file and its systemd unit.

Where neither is, another place runs it (a container, a switch tray, nobody): that is absent, not dead.
"""

from __future__ import annotations

from pathlib import Path

from nodeagent.drivers.host.system import read_bounded
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.gpu_signals import FabricManager
from nodeagent.model import NODE
from nodeagent.wire import HostArguments

_PID_FILE = "run/nvidia-fabricmanager/nv-fabricmanager.pid"
_WANTED = "etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service"
_NAME = "nv-fabricmanage"
"""As the kernel shortens it."""
_PID_LIMIT_BYTES = 64


def manager(arguments: HostArguments) -> FabricManager:
    """Whether the process of the pid file lives. Raises DriverError(absent) where no service is set up."""
    try:
        text = read_bounded(Path(arguments.host_root, _PID_FILE), _PID_LIMIT_BYTES)
    except DriverError as error:
        if error.kind is not ErrorKind.ABSENT:
            raise
        if not Path(arguments.host_root, _WANTED).is_symlink():
            detail = "no fabric manager service is set up on this node"
            raise DriverError(ErrorKind.ABSENT, NODE, "read pid file", detail) from error
        return FabricManager(running=False, detail="the service is enabled and has no process")
    pid = text.decode("ascii", "replace").strip()
    if not pid.isdecimal():
        raise DriverError(ErrorKind.INVALID, NODE, "read pid file", f"{pid[:20]!r} is no process id")
    try:
        name = read_bounded(Path(arguments.proc_root, pid, "comm"), _PID_LIMIT_BYTES)
    except DriverError as error:
        if error.kind not in (ErrorKind.ABSENT, ErrorKind.LOST):
            raise
        return FabricManager(running=False, detail=f"its process {pid} is gone")
    alive = name.decode("ascii", "replace").startswith(_NAME)
    return FabricManager(running=alive, detail=f"process {pid}" if alive else f"process {pid} is another one")
