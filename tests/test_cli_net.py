"""`nodeagent net` against a real status server: exit codes, JSON, and a terminal that is left as it was."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.cli import main
from nodeagent.report import schema
from nodeagent.report.given import ReportInput
from nodeagent.report.server import BadRequest, StatusServer
from nodeagent.report.traffic import build_diff, build_show, build_top, find_pod
from tests.report import net_scenes
from tests.report.serving import SceneSurface, running


class NetSurface(SceneSurface):
    """Answers with the reports of a scripted node; each question is two seconds later."""

    def __init__(self, scene: ReportInput) -> None:
        """Begin."""
        super().__init__(scene)
        self.seconds = 0

    async def net_top(self) -> bytes:
        """Counters that move."""
        self.seconds += 2
        return schema.encode(build_top(net_scenes.marked(self.seconds)))

    async def net_show(self, pod: str) -> bytes:
        """The pod, or a refusal."""
        uid = find_pod(self.scene, pod)
        if uid is None:
            raise BadRequest(f"no pod {pod} on this node")
        return schema.encode(build_show(self.scene, uid))

    async def net_diff(self) -> bytes:
        """What is pending in the scene."""
        return schema.encode(build_diff(self.scene, net_scenes.OPTIONS))


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: a socket's is limited to 107 bytes."""
    return tmp_path_factory.mktemp("t") / "a.sock"


@pytest.fixture
def surface(path: Path) -> Iterator[NetSurface]:
    """A served node on which everything is marked."""
    surface = NetSurface(net_scenes.marked())
    with running(StatusServer(surface, socket_path=str(path))):
        yield surface


def test_diff_exits_with_what_it_found(
    path: Path, surface: NetSurface, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 nothing, 1 something, 69 not known; text and JSON alike."""
    scenes = (net_scenes.marked(), net_scenes.half(), net_scenes.waiting())
    codes = []
    for surface.scene in scenes:
        codes += [main(["--socket", str(path), "net", "diff", *more]) for more in ((), ("--json",))]
        json.loads(capsys.readouterr().out.splitlines()[-1])

    assert codes == [0, 0, 1, 1, 69, 69]


def test_show_of_an_unknown_pod_is_64(
    path: Path, surface: NetSurface, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is no pod's is the asker's mistake; a name of any shape arrives as typed."""
    assert main(["--socket", str(path), "net", "show", "train/llama-0-worker-3"]) == 0
    assert main(["--socket", str(path), "net", "show", "a b&pod=c/\u00e4"]) == 64

    assert "no pod a b&pod=c/\u00e4 on this node" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["top", "--once"], ["show", "a/b"], ["top", "--json"]])
def test_without_a_daemon_it_is_69(path: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """These only the daemon knows."""
    assert main(["--socket", str(path), "net", *words]) == 69

    assert "no such socket" in capsys.readouterr().err


def test_one_table_has_rates(path: Path, surface: NetSurface, capsys: pytest.CaptureFixture[str]) -> None:
    """--once reads twice, two seconds apart, and colours nothing."""
    assert main(["--socket", str(path), "net", "top", "--once"]) == 0

    printed = capsys.readouterr().out
    assert "1.0 Gbit/s" in printed and "\x1b" not in printed and surface.seconds == 4


def test_the_live_table_answers_keys_and_leaves_the_terminal(path: Path, surface: NetSurface) -> None:
    """Filter, sort, quit: then the modes of the terminal are as before and the exit code is 0."""
    master, terminal = pty.openpty()
    try:
        termios.tcsetwinsize(terminal, (24, 120))
        before = termios.tcgetattr(terminal)
        command = [sys.executable, "-m", "nodeagent", "--socket", str(path), "net", "top"]
        process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
        try:
            expect(master, "q quit")
            os.write(master, b"/infer\n")
            expect(master, "filter: infer")
            os.write(master, b"s")
            expect(master, "sorted by in;")
            os.write(master, b"q")
            expect(master, "\x1b[?1049l")
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.wait()
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(master)
        os.close(terminal)


def expect(master: int, text: str) -> None:
    """Read the terminal until the text was written to it."""
    seen, end_seconds = "", time.monotonic() + 15
    while text not in seen:
        left_seconds = end_seconds - time.monotonic()
        ready = select.select([master], [], [], max(0.0, left_seconds))[0]
        assert ready, f"{text!r} not in {seen!r}"
        seen += os.read(master, 65536).decode("utf-8", "replace")
