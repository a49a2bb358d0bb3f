"""One agent a node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent.drivers.lock import InstanceLock
from nodeagent.errors import DriverError, ErrorKind


def test_a_second_agent_is_told_the_first_ones_pid(tmp_path: Path) -> None:
    """The refusal names the holder."""
    path = str(tmp_path / "run" / "nodeagent.lock")
    held = InstanceLock(path)
    with pytest.raises(DriverError) as refused:
        InstanceLock(path)
    held.close()

    assert (refused.value.kind, str(os.getpid()) in refused.value.detail) == (ErrorKind.BUSY, True)


def test_a_closed_lock_is_free_and_leaves_no_file(tmp_path: Path) -> None:
    """After an end nothing stands in the next agent's way."""
    path = tmp_path / "nodeagent.lock"
    InstanceLock(str(path)).close()
    left = path.exists()
    InstanceLock(str(path)).close()

    assert not left


def test_a_file_left_by_a_crash_is_no_lock(tmp_path: Path) -> None:
    """The kernel drops the lock with the process; the file's content alone holds nobody off."""
    path = tmp_path / "nodeagent.lock"
    path.write_text("999999\n")
    lock = InstanceLock(str(path))
    holder = path.read_text()
    lock.close()

    assert holder == f"{os.getpid()}\n"


def test_an_impossible_place_is_a_driver_error(tmp_path: Path) -> None:
    """A path below a file is refused with the path."""
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "nodeagent.lock")
    with pytest.raises(DriverError) as refused:
        InstanceLock(path)

    assert refused.value.target == path
