"""The command line against a real status server: exit codes, JSON, text, and the way to the daemon."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli import main
from nodeagent.report import status
from nodeagent.report.given import ReportInput
from nodeagent.report.server import StatusServer
from tests.report import scenes
from tests.report.serving import SceneSurface, running

PROGRAM = [sys.executable, "-m", "nodeagent"]


Ask = Callable[..., int]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: a socket's is limited to 107 bytes."""
    return tmp_path_factory.mktemp("c")


@pytest.fixture
def surface() -> SceneSurface:
    """A broken node."""
    return SceneSurface(scenes.broken())


@pytest.fixture
def ask(folder: Path, surface: SceneSurface) -> Iterator[Ask]:
    """Run one command line against a served scene; returns the exit code."""
    with running(StatusServer(surface, socket_path=str(folder / "a.sock"))):
        yield lambda *words: main(["--socket", str(folder / "a.sock"), *words])


@pytest.mark.parametrize(
    ("scene", "code"), [(scenes.quiet, 0), (scenes.broken, 2), (scenes.worn, 1), (scenes.starting, 3)]
)
def test_the_exit_code_of_status_is_the_verdict(
    ask: Ask, surface: SceneSurface, scene: Callable[[], ReportInput], code: int
) -> None:
    """0 ok, 1 warning, 2 critical, 3 unknown."""
    surface.scene = scene()

    assert ask("status") == status.build_status(surface.scene).exit_code == code


