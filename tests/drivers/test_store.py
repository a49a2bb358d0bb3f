"""The state file: atomic, and set aside when it cannot be used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.drivers.store import SET_ASIDE_KEPT, Store
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.memory import MEMORY_SCHEMA, Memory

UNUSABLE = [
    ("empty", b"", "not a state file"),
    ("torn", b'{"schema":1,"node_name":"a","holds":{"x', "not a state file"),
    ("not JSON", b"\x00\xff\xfe", "not a state file"),
    ("JSON of another kind", b"[1,2]", "not a state file"),
    ("wrong types", b'{"schema":1,"holds":[]}', "not a state file"),
    ("newer", msgspec.json.encode({"schema": MEMORY_SCHEMA + 1, "what": 1}), "newer"),
    ("another node's", msgspec.json.encode(Memory(node_name="b")), "belongs to node 'b'"),
]


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    """A memory comes back equal, and no temporary file stays."""
    store = Store(str(tmp_path / "deep" / "memory.json"))
    memory = Memory(node_name="a", boot_id="b1", last_poll_seconds={"x|node": 1.5})
    store.save(memory)

    assert store.load("a") == (memory, "")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["memory.json"]


def test_no_file_is_an_empty_memory(tmp_path: Path) -> None:
    """A first start has nothing to remember and nothing to complain about."""
    assert Store(str(tmp_path / "memory.json")).load("a") == (Memory(node_name="a"), "")


@pytest.mark.parametrize(("name", "content", "reason"), UNUSABLE, ids=[row[0] for row in UNUSABLE])
def test_an_unusable_file_is_kept_aside(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    """The agent starts empty, says why, and the file's bytes are still there to look at."""
    path = tmp_path / "memory.json"
    path.write_bytes(content)
    memory, set_aside = Store(str(path)).load("a")
    kept = tmp_path / "memory.json.bad-0"

    assert (memory, reason in set_aside, str(kept) in set_aside) == (Memory(node_name="a"), True, True), name
    assert (kept.read_bytes(), path.exists()) == (content, False)


def test_a_crash_loop_cannot_fill_the_disk_with_kept_files(tmp_path: Path) -> None:
    """At most a few set-aside files stay, the newest among them."""
    path = tmp_path / "memory.json"
    for number in range(SET_ASIDE_KEPT + 4):
        path.write_text(f"garbage {number}")
        Store(str(path)).load("a")
    kept = sorted(p.read_text() for p in tmp_path.iterdir())

    assert len(kept) == SET_ASIDE_KEPT
    assert f"garbage {SET_ASIDE_KEPT + 3}" in kept


def test_a_failed_write_leaves_the_old_file_whole(tmp_path: Path) -> None:
    """What cannot be written is a DriverError, and the last good file still loads."""
    path = tmp_path / "memory.json"
    store = Store(str(path))
    store.save(Memory(node_name="a"))
    (tmp_path / "memory.json.new").mkdir()
    with pytest.raises(DriverError):
        store.save(Memory(node_name="a", boot_id="b2"))

    assert store.load("a") == (Memory(node_name="a"), "")


def test_an_unreadable_path_is_a_driver_error(tmp_path: Path) -> None:
    """A directory in the file's place is reported by kind and path, not by a traceback."""
    with pytest.raises(DriverError) as failure:
        Store(str(tmp_path)).load("a")

    assert (failure.value.kind, failure.value.target) == (ErrorKind.INVALID, str(tmp_path))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_what_is_no_file_is_neither_read_renamed_nor_replaced(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """A pipe never blocks the start, and what is not ours stays in its place."""
    path = tmp_path / "memory.json"
    make(path)
    store = Store(str(path))
    for attempt in (lambda: store.load("a"), lambda: store.save(Memory(node_name="a"))):
        with pytest.raises(DriverError) as failure:
            attempt()
        assert failure.value.kind is ErrorKind.INVALID

    assert not path.is_file() and path.exists()


def test_a_file_that_could_not_be_read_survives_the_first_save(tmp_path: Path) -> None:
    """It may hold a fault; it is kept beside the new one, once."""
    path = tmp_path / "memory.json"
    path.write_text("unread")
    store = Store(str(path), keep_unread=True)
    for boot_id in ("b1", "b2"):
        store.save(Memory(node_name="a", boot_id=boot_id))

    assert (tmp_path / "memory.json.bad-0").read_text() == "unread"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["memory.json", "memory.json.bad-0"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_no_bytes_make_the_load_fail(tmp_path: Path, content: bytes) -> None:
    """Whatever is in the file, the agent starts."""
    path = tmp_path / "memory.json"
    path.write_bytes(content)

    assert Store(str(path)).load("a")[0].node_name in ("a", "")
