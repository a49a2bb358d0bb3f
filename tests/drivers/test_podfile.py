"""The file of pods on a real file system: bounded reads, and a watch that hears every way to replace it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent import pod_parse
from nodeagent.drivers.podfile import FileWatch, PodFile, directories
from nodeagent.errors import DriverError, ErrorKind
from tests.drivers.rig import check_leaks, until

EMPTY = b'{"kind":"PodList","items":[]}'


def test_a_file_is_read(tmp_path: Path) -> None:
    """The pods of the file come with the source's name."""
    file = tmp_path / "pods.json"
    file.write_bytes(EMPTY)

    assert PodFile(str(file)).read().source == "file"
    assert PodFile(str(file)).exists()


def _absent(_: Path) -> None:
    """Make nothing."""


def _directory(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _garbage(path: Path) -> None:
    path.write_bytes(b"\0" * 100)


def _loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (_absent, ErrorKind.ABSENT), (_directory, ErrorKind.INVALID), (_pipe, ErrorKind.INVALID),
        (_garbage, ErrorKind.INVALID), (_loop, ErrorKind.INVALID),
    ],
)  # fmt: skip
def test_what_is_no_file_of_pods_is_a_driver_error(
    tmp_path: Path, make: Callable[[Path], None], kind: ErrorKind
) -> None:
    """Nothing there, a directory, a pipe that nobody writes, zeros: one error, at once, never a wait."""
    make(tmp_path / "pods.json")

    with pytest.raises(DriverError) as caught:
        PodFile(str(tmp_path / "pods.json")).read()

    assert caught.value.kind is kind


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    """No more than the limit is read of a file of any size."""
    file = tmp_path / "pods.json"
    with file.open("wb") as sparse:
        sparse.truncate(pod_parse.MAX_BYTES * 4)

    with pytest.raises(DriverError, match="larger than 64 MiB"):
        PodFile(str(file)).read()


# --------------------------------------------------------------------------- watch


def _written(root: Path) -> None:
    (root / "pods.json").write_bytes(EMPTY + b" ")


def _renamed(root: Path) -> None:
    (root / "new").write_bytes(EMPTY)
    (root / "new").rename(root / "pods.json")


def _removed(root: Path) -> None:
    (root / "pods.json").unlink()


@pytest.mark.parametrize("change", [_written, _renamed, _removed])
def test_a_change_of_the_file_is_heard(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Written in place, replaced by rename, removed: each wakes."""
    (tmp_path / "pods.json").write_bytes(EMPTY)

    check_heard(tmp_path / "pods.json", [lambda: change(tmp_path)])


def test_a_swapped_configmap_is_heard_each_time(tmp_path: Path) -> None:
    """The `..data` symlink of a mounted ConfigMap is swapped by rename; file and link stay the same."""
    for name in ("..1", "..2", "..3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pods.json").write_bytes(EMPTY)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "pods.json").symlink_to("..data/pods.json")

    def swap(name: str) -> None:
        (tmp_path / "..data_tmp").symlink_to(name)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    check_heard(tmp_path / "pods.json", [lambda: swap("..2"), lambda: swap("..3")])


def test_a_file_in_a_directory_that_comes_later_is_heard(tmp_path: Path) -> None:
    """Neither the directory nor its parent exist when the watch begins."""
    path = tmp_path / "etc/nodeagent/pods.json"

    def come() -> None:
        path.parent.mkdir(parents=True)
        path.write_bytes(EMPTY)

    def replace_directory() -> None:
        path.parent.rename(tmp_path / "old")
        come_again = tmp_path / "etc/nodeagent"
        come_again.mkdir()
        path.write_bytes(EMPTY)

    check_heard(path, [come, replace_directory, path.unlink])


def test_a_neighbour_in_the_directory_is_not_heard(tmp_path: Path) -> None:
    """Only the file itself counts, however busy its directory is."""
    heard: list[int] = []

    async def whole() -> None:
        watch = FileWatch(str(tmp_path / "pods.json"), lambda: heard.append(1))
        watch.start()
        (tmp_path / "other").write_bytes(EMPTY)
        await asyncio.sleep(0.2)
        assert heard == []
        (tmp_path / "pods.json").write_bytes(EMPTY)
        await until(lambda: heard)
        watch.close()
        watch.close()

    check_leaks(whole())
    assert heard == [1]


def check_heard(path: Path, changes: list[Callable[[], object]]) -> None:
    """Fail unless the watch wakes after each change, and gives its descriptor back."""
    heard: list[int] = []

    async def whole() -> None:
        watch = FileWatch(str(path), lambda: heard.append(1))
        watch.start()
        for change in changes:
            heard.clear()
            change()
            await until(lambda: heard, seconds=5)
            await asyncio.sleep(0.1)
        watch.close()

    check_leaks(whole())


def test_every_symlink_on_the_way_is_watched(tmp_path: Path) -> None:
    """Directories of links, of the target, and of what is missing; a loop of links ends."""
    (tmp_path / "real").mkdir()
    (tmp_path / "a").symlink_to("real")
    (tmp_path / "real/pods.json").symlink_to("../b/./x")
    (tmp_path / "b").symlink_to("b")

    assert directories(str(tmp_path / "a/pods.json")) == {str(tmp_path), str(tmp_path / "real")}
    assert directories(str(tmp_path / "none/x/pods.json")) == {str(tmp_path)}
