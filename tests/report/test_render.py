"""What a person sees: golden screens, and the promises every screen keeps."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest

from nodeagent.model import NODE, Now, State
from nodeagent.report.render import (
    clean,
    duration,
    headline,
    render_check,
    render_history,
    render_status,
)
from nodeagent.report.status import build_check, build_history, build_status
from nodeagent.report.text import index_ranges
from tests.report import build, scenes

Golden = Callable[[str, str], str]
HISTORY = build.given(remembered=build.memory(history=scenes.HISTORY))
EVIL = "a\x1b[2J\x07b\r\nc\x9bd\u202ee\ud800f\u2028g\x00"


@pytest.mark.parametrize("scene", scenes.SCENES)
def test_status_screen_is_as_agreed(scene: str, golden: Golden) -> None:
    """The whole screen, letter by letter."""
    screen = render_status(build_status(scenes.SCENES[scene]()))

    assert screen == golden(f"status-{scene}.txt", screen)


@pytest.mark.parametrize("scene", ["broken", "two_xids", "worn"])
def test_verbose_status_is_as_agreed(scene: str, golden: Golden) -> None:
    """Everything the report holds, uncut."""
    screen = render_status(build_status(scenes.SCENES[scene]()), verbose=True)

    assert screen == golden(f"status-{scene}-verbose.txt", screen)


@pytest.mark.parametrize("scene", ["quiet", "broken", "all_lost", "no_gpu", "released"])
def test_check_table_is_as_agreed(scene: str, golden: Golden) -> None:
    """The whole table, letter by letter."""
    table = render_check(build_check(scenes.SCENES[scene](), duration_seconds=1.8))

    assert table == golden(f"check-{scene}.txt", table)


def test_history_is_as_agreed(golden: Golden) -> None:
    """One transition a line, oldest first."""
    lines = render_history(build_history(HISTORY))

    assert lines == golden("history.txt", lines)


def everything_differs() -> str:
    """Eight GPUs with five faults each, no two alike, and all else in trouble too."""
    rows = tuple(
        build.row(check, pci, State.CRITICAL, sentence=f"{check} says {i}", since=build.ago(i))
        for i, pci in enumerate(build.GPUS)
        for check in build.PER_GPU
    ) + tuple(build.row(f"disk.full.{i}", f"/{i}", State.WARNING, sentence=str(i)) for i in range(9))
    worn = scenes.worn()
    assert worn.decision is not None
    decision = msgspec.structs.replace(worn.decision, rows=rows, wanted_taints=(build.TAINT,))
    return render_status(build_status(msgspec.structs.replace(worn, decision=decision)))


def screens() -> dict[str, str]:
    """Every status screen, by name."""
    shown = {name: render_status(build_status(make())) for name, make in scenes.SCENES.items()}
    return shown | {"everything_differs": everything_differs()}


@pytest.mark.parametrize("scene", [*scenes.SCENES, "everything_differs"])
def test_status_fits_one_screen(scene: str) -> None:
    """24 lines with the prompt, 100 columns."""
    lines = screens()[scene].splitlines()

    assert len(lines) <= 23
    assert max(map(len, lines)) <= 100


def test_rows_that_do_not_fit_are_counted_and_the_command_is_given() -> None:
    """Nothing is left out silently."""
    assert re.search(r"^  and \d+ more: nodeagent status -v$", everything_differs(), re.MULTILINE)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("scene", scenes.SCENES)
def test_state_and_target_are_never_cut(scene: str, width: int) -> None:
    """On any terminal the sentence gives way, not the state, the check or the target."""
    report = build_status(scenes.SCENES[scene]())
    text = render_status(report, width=width)
    standing = [row for row in report.rows if row.state is State.CRITICAL and row.gpu_index == 3]

    assert all(f"CRITICAL  {row.id}" in text for row in standing)
    assert ("GPU 3 0000:4e:00.0" in text or "GPU 0-7" in text) == bool(standing or scene == "released")


@pytest.mark.parametrize("scene", scenes.SCENES)
def test_colour_adds_nothing_but_colour(scene: str) -> None:
    """Without its escapes a coloured screen is the plain one, and a plain one has none."""
    report = build_status(scenes.SCENES[scene]())
    colored, plain = render_status(report, color=True), render_status(report)

    assert "\x1b[" in colored
    assert "\x1b" not in plain
    assert plain == re.sub(r" +$", "", re.sub(r"\x1b\[[0-9;]*m", "", colored), flags=re.MULTILINE)


def test_equal_rows_of_all_gpus_become_one_line() -> None:
    """Eight GPUs that fail alike take one line, with the range of their indexes."""
    rows = build.rows(*(build.row("gpu.lost", pci, State.CRITICAL, sentence="gone") for pci in build.GPUS))
    text = render_status(build_status(build.given(State.CRITICAL, check_rows=rows)))

    assert [line.split() for line in text.splitlines() if "gone" in line] == [
        ["CRITICAL", "gpu.lost", "GPU", "0-7", "gone", "-"]
    ]


def test_stale_cycle_is_shouted() -> None:
    """When the loop stands still, the screen says that it is old."""
    report = build_status(build.given(now=Now(at=build.ago(-300))))

    assert "STALE     no cycle for 5 min: all below is that old\n" in render_status(report)


def test_dry_run_is_said_beside_the_taint() -> None:
    """Nobody takes a dry run for the real thing."""
    report = build_status(scenes.all_lost())
    taint = msgspec.structs.replace(report.taint, dry_run=True)
    text = render_status(msgspec.structs.replace(report, taint=taint))

    assert "Taint     would set nodeagent.io/gpu-unhealthy=xid:NoSchedule (dry run)\n" in text


def test_no_control_character_reaches_the_terminal() -> None:
    """What the kernel log or a pod's text holds cannot move the cursor, change colours or break lines."""
    row = build.row("xid", build.GPUS[3], State.CRITICAL, sentence=EVIL, value=EVIL, source=EVIL, limit=EVIL)
    history = tuple(msgspec.structs.replace(t, sentence=EVIL, target=EVIL) for t in scenes.HISTORY)
    xids = {k: msgspec.structs.replace(v, text=EVIL) for k, v in scenes.two_xids().memory.xids.items()}
    given = build.given(
        State.CRITICAL,
        check_rows=(row,),
        config_error=EVIL,
        remembered=build.memory(history=history, xids=xids),
    )
    texts = [
        render_status(build_status(given)),
        render_status(build_status(given), verbose=True),
        render_check(build_check(given)),
        render_history(build_history(given)),
        headline(build_status(given)),
    ]

    for text in texts:
        assert [c for c in text.replace("\n", "") if not c.isprintable()] == []
        text.encode("utf-8")
    assert "a?[2J?b  c?d?e?f?g?" in texts[0]


