"""Wrong command lines: exit 64, one clear sentence, the nearest word; and what needs no daemon."""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent import __version__
from nodeagent.cli import _COMMANDS, _MODULES, duration_seconds, main, parse
from nodeagent.cli_common import CliError
from nodeagent.config import load
from nodeagent.decide.registry import registry

USAGE = [
    ("", "COMMAND is missing; try nodeagent status"),
    ("staus", "unknown command staus; did you mean status?"),
    ("xyzzy", "unknown command xyzzy; known are run, status, check"),
    ("status --jsn", "unknown option --jsn for status; did you mean --json?"),
    ("status now", "status takes no argument now"),
    ("--jsn status", "unknown option --jsn for status; did you mean --json?"),
    ("status --color=blue", "unknown value for --color blue; known are auto, always, never"),
    ("status --socket", "--socket: expected one argument"),
    ("history --since 6", "--since: 6 has no unit; write it like 90s, 15m, 1h30m or 2d"),
    ("history --since 6x", "--since: 6x is no duration"),
    ("history --since 0s", "--since: 0s is no time at all"),
    ("history --since -1h", "--since: expected one argument"),
    ("gpu", "VERB is missing"),
    ("gpu relase", "unknown gpu command relase; did you mean release?"),
    ("gpu release --for 8d", "--for can be at most 7d"),
    ("gpu repaired 0000:4e:00.0", "--reason is missing; say who repaired what"),
    ("gpu repaired 0000:4e:00.0 --reason=", "--reason is empty; say who repaired what"),
    ("explain", "WHAT is missing; name a check id"),
    ("explain gpu.lst", "nothing known of gpu.lst; did you mean gpu.lost?"),
    ("explain xid x", "nothing known of xid x; did you mean xid?"),
    ("check gpu.lst", "no check gpu.lst; did you mean gpu.lost?"),
    ("gpu release --fro 5m", "unknown option --fro for gpu release; did you mean --for?"),
    ("net", "VERB is missing"),
    ("net tpo", "unknown net command tpo; did you mean top?"),
    ("net show", "POD is missing; name a pod like namespace/name, or its uid"),
    ("net diff --once", "unknown option --once for net diff"),
    ("config sho", "unknown config command sho; did you mean show?"),
]


@pytest.mark.parametrize(("line", "sentence"), USAGE)
def test_wrong_usage_is_64_and_one_sentence(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never exit 2, which monitoring would read as CRITICAL."""
    assert main(line.split()) == 64

    printed = capsys.readouterr()
    assert printed.err.startswith(f"nodeagent: {sentence}")
    assert printed.out == ""


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["gpu", "release", "config", "check", "--json", "-v", "--for", "--since", "1h"]),
            st.text(max_size=10),
        ),
        max_size=5,
    )
)
def test_any_words_are_parsed_or_one_printable_sentence(words: list[str]) -> None:
    """No command line ends in a traceback or drives the terminal."""
    try:
        assert parse(words).command in _COMMANDS
    except CliError as error:
        assert error.exit_code == 64
        assert error.sentence.isprintable()
    except SystemExit as finished:
        assert finished.code == 0


@pytest.mark.parametrize("command", ["", *_COMMANDS])
def test_help_is_on_stdout_and_exit_0(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command explains itself."""
    assert main([*command.split(), "--help"]) == 0

    assert capsys.readouterr().out.startswith("usage: nodeagent")


def test_every_command_has_a_module() -> None:
    """The tree and the table of modules name the same commands."""
    assert set(_MODULES) == set(_COMMANDS)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("1h30m", 5400), ("2d", 172800), ("1d2h3m4s", 93784), ("007s", 7)],
)
def test_durations_add_up(text: str, seconds: int) -> None:
    """Units in falling order, each at most once."""
    assert duration_seconds(text) == seconds


NO_DURATIONS = ["", "1", "m", "1.5h", "30m1h", "1h1h", "-1h", " 1h", "1h ", "\uff11h", "1H", "9999999d"]


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(argparse.ArgumentTypeError, match="write it like 90s, 15m, 1h30m or 2d"):
        duration_seconds(text)


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """Text and JSON name the version."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"nodeagent {__version__}\n"

    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == __version__


# --------------------------------------------------------------------------- config


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with one value of each kind."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    path = tmp_path / "nodeagent.toml"
    path.write_text(
        "[node]\nname = 'gpu-a17'\n[gpu]\nexpected_count = 8\nenabled = true\n[gpu.xid]\n63 = 'ignore'\n"
        '[checks."disk.full"]\nclass = "reboot"\npaths = ["/var \\u202e", "/データ"]\n'
        "[status]\nmetrics_listen = ''\n"
    )
    return path


def test_config_show_means_the_same_when_read_again(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed is a configuration file with the same effect."""
    assert main(["config", "show", "--sources", "--config", str(file)]) == 0
    printed = capsys.readouterr().out
    again = tmp_path / "again.toml"
    again.write_text(printed)

    assert load(str(again), registry()).settings == load(str(file), registry()).settings
    assert f"expected_count = 8  # {file}" in printed
    assert "# poll_seconds = 15.0  # default" in printed
    assert tomllib.loads(printed)["gpu"] == {"enabled": "true", "expected_count": 8, "xid": {"63": "ignore"}}
    assert all(line.isprintable() for line in printed.splitlines())


def test_config_show_json_has_every_value_and_its_source(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts learn value and source of each key."""
    assert main(["config", "show", "--json", "--config", str(file)]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "nodeagent/config-show/v1"
    assert answer["settings"]["gpu.expected_count"] == {"value": 8, "source": str(file)}
    assert answer["settings"]["gpu.poll_seconds"] == {"value": 15.0, "source": "default"}
    assert answer["settings"]['checks."disk.full".class'] == {"value": "reboot", "source": str(file)}


def test_config_check_says_what_a_raised_class_means(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node check that taints is named with its taint."""
    assert main(["config", "check", "--config", str(file)]) == 0

    first, second = capsys.readouterr().out.splitlines()
    assert first == f"ok: {file}"
    assert "disk.full then taints this node with nodeagent.io/node-unhealthy:NoSchedule" in second


@pytest.mark.parametrize("command", ["config check", "config show", "check"])
def test_a_bad_configuration_is_78_with_every_problem(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All problems are shown, one a line."""
    file = tmp_path / "nodeagent.toml"
    file.write_text(f"[gpu]\npoll_seconds = 0\nfoo = 1\n[status]\nsocket = '{tmp_path}/none'\n")

    assert main([*command.split(), "--config", str(file)]) == 78

    lines = capsys.readouterr().err.splitlines()
    assert lines[-3] == "nodeagent: the configuration has 2 problems:"
    assert lines[-2] == f"{file}: gpu.poll_seconds = 0: must be a number from 1 to 3600"
    assert lines[-1].startswith(f"{file}: gpu.foo: unknown key; the nearest is ")


def test_config_check_json_carries_the_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts get the sentences as a list, and the same exit code."""
    file = tmp_path / "nodeagent.toml"
    file.write_text("[gpu]\npoll_seconds = 0\n")

    assert main(["config", "check", "--json", "--config", str(file)]) == 78

    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["ok"]) == ("nodeagent/config-check/v1", False)
    assert len(answer["problems"]) == 1
