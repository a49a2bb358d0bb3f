"""One agent a node."""

from __future__ import annotations

import os
from collections.abc import Callable
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


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_what_is_no_file_is_refused_and_left_alone(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Something else in the lock's place is one error with the path, and is still there."""
    path = tmp_path / "nodeagent.lock"
    make(path)
    with pytest.raises(DriverError) as refused:
        InstanceLock(str(path))

    assert (refused.value.kind, refused.value.target) == (ErrorKind.INVALID, str(path))
    assert refused.value.detail
    assert not path.is_file() and path.exists()


def test_the_lock_of_another_is_not_removed(tmp_path: Path) -> None:
    """Whoever locked a file that took our file's place keeps it."""
    path = tmp_path / "nodeagent.lock"
    first = InstanceLock(str(path))
    path.unlink()
    second = InstanceLock(str(path))
    first.close()
    with pytest.raises(DriverError):
        InstanceLock(str(path))
    second.close()

    assert not path.exists()


def test_an_impossible_place_is_a_driver_error(tmp_path: Path) -> None:
    """A path below a file is refused with the path."""
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "nodeagent.lock")
    with pytest.raises(DriverError) as refused:
        InstanceLock(path)

    assert refused.value.target == path
