"""The configuration: good files become settings, bad ones become one clear sentence per problem."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.config import Loaded, consequences, load, socket_path
from nodeagent.errors import ConfigError
from nodeagent.model import NodeClass
from nodeagent.settings import Settings
from tests.config_checks import ENVIRONMENT, KNOWN


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write the main file and fragments; return the main file's path."""

    def _write(main: str | bytes = "", **fragments: str) -> str:
        (tmp_path / "conf.d").mkdir(exist_ok=True)
        data = main if isinstance(main, bytes) else main.encode()
        (tmp_path / "nodeagent.toml").write_bytes(data)
        for name, text in fragments.items():
            (tmp_path / "conf.d" / f"{name}.toml").write_text(text)
        return str(tmp_path / "nodeagent.toml")

    return _write


def _load(path: str | None) -> Loaded:
    return load(path, KNOWN, ENVIRONMENT)


def _problems(path: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        _load(path)
    return caught.value.problems


def test_a_full_file_becomes_settings(write: Callable[..., str]) -> None:
    """Every kind of key is taken over, typed and merged."""
    path = write(
        "[node]\ndry_run = true\n[gpu]\nenabled = false\nexpected_count = 8\npoll_seconds = 20\n"
        '[gpu.xid]\n63 = "ignore"\n"13" = "check"\n'
        '[checks."disk.full"]\nclass = "vendor"\nbad_polls = 3\navailable_percent = 7\n'
        'ignored_mounts = ["/a", "/b"]\nenabled = true\n'
        '[status]\nmetrics_listen = "[::1]:9000"\n'
    )

    found = _load(path).settings

    assert found.node.dry_run is True
    assert found.node.name == "gpu-a17"
    assert (found.gpu.enabled, found.gpu.expected_count, found.gpu.poll_seconds) == ("false", 8, 20.0)
    assert found.gpu.xid == {"63": NodeClass.IGNORE, "13": NodeClass.CHECK}
    disk = found.check("disk.full")
    assert (disk.node_class, disk.bad_polls, disk.of_polls) == (NodeClass.VENDOR, 3, None)
    assert disk.limits == {"available_percent": 7.0, "ignored_mounts": ("/a", "/b")}
    assert isinstance(disk.limits["available_percent"], float)
    assert found.status.metrics_listen == "[::1]:9000"


def test_no_file_at_the_default_path_means_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A node without any configuration runs on defaults."""
    monkeypatch.setattr("nodeagent.config.files.DEFAULT_PATH", str(tmp_path / "none" / "nodeagent.toml"))

    loaded = load(None, KNOWN, {})

    assert loaded.files == ()
    assert loaded.sources == {"node.name": "host name"}
    assert loaded.settings.node.name == socket.gethostname().lower()
    assert loaded.settings.gpu == Settings().gpu


def test_fragments_count_without_a_main_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """conf.d is read when the default main file is missing."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "gpu.toml").write_text("[gpu]\nexpected_count = 4\n")
    monkeypatch.setattr("nodeagent.config.files.DEFAULT_PATH", str(tmp_path / "nodeagent.toml"))

    assert _load(None).settings.gpu.expected_count == 4


def test_the_last_fragment_wins_and_sources_name_it(write: Callable[..., str], tmp_path: Path) -> None:
    """Fragments are merged key by key in order of name."""
    path = write(
        '[gpu]\nexpected_count = 1\npoll_seconds = 5\n[checks."disk.full"]\nbad_polls = 1\n',
        b='[gpu]\nexpected_count = 3\n[checks."disk.full"]\nof_polls = 5\n',
        a="[gpu]\nexpected_count = 2\n",
    )

    loaded = _load(path)

    assert loaded.settings.gpu.expected_count == 3
    assert loaded.settings.gpu.poll_seconds == 5.0
    assert (loaded.settings.check("disk.full").bad_polls, loaded.settings.check("disk.full").of_polls) == (
        1,
        5,
    )
    fragment = str(tmp_path / "conf.d" / "b.toml")
    assert loaded.sources["gpu.expected_count"] == fragment
    assert loaded.sources["gpu.poll_seconds"] == path
    assert loaded.sources['checks."disk.full".of_polls'] == fragment
    assert loaded.sources["node.name"] == "environment NODE_NAME"
    assert [Path(file).name for file in loaded.files] == ["nodeagent.toml", "a.toml", "b.toml"]


def test_hidden_and_foreign_files_in_conf_d_are_left_alone(write: Callable[..., str], tmp_path: Path) -> None:
    """An editor's lock file or a README beside the fragments is no configuration."""
    path = write("")
    (tmp_path / "conf.d" / ".#gpu.toml").symlink_to("nowhere")
    (tmp_path / "conf.d" / "README").write_text("not toml")

    assert _load(path).files == (path,)


@pytest.mark.parametrize("name", ["Bad Name", "a_b", "-a", "x" * 64, "a\n"])
def test_a_bad_node_name_in_the_environment_is_said(write: Callable[..., str], name: str) -> None:
    """NODE_NAME comes from a manifest and is judged like a file's value."""
    with pytest.raises(ConfigError, match=r"environment NODE_NAME = .*must be the lower-case DNS name"):
        load(write(""), KNOWN, {"NODE_NAME": name})


def test_a_name_in_a_file_outranks_the_environment(write: Callable[..., str]) -> None:
    """The operator's file is the last word on the node's name."""
    loaded = _load(write("[node]\nname = 'other'\n"))

    assert loaded.settings.node.name == "other"
    assert loaded.sources["node.name"].endswith("nodeagent.toml")


def test_raising_a_class_to_a_taint_is_explained(write: Callable[..., str]) -> None:
    """`config check` says what a harmless looking word does to the node."""
    loaded = _load(
        write(
            '[checks."disk.full"]\nclass = "reboot"\n'
            '[checks."clock.sync"]\nclass = "app"\n[gpu.xid]\n13 = "vendor"\n'
        )
    )

    said = consequences(loaded.settings, KNOWN)

    assert [sentence.split(":")[0] for sentence in said] == [
        'checks."disk.full".class = "reboot"',
        'gpu.xid.13 = "vendor"',
    ]
    assert "disk.full then taints this node with nodeagent.io/node-unhealthy:NoSchedule" in said[0]
    assert "no reset or reboot is needed" in said[0]
    assert "each Xid 13 then taints this node with nodeagent.io/gpu-unhealthy:NoSchedule" in said[1]
    assert "another GPU is in its place" in said[1]


def test_the_socket_is_found_while_the_rest_is_wrong(write: Callable[..., str]) -> None:
    """`nodeagent status` works while the operator repairs the files."""
    path = write("[gpu]\nfoo = 1\n[status]\nsocket = '/run/a.sock'\n", x="[status]\nsocket = 'bad'\n", y="[")

    assert socket_path(path) == "/run/a.sock"


def test_the_socket_has_a_default() -> None:
    """Without a word in any file the documented path stands."""
    assert socket_path(None) == Settings().status.socket


def test_a_missing_explicit_file_is_an_error_for_the_socket_too(tmp_path: Path) -> None:
    """A mistyped --config is said, not silently replaced by the default socket."""
    with pytest.raises(ConfigError, match="cannot be read: no such file"):
        socket_path(str(tmp_path / "none.toml"))
