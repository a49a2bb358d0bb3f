"""Where the demo is shown: a terminal, or a stream of text. Draws, and decides nothing."""

from __future__ import annotations

import shutil
import sys
import textwrap

HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
CLEAR_SCREEN = "\x1b[2J"


class Screen:
    """A terminal in which each frame replaces the one before; elsewhere frames follow each other."""

    def __init__(self) -> None:
        self.in_place = sys.stdout.isatty()
        if self.in_place:
            self._write(CLEAR_SCREEN)

    @property
    def width(self) -> int:
        """Columns to draw in."""
        return min(shutil.get_terminal_size((100, 40)).columns, 120)

    def draw(self, heading: str, caption: str, command: str, answer: str) -> None:
        """One frame: what is told, a command, and its answer."""
        told = textwrap.fill(caption, self.width - 2, initial_indent="  ", subsequent_indent="  ")
        frame = f"{heading}\n{told}\n\n$ {command}\n{answer}\n"
        if self.in_place:
            lines = frame.replace("\n", f"{CLEAR_LINE}\n")
            self._write(f"{HOME}{lines}{CLEAR_BELOW}")
        else:
            self._write(frame)

    def note(self, text: str) -> None:
        """One line while nothing else can be shown; it replaces the frame before."""
        self._write(f"{HOME}{text}{CLEAR_LINE}\n{CLEAR_BELOW}" if self.in_place else f"{text}\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
