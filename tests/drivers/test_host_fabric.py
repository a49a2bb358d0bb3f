"""The fabric manager's life, from its pid file and its unit, in directories of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.drivers.host import fabric
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.gpu_signals import FabricManager
from nodeagent.wire import HostArguments

PID_FILE = "run/nvidia-fabricmanager/nv-fabricmanager.pid"
WANTED = "etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service"
PID = "4242"


def host(root: Path, *, pid: str = "", comm: str = "", enabled: bool = False) -> HostArguments:
    """A host with such a pid file, such a process and such a unit."""
    if pid:
        (root / PID_FILE).parent.mkdir(parents=True)
        (root / PID_FILE).write_text(pid)
    if comm:
        (root / "proc" / PID).mkdir(parents=True)
        (root / "proc" / PID / "comm").write_text(f"{comm}\n")
    if enabled:
        (root / WANTED).parent.mkdir(parents=True)
        (root / WANTED).symlink_to("/lib/systemd/system/nvidia-fabricmanager.service")
    return HostArguments(host_root=str(root), proc_root=str(root / "proc"))


LIVES: list[tuple[dict[str, object], FabricManager]] = [
    ({"pid": f"{PID}\n", "comm": "nv-fabricmanage"}, FabricManager(running=True, detail="process 4242")),
    ({"pid": PID}, FabricManager(running=False, detail="its process 4242 is gone")),
    ({"pid": PID, "comm": "bash"}, FabricManager(running=False, detail="process 4242 is another one")),
    ({"enabled": True}, FabricManager(running=False, detail="the service is enabled and has no process")),
]


@pytest.mark.parametrize(("given", "wanted"), LIVES, ids=[row[1].detail for row in LIVES])
def test_the_manager_lives_or_is_dead(
    tmp_path: Path, given: dict[str, object], wanted: FabricManager
) -> None:
    """By the process that its pid file names; an enabled service without a file is dead."""
    assert fabric.manager(host(tmp_path, **given)) == wanted  # type: ignore[arg-type]


def test_a_node_without_the_service_has_no_manager_to_judge(tmp_path: Path) -> None:
    """Absent, not dead: a container or a switch tray may run it."""
    with pytest.raises(DriverError) as caught:
        fabric.manager(host(tmp_path))
    assert caught.value.kind is ErrorKind.ABSENT


@pytest.mark.parametrize("text", ["nonsense", "-1", "\xff\xfe", "1; reboot"])
def test_a_pid_file_of_nonsense_is_unread(tmp_path: Path, text: str) -> None:
    """It is neither life nor death."""
    with pytest.raises(DriverError) as caught:
        fabric.manager(host(tmp_path, pid=text))
    assert caught.value.kind is ErrorKind.INVALID
