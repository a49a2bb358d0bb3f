"""The runbook pages of the package, taken apart into what a person needs first.

Reads package data only. A page is Markdown with `## Section` headings; its front matter is not shown.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import NamedTuple

FIRST_COMMANDS = 3


class Page(NamedTuple):
    """One page: its text without front matter, and its sections by lower-case name."""

    text: str
    sections: dict[str, str]

    @property
    def commands(self) -> list[str]:
        """Command lines of Diagnosis, in order."""
        diagnosis = self.sections.get("diagnosis", "")
        found = []
        for block in re.findall(r"^ *```\w*\n(.*?)^ *```", diagnosis, re.DOTALL | re.MULTILINE):
            found += [line.strip() for line in block.splitlines() if line.strip()]
        return found


def load_page(check_id: str) -> Page | None:
    """The page of a check, None when the package has none."""
    file = resources.files("nodeagent").joinpath("runbooks", f"{check_id}.md")
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return parse_page(text)


def parse_page(text: str) -> Page:
    """Take the front matter off and cut at the headings."""
    if text.startswith("---\n"):
        text = text.partition("\n---\n")[2]
    name, sections = "", dict[str, str]()
    for line in text.splitlines():
        if line.startswith("## "):
            name = line[3:].strip().lower()
            sections[name] = ""
        elif name:
            sections[name] += f"{line}\n"
    return Page(text.strip() + "\n", {name: body.strip("\n") for name, body in sections.items()})
