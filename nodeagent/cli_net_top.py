"""The live table of `nodeagent net top`: keys in, screens out, and a terminal that is left as it was.

Without a terminal, or with --once, it prints one table and ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

from nodeagent.cli_common import OK, out, terminal_width
from nodeagent.report.net_schema import NetTopReport
from nodeagent.report.render_net import TopView, press, render_top

PERIOD_SECONDS = 2.0
"""Between two reads: what the daemon takes for one of them while nothing else happens."""
FRAME_LINES = 10
"""Lines that are not pods: head, columns left out, sums, budget, caveats, the line of keys."""
FEWEST_ROWS = 3
_ENTER_SCREEN, _LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
Fetch = Callable[[], NetTopReport]


def top(fetch: Fetch, *, once: bool, by_namespace: bool, verbose: bool) -> int:
    """Show until q; `fetch` asks the daemon and raises CliError."""
    view = TopView(by_namespace=by_namespace)
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        before = fetch()
        time.sleep(PERIOD_SECONDS)
        width = 10_000 if verbose or not sys.stdout.isatty() else terminal_width()
        out(render_top(fetch(), before, view=view, width=width, verbose=verbose))
        return OK
    with _raw_terminal() as descriptor:
        _live(fetch, view, descriptor, verbose=verbose)
    return OK


def _live(fetch: Fetch, view: TopView, descriptor: int, *, verbose: bool) -> None:
    before, report = None, fetch()
    due_seconds = time.monotonic() + PERIOD_SECONDS
    while not view.ended:
        out(_screen(report, before, view, verbose=verbose))
        wait_seconds = max(0.0, due_seconds - time.monotonic())
        if select.select([descriptor], [], [], wait_seconds)[0]:
            for key in os.read(descriptor, 64).decode("utf-8", "replace"):
                view = press(view, key)
            continue
        if report.network.mode != "off":
            latest = fetch()
            if latest.marks_read_seconds != report.marks_read_seconds:
                before, report = report, latest
        due_seconds = time.monotonic() + PERIOD_SECONDS


def _screen(report: NetTopReport, before: NetTopReport | None, view: TopView, *, verbose: bool) -> str:
    height = os.get_terminal_size(1).lines
    table = render_top(
        report, before, view=view, width=terminal_width(), rows=max(FEWEST_ROWS, height - FRAME_LINES),
        verbose=verbose,
    )
    shown = f"filter: {view.pattern}{'_' if view.typing else ''}  " if view.typing or view.pattern else ""
    keys = f"{shown}sorted by {view.sort}; s sort, / filter, q quit"
    lines = [f"{line}{_CLEAR_LINE}" for line in [*table.splitlines(), "", keys[: terminal_width() - 1]]]
    return _HOME + "\r\n".join(lines) + _CLEAR_BELOW


@contextlib.contextmanager
def _raw_terminal() -> Iterator[int]:
    """Standard input key by key on a screen of its own; everything as before at the end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        out(_ENTER_SCREEN)
        yield descriptor
    finally:
        out(_LEAVE_SCREEN)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