def test_status_prints_the_screen(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    """The text begins with the node and its verdict and has no colour in a pipe."""
    ask("status")

    printed = capsys.readouterr().out
    assert "CRITICAL" in printed.splitlines()[0]
    assert "\x1b" not in printed


def test_json_is_the_daemons_own_answer(
    ask: Ask, surface: SceneSurface, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status --json` changes nothing of what came over the socket."""
    assert ask("status", "--json") == 2

    assert capsys.readouterr().out.encode() == surface.status_json() + b"\n"


def test_check_asks_for_the_ids_it_was_given(
    ask: Ask, surface: SceneSurface, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon reads now and answers those rows; the last line repeats the exit code."""
    code = ask("check", "ecc.uncorrected", "gpu.lost")

    assert surface.asked == [("ecc.uncorrected", "gpu.lost")]
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"exit {code}")


def test_check_json_is_schema_v1(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    """One object, schema first, rows under `checks`."""
    ask("check", "--json")

    answer = json.loads(capsys.readouterr().out)
    assert next(iter(answer)) == "schema"
    assert answer["schema"] == "nodeagent/check/v1"
    assert {"id", "state", "target"} <= set(answer["checks"][0])


def test_history_hands_the_window_on(ask: Ask, surface: SceneSurface) -> None:
    """--since 1h30m is 5400 seconds, and no --since is everything."""
    assert ask("history", "--since", "1h30m") == 0
    assert ask("history") == 0

    assert surface.asked == [5400.0, None]


@pytest.mark.parametrize(
    ("words", "verb", "field", "value"),
    [
        (("release", "--for", "15m"), "release", "for_seconds", 900.0),
        (("release",), "release", "for_seconds", None),
        (("resume",), "resume", "for_seconds", None),
        (("repaired", "0000:4e:00.0", "--reason", "new board"), "repaired", "reason", "new board"),
    ],
)
def test_gpu_commands_reach_the_daemon(
    ask: Ask,
    surface: SceneSurface,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    verb: str,
    field: str,
    value: Any,
) -> None:
    """Verb and fields arrive, and the daemon's sentence is printed."""
    assert ask("gpu", *words) == 0

    assert (surface.asked[0].verb, getattr(surface.asked[0], field)) == (verb, value)
    assert capsys.readouterr().out == "done\n"


def test_a_command_that_is_refused_fails_with_the_daemons_sentence(
    ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the daemon could not do is exit 69 and its own words."""
    assert ask("gpu", "repaired", "gone", "--reason", "x") == 69

    assert capsys.readouterr().err == "nodeagent: done\n"


def test_an_answer_of_another_version_is_said(
    ask: Ask, surface: SceneSurface, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON that does not fit is one sentence and unknown, not a traceback."""
    monkeypatch.setattr(SceneSurface, "status_json", lambda self: b'{"schema":"nodeagent/status/v9"}')

    assert ask("status") == 3

    assert "not what this version reads" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["before", "after"])
def test_global_options_stand_before_or_after_the_command(
    folder: Path, ask: Ask, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both orders mean the same, and a default of one place never hides the other."""
    option = ["--socket", str(folder / "a.sock")]

    assert main([*option, "status"] if place == "before" else ["status", *option]) == 2


def test_the_socket_comes_from_the_configuration(folder: Path, ask: Ask) -> None:
    """Without --socket the configured one is asked, even while the file has errors elsewhere."""
    file = folder / "nodeagent.toml"
    file.write_text(f"[status]\nsocket = '{folder / 'a.sock'}'\n[gpu]\nfoo = 1\n")

    assert main(["--config", str(file), "status"]) == 2


UNREACHABLE = [
    (("status",), 3), (("history",), 69), (("gpu", "resume"), 69), (("gpu", "release", "--for", "5m"), 69),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code"), UNREACHABLE)
def test_no_daemon_is_said_with_socket_cause_and_two_commands(
    folder: Path, words: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person learns where was asked, what is likely wrong, and what to try."""
    path = folder / "none.sock"

    assert main(["--socket", str(path), *words]) == code

    first, *tries = capsys.readouterr().err.splitlines()
    assert first.startswith(f"nodeagent: {path}: no such socket: the agent does not run")
    assert [line.strip() for line in tries] == [
        "try:  systemctl status nodeagent", "journalctl -t nodeagent -n 20",
    ]  # fmt: skip


def test_a_killed_daemon_is_told_from_an_absent_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A socket file that nobody answers on points to a crash."""
    path = folder / "dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    assert main(["--socket", str(path), "status"]) == 3
    assert "nobody answers on it: the agent was killed" in capsys.readouterr().err


def test_unreachable_json_is_one_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script gets JSON in every case."""
    assert main(["--socket", str(folder / "none.sock"), "status", "--json"]) == 3

    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["exit_code"]) == ("nodeagent/error/v1", 3)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user: sudo make test")
def test_a_user_without_permission_gets_77(folder: Path, ask: Ask) -> None:
    """Who is neither root nor in the group is told so."""
    path = folder / "a.sock"
    for parent in (folder, *folder.parents):
        if parent != Path("/") and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)

    # A child of this process: the interpreter of another user could not read this checkout.
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        os._exit(main(["--socket", str(path), "status"]))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77


def test_status_loads_nothing_heavy(folder: Path, ask: Ask) -> None:
    """What makes a start slow stays out of the commands typed in a hurry."""
    code = (
        "import sys; from nodeagent.cli import main; main(sys.argv[1:]);"
        "print([m for m in ('asyncio', 'http.client', 'structlog', 'prometheus_client', 'psutil', 'h11',"
        " 'tomllib', 'nodeagent.daemon', 'nodeagent.decide') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--socket", str(folder / "a.sock"), "status"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert done.stderr == "[]\n"
    assert done.stdout.startswith("gpu-a17")


@pytest.mark.parametrize("redirect", ["| head -n 0", ">&-", "| true", "2>&- >&-"])
def test_a_reader_that_goes_away_is_no_error(folder: Path, ask: Ask, redirect: str) -> None:
    """`| head` and a closed stdout print no traceback and keep the exit code."""
    command = f'"{sys.executable}" -m nodeagent --socket {folder}/a.sock status {redirect}'
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_full_disk_is_one_sentence(folder: Path, ask: Ask, buffered: str) -> None:
    """Output that cannot be written is said, and the exit code is still that of the command."""
    unbuffered = f"PYTHONUNBUFFERED={'' if buffered else '1'}"
    command = f'{unbuffered} "{sys.executable}" -m nodeagent --socket {folder}/a.sock status > /dev/full'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (
        3, "nodeagent: output cannot be written: No space left on device\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("option", "environment", "colored"),
    [
        ("auto", {}, False),
        ("always", {}, True),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {}, False),
    ],
)
def test_color_is_obeyed(
    ask: Ask,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    environment: dict[str, str],
    colored: bool,
) -> None:
    """--color outranks NO_COLOR; a pipe is plain by itself."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    ask("status", "--color", option)

    assert ("\x1b[" in capsys.readouterr().out) is colored


@pytest.mark.parametrize(("no_color", "colored"), [("", True), ("1", False)])
def test_a_terminal_is_colored_unless_no_color(folder: Path, ask: Ask, no_color: str, colored: bool) -> None:
    """auto means: a terminal gets colour, NO_COLOR takes it away."""
    leader, follower = os.openpty()
    environment = os.environ | {"TERM": "xterm", "NO_COLOR": no_color}
    subprocess.run(
        [*PROGRAM, "--socket", str(folder / "a.sock"), "status"],
        stdout=follower, env=environment, timeout=60, check=False,
    )  # fmt: skip
    os.close(follower)
    printed = b""
    try:
        while piece := os.read(leader, 65536):
            printed += piece
    except OSError:
        pass  # the terminal's other end is closed
    os.close(leader)

    assert (b"\x1b[" in printed) is colored
