"""Wrong configuration: every problem is one clear sentence, and nothing whatever crashes the loader."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.config import Loaded, load
from nodeagent.errors import ConfigError
from tests.config_checks import ENVIRONMENT, KNOWN

BAD = [
    ("top = 1", "top: unknown key outside any section; the nearest is"),
    ("[gpus]", "gpus: unknown section; did you mean gpu?"),
    ("[shape]\nenabled = true", "shape: unknown section; the nearest is"),
    ("[pods]\nsource = 'apis'", '"auto", "api", "kubelet", "file" or "none"'),
    ("[cluster]\nkubeconfig = 'k'", "an absolute path"),
    ("[pods]\nkubelet_url = 'http://127.0.0.1:10250'", "https://HOST:PORT"),
    ("[network]\nuplinks = []", 'a list of device names, or ["auto"]'),
    ("[network]\nuplinks = ['eth0/1']", 'a list of device names, or ["auto"]'),
    ("[network]\nextra_cluster_cidrs = ['10.0.0.1/8']", "a list of prefixes like"),
    ("[network]\nextra_cluster_cidrs = ['10.0.0.1']", "a list of prefixes like"),
    ("[network]\ninternet_budget = 'fast'", "a Kubernetes Quantity in bits/s"),
    ("[network]\ninternet_budget = '999'", "1k to 1P"),
    ("[network]\npod_limit = '2P'", "1k to 1P"),
    ("[network]\nnamespaces = 3", 'network.namespaces = 3: must be sections: [network.namespaces."NAME"]'),
    ("[network.namespaces]\nteam = 3", "network.namespaces.team = 3: must be a section"),
    ("[network.namespaces.Team_A]\nlimit = '1M'", "the key must be the name of a namespace"),
    (
        "[network.namespaces.team]\nlimits = '1M'",
        "network.namespaces.team.limits: unknown key; did you mean limit?",
    ),
    (
        "[network.namespaces.team]\nlimit = 'fast'",
        'network.namespaces.team.limit = "fast": must be a Kubernetes',
    ),
    (
        "[network.namespaces.team]\nlimit = '1M'\nguarantee = '2M'",
        'network.namespaces.team.guarantee = "2M": must be at most the limit, 1M',
    ),
    ("[network]\nmark_mask = 0x100000000", "a mask of 32 bits"),
    ("[cluster.brake]\nslots = 5", "cluster.brake: unknown key; the nearest is"),
    ("gpu = 3", "gpu = 3: must be a section: [gpu]"),
    ("checks = 3", "checks = 3: must be a section: [checks]"),
    ("[node]\nnam = 'a'", "node.nam: unknown key; did you mean name?"),
    (
        "[node]\nname = 'Bad_Name'",
        'node.name = "Bad_Name": must be the lower-case DNS name of the Node object',
    ),
    ('[node]\nname = "a\\n"', 'node.name = "a\\n": must be the lower-case DNS name'),
    ("[node]\ndry_run = 'yes'", 'node.dry_run = "yes": must be true or false'),
    ("[node]\ndry_run = 1", "node.dry_run = 1: must be true or false"),
    ("[node]\nhost_root = 'host'", 'node.host_root = "host": must be an absolute path'),
    ("[node]\nexpected_count = 8", "node.expected_count: unknown key; it belongs to section [gpu]"),
    ("[gpu]\nenabled = 'on'", 'gpu.enabled = "on": must be "auto", "true" or "false"'),
    ("[gpu]\nexpected_count = 8.0", "gpu.expected_count = 8.0: must be a whole number from 0 to 1024"),
    ("[gpu]\nexpected_count = true", "gpu.expected_count = true: must be a whole number from 0 to 1024"),
    ("[gpu]\nexpected_count = -1", "gpu.expected_count = -1: must be a whole number from 0 to 1024"),
    ("[gpu]\npoll_seconds = 0", "gpu.poll_seconds = 0: must be a number from 1 to 3600"),
    ("[gpu]\npoll_seconds = '15s'", 'gpu.poll_seconds = "15s": must be a number from 1 to 3600'),
    ("[gpu]\npoll_seconds = inf", "gpu.poll_seconds = inf: must be a number from 1 to 3600"),
    ("[gpu]\npoll_seconds = nan", "gpu.poll_seconds = nan: must be a number from 1 to 3600"),
    ("[gpu]\npoll_seconds = 2020-01-01", 'gpu.poll_seconds = "2020-01-01": must be a number from 1 to 3600'),
    ("[gpu]\nxid = 3", "gpu.xid = 3: must be a section: [gpu.xid]"),
    ("[gpu.xid]\nx63 = 'app'", 'gpu.xid.x63 = "app": the key must be an Xid number'),
    ("[gpu.xid]\n063 = 'app'", 'gpu.xid.063 = "app": the key must be an Xid number'),
    (
        "[gpu.xid]\n63 = 'warn'",
        'gpu.xid.63 = "warn": must be "ignore", "app", "check", "reset", "reboot" or "ve',
    ),
    ("[cluster]\ntaint_prefix = 'a/b'", 'cluster.taint_prefix = "a/b": must be a lower-case DNS name'),
    ("[cluster]\ntaint_prefix = ''", 'cluster.taint_prefix = "": must be a lower-case DNS name'),
    (
        "[status]\nsocket = 'run.sock'",
        'status.socket = "run.sock": must be an absolute path of at most 107 bytes',
    ),
    (f"[status]\nsocket = '/{'x' * 107}'", "must be an absolute path of at most 107 bytes"),
    ("[status]\nmetrics_listen = ':9469'", 'status.metrics_listen = ":9469": must be address:port'),
    ("[status]\nmetrics_listen = '127.0.0.1'", "must be address:port"),
    ("[status]\nmetrics_listen = '127.0.0.1:0'", "must be address:port"),
    ("[status]\nmetrics_listen = '127.0.0.1:65536'", "must be address:port"),
    ("[status]\nmetrics_listen = '127.0.0.999:80'", "must be address:port"),
    ("[status]\nmetrics_listen = '[::g]:80'", "must be address:port"),
    (
        "[checks.disk.full]\nenabled = true",
        'checks.disk: unknown check; write the id in quotes: [checks."disk.full"]',
    ),
    ('[checks."disk.ful"]', 'checks."disk.ful": unknown check; did you mean disk.full?'),
    ('[checks]\n"disk.full" = 3', 'checks."disk.full" = 3: must be a section: [checks."disk.full"]'),
    ('[checks."disk.full"]\nclas = "app"', 'checks."disk.full".clas: unknown key; did you mean class?'),
    ('[checks."clock.sync"]\navailable_percent = 1', "available_percent: unknown key; the nearest is"),
    (
        '[checks."disk.full"]\nclass = "bad"',
        '.class = "bad": must be "ignore", "app", "check", "reset", "reb',
    ),
    ('[checks."disk.full"]\nbad_polls = 0', ".bad_polls = 0: must be a whole number from 1 to 100"),
    (
        '[checks."disk.full"]\nminimum_seconds = -1',
        ".minimum_seconds = -1: must be a number from 0 to 604800",
    ),
    ('[checks."disk.full"]\nbad_polls = 4', "bad_polls = 4 of of_polls = 3 can never be met"),
    ('[checks."disk.full"]\nof_polls = 1', "bad_polls = 2 of of_polls = 1 can never be met"),
    (
        '[checks."disk.full"]\navailable_percent = 101',
        ".available_percent = 101: must be a number from 0 to 100, in",
    ),
    ('[checks."disk.full"]\navailable_percent = -1', "must be a number from 0 to 100, in percent"),
    ('[checks."disk.full"]\navailable_percent = nan', "must be a number from 0 to 100, in percent"),
    ('[checks."disk.full"]\navailable_percent = "5"', "must be a number from 0 to 100, in percent"),
    ('[checks."disk.full"]\ncount = 1.5', ".count = 1.5: must be a whole number from 0 on, in files"),
    ('[checks."disk.full"]\ncount = true', ".count = true: must be a whole number from 0 on, in files"),
    ('[checks."disk.full"]\nstrict = 1', ".strict = 1: must be true or false"),
    ('[checks."disk.full"]\nignored_mounts = "/mnt"', "must be a list of texts in quotes"),
    (
        '[checks."disk.full"]\nignored_mounts = [1]',
        ".ignored_mounts = [1]: must be a list of texts in quotes",
    ),
    ('[checks."disk.full"]\nunit_name = 3', ".unit_name = 3: must be text in quotes"),
    ("[gpu\n", "is not valid TOML: Expected ']'"),
    ("[gpu]\nenabled = 'auto'\nenabled = 'auto'", "is not valid TOML: Cannot overwrite a value"),
    ("\N{ZERO WIDTH NO-BREAK SPACE}[gpu]", "begins with a byte order mark"),
    ("a = " + "[" * 5000, "nests tables or lists too deeply"),
    ("a = " + "9" * 5000, "holds a value that cannot be read"),
    ("a = 0x" + "f" * 5000, "a: unknown key outside any section"),
    (
        "[gpu]\npoll_seconds = 0x" + "f" * 5000,
        "gpu.poll_seconds = a value too large to show: must be a number",
    ),
    ('[checks."disk.full"]\navailable_percent = 0x' + "f" * 5000, "must be a number from 0 to 100"),
]


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


@pytest.mark.parametrize(("text", "expected"), BAD, ids=[str(row) for row in range(len(BAD))])
def test_a_bad_key_or_value_is_one_clear_sentence(
    write: Callable[..., str], text: str, expected: str
) -> None:
    """The sentence names the file, the key, the value and what would be right, on one line."""
    path = write(text)

    problems = _problems(path)

    assert len(problems) == 1
    assert problems[0].startswith(f"{path}: ")
    assert expected in problems[0]
    assert problems[0].isprintable()


def test_all_problems_of_all_files_are_shown_at_once(write: Callable[..., str], tmp_path: Path) -> None:
    """An operator repairs a file once, not once per error."""
    path = write("[gpu]\npoll_seconds = 0\nfoo = 1\n", x="[node]\nname = 3\n", y="[gpu\n")

    problems = _problems(path)

    assert [problem.split(": ")[0].rsplit("/", 1)[1] for problem in problems] == [
        "nodeagent.toml",
        "nodeagent.toml",
        "x.toml",
        "y.toml",
    ]


def test_a_bad_value_is_an_error_even_where_a_later_file_replaces_it(write: Callable[..., str]) -> None:
    """A wrong line must not wait until the fragment above it is removed."""
    assert len(_problems(write("[gpu]\npoll_seconds = 0\n", x="[gpu]\npoll_seconds = 5\n"))) == 1


def test_thousands_of_problems_are_cut(write: Callable[..., str]) -> None:
    """A file of the wrong kind fills no terminal."""
    problems = _problems(write("\n".join(f"key{number} = 1" for number in range(1000))))

    assert len(problems) == 201
    assert problems[-1] == "and 800 more problems"


def test_control_characters_never_reach_the_terminal(write: Callable[..., str]) -> None:
    """A key or value with escape sequences or newlines is shown escaped."""
    problems = _problems(write('[gpu]\n"\\u001b[31m\\n" = 1\nenabled = "\\u001b[2J\\u202e"\n'))

    assert all(problem.isprintable() for problem in problems)


def _make_directory(path: Path) -> None:
    path.mkdir()


def _make_fifo(path: Path) -> None:
    os.mkfifo(path)


def _make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1024 * 1024 + 1)


def _make_latin1(path: Path) -> None:
    path.write_bytes(b'[node]\nname = "caf\xe9"\n')


def _make_loop(path: Path) -> None:
    path.symlink_to(path)


def _make_nothing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (_make_directory, "is a directory; name a TOML file"),
        (_make_fifo, "is not a regular file; name a TOML file"),
        (_make_huge, "is larger than 1 MiB"),
        (_make_latin1, "is not UTF-8 text (byte 19); save it as UTF-8"),
        (_make_loop, "cannot be read: too many levels of symbolic links"),
        (_make_nothing, "cannot be read: no such file"),
    ],
)
def test_a_file_that_is_none_is_one_sentence(
    tmp_path: Path, make: Callable[[Path], None], expected: str
) -> None:
    """Odd files at an explicit path neither block nor crash."""
    path = tmp_path / "odd.toml"
    make(path)

    (problem,) = _problems(str(path))

    assert problem.startswith(f"{path}: {expected}")


def test_a_path_with_a_null_byte_is_one_sentence() -> None:
    """The kernel's refusal of a path is no traceback."""
    (problem,) = _problems("/etc/\0x")

    assert problem == "/etc/?x: cannot be read: embedded null byte"