def test_clean_keeps_letters_of_every_language() -> None:
    """Only what steers a terminal is replaced."""
    assert clean("Zürich 東京 -> ok\x07") == "Zürich 東京 -> ok?"


DURATIONS = {
    0: "0 s",
    0.4: "0 s",
    59.9: "59 s",
    60: "1 min",
    3599: "59 min",
    3600: "1 h 00 min",
    86399: "23 h 59 min",
    86400: "1 d 00 h",
    525_600: "6 d 02 h",
    -3: "0 s",
    None: "-",
}


@pytest.mark.parametrize("seconds", DURATIONS)
def test_durations_have_two_parts_at_most(seconds: float | None) -> None:
    """Short enough for a column, exact enough for a decision."""
    assert DURATIONS[seconds] == duration(seconds)


def test_index_ranges_are_short() -> None:
    """Runs are joined, gaps are kept."""
    assert index_ranges([8, 0, 1, 2, 5, 7, 7]) == "0-2,5,7-8"


def test_headline_fits_the_service_manager() -> None:
    """`systemctl status` shows verdict, age and GPUs in one line."""
    assert headline(build_status(scenes.broken())) == "CRITICAL for 4 min; GPUs: 7 of 8 healthy, 1 faulty"


def test_check_repeats_the_exit_code_in_its_last_line() -> None:
    """A person sees what a script gets."""
    last = render_check(build_check(scenes.broken(), duration_seconds=1.8)).splitlines()[-1]

    assert (last.startswith("1 critical, 1 unknown, 1 pending, 43 ok in 1.8 s"), last.endswith("exit 2")) == (
        True,
        True,
    )


def test_check_without_rows_says_so() -> None:
    """A selection that matches nothing is no silent success."""
    assert "no rows in 0.0 s" in render_check(build_check(scenes.quiet(), ["no.such"]))


def test_empty_history_says_so() -> None:
    """An empty answer names the window that was asked for."""
    report = build_history(scenes.quiet(), since_seconds=3600)

    assert render_history(report) == "gpu-a17: no change of state remembered in the last 1 h 00 min\n"


def test_long_node_name_leaves_the_verdict_on_the_screen() -> None:
    """A name of 253 characters is cut, the verdict is not."""
    report = msgspec.structs.replace(build_status(scenes.broken()), node="n" * 253)
    first, second = render_status(report, width=80).splitlines()[:2]

    assert ("CRITICAL for 4 min" in first and len(first) <= 80, second.startswith("Agent     ")) == (
        True,
        True,
    )


def test_target_node_is_shown_as_node() -> None:
    """What concerns the whole node says so."""
    rows = (build.row("clock.unsynced", NODE, State.WARNING, sentence="the clock drifts"),)
    text = render_status(build_status(build.given(State.WARNING, check_rows=rows)))

    assert re.search(r"WARNING +clock.unsynced  node  the clock drifts", text)


def test_rendering_imports_nothing_heavier_than_msgspec() -> None:
    """The command line starts fast: no logger, no metrics, no event loop, no driver comes with it."""
    code = "import sys, nodeagent.report.render; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = set(loaded.stdout.split())
    heavy = {"structlog", "prometheus_client", "asyncio", "psutil", "pynvml", "logging", "h11"}

    assert modules & heavy == set()
    assert {m for m in modules if m.startswith("nodeagent.drivers")} == set()