_leaf = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=8), st.integers(), max_size=3),
)
_names = st.one_of(
    st.sampled_from(
        [
            "node",
            "gpu",
            "xid",
            "checks",
            "disk.full",
            "cluster",
            "status",
            "name",
            "enabled",
            "class",
            "bad_polls",
            "socket",
            "available_percent",
            "count",
        ]
    ),
    st.text(max_size=8),
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        _names,
        st.one_of(
            _leaf,
            st.dictionaries(_names, st.one_of(_leaf, st.dictionaries(_names, _leaf, max_size=4)), max_size=4),
        ),
        max_size=4,
    )
)
def test_any_tables_become_settings_or_sentences(tables: dict[str, object]) -> None:
    """No table whatever crashes the reader."""
    from nodeagent.config.keys import Reader

    reader = Reader(KNOWN)
    reader.read("file", tables)
    reader.judge_holds()
    reader.name_node(ENVIRONMENT)

    assert all(problem.isprintable() for problem in reader.problems)
    if not reader.problems:
        assert reader.settings().node.name


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_become_settings_or_sentences(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """No file content whatever crashes the loader."""
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_bytes(data)

    try:
        loaded = _load(str(path))
    except ConfigError as error:
        assert error.problems
        assert all(problem.isprintable() for problem in error.problems)
    else:
        assert loaded.files == (str(path),)
