"""Runbook pages: complete, short, and naming only commands that exist."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent import cli
from nodeagent.decide.registry import registry
from nodeagent.decide.xid_table import NUMBER_CHECKS
from nodeagent.report.events import CATALOGUE

PAGES = sorted((Path(__file__).parents[1] / "nodeagent" / "runbooks").glob("*.md"))
SECTIONS = ("Symptom", "Meaning", "Impact", "Diagnosis", "Mitigation", "Verify", "Escalate")
FRONT_MATTER = ("check", "severity", "owner", "last_exercised")
TOOLS = {
    "cat",
    "chronyc",
    "conntrack",
    "crictl",
    "curl",
    "df",
    "dmesg",
    "du",
    "ethtool",
    "findmnt",
    "getent",
    "ibstat",
    "ip",
    "ipset",
    "iptables-save",
    "journalctl",
    "kubectl",
    "ls",
    "lspci",
    "modprobe",
    "mount",
    "nodeagent",
    "nvidia-bug-report.sh",
    "nvidia-smi",
    "perfquery",
    "ping",
    "ps",
    "sysctl",
    "systemctl",
    "tc",
    "timedatectl",
}
"""What a node, or a workstation with kubectl, has."""
NO_COMMANDS = {"kill": "named to be avoided"}


def parts(page: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Front matter and sections of a page."""
    _, front, body = page.read_text(encoding="utf-8").split("---\n", 2)
    matter = dict(line.split(": ", 1) for line in front.splitlines())
    pieces = re.split(r"^## (.+)\n", body, flags=re.MULTILINE)
    return matter, dict(zip(pieces[1::2], pieces[2::2], strict=True))


def commands(page: Path) -> Iterator[list[str]]:
    """Every command of a page: lines of fenced and indented blocks, and code spans that begin with a tool."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^ *```\n(.*?)^ *```$", text, flags=re.MULTILINE | re.DOTALL):
        yield from (shlex.split(line) for line in block.splitlines() if line.strip())
    for line in re.findall(r"^    (journalctl .*)$", text, flags=re.MULTILINE):
        yield shlex.split(line)
    for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
        words = span.split()
        if words[0] in TOOLS | NO_COMMANDS.keys() and len(words) > 1:
            yield shlex.split(span)


def numbered(section: str) -> list[str]:
    """The numbered steps of a section."""
    return re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]


def by_name(page: Path) -> str:
    """Id of a parametrised case."""
    return page.stem


every_page = pytest.mark.parametrize("page", PAGES, ids=by_name)


def test_every_check_has_a_page_and_every_page_a_check() -> None:
    """The page is named after the check, so `explain` and the journal find it."""
    assert {page.stem for page in PAGES} == set(registry())


@every_page
def test_front_matter_is_complete_and_true(page: Path) -> None:
    """Check, severity, owner and the last exercise are there; the severity is the class's."""
    matter, _ = parts(page)
    check = registry()[page.stem]
    severity = "critical" if check.node_class.taints else "warning"

    assert (tuple(matter), matter["check"]) == (FRONT_MATTER, page.stem)
    assert matter["severity"] == severity or page.stem in NUMBER_CHECKS
    assert all(matter.values())


@every_page
def test_all_sections_are_there_in_order_and_say_something(page: Path) -> None:
    """A person finds the same seven sections on every page."""
    _, sections = parts(page)

    assert tuple(sections) == SECTIONS
    assert {name for name, text in sections.items() if len(text.split()) < 6} == set()


@every_page
def test_page_fits_the_night(page: Path) -> None:
    """At most 120 lines of at most 120 characters, and the meaning on the first screen."""
    lines = page.read_text(encoding="utf-8").splitlines()

    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 120] == []
    assert lines.index("## Impact") < 36


@every_page
def test_nothing_is_left_to_be_written(page: Path) -> None:
    """No page is released half done."""
    assert re.search(r"TODO|FIXME|TBD|XXX|lorem|coming soon", page.read_text(encoding="utf-8"), re.I) is None


@every_page
def test_symptom_shows_the_status_line_and_a_message_id_of_the_catalogue(page: Path) -> None:
    """What is copied from an alert is found on the page, and the other way round."""
    _, sections = parts(page)
    found = set(re.findall(r"MESSAGE_ID=([0-9a-f]{32})", page.read_text(encoding="utf-8")))

    assert found
    assert found <= {kind.message_id for kind in CATALOGUE.values()}
    assert re.search(rf"^    (CRITICAL|WARNING)  {re.escape(page.stem)}  ", sections["Symptom"], re.MULTILINE)


@every_page
def test_impact_speaks_of_now_the_hour_and_the_day(page: Path) -> None:
    """A person can decide whether it can wait for the morning."""
    impact = parts(page)[1]["Impact"]

    assert re.findall(r"^- (Now|In an hour|In a day): ", impact, re.MULTILINE) == [
        "Now",
        "In an hour",
        "In a day",
    ]


@every_page
def test_each_step_of_the_diagnosis_leads_on(page: Path) -> None:
    """Command, what good looks like, what bad looks like, where to go next."""
    steps = numbered(parts(page)[1]["Diagnosis"])

    assert len(steps) >= 2
    assert [s for s in steps if re.findall(r"^   - (\w+): ", s, re.M) != ["Good", "Bad", "Next"]] == []
    assert [s for s in steps if "```" not in s] == []


@every_page
def test_each_cure_has_its_undo(page: Path) -> None:
    """Nobody does at night what they cannot take back, without knowing."""
    steps = numbered(parts(page)[1]["Mitigation"])

    assert len(steps) >= 2
    assert [s for s in steps if not re.search(r"^   Undo: \S", s, re.M)] == []


@every_page
def test_verification_asks_the_agent(page: Path) -> None:
    """The same check that raised the fault says when it is over."""
    assert f"nodeagent check {page.stem}" in parts(page)[1]["Verify"]


@every_page
def test_escalation_says_to_whom_and_with_what(page: Path) -> None:
    """The next person gets the evidence with the call."""
    escalate = parts(page)[1]["Escalate"]

    assert re.search(r"\bTo the \w+", escalate)
    assert "`nodeagent status --json`" in escalate


@every_page
def test_only_known_tools_are_named(page: Path) -> None:
    """Each command begins with a tool that is there."""
    assert {words[0] for words in commands(page)} <= TOOLS | NO_COMMANDS.keys()


def problems(words: list[str], parser: argparse.ArgumentParser) -> str:
    """Why our own parser refuses a command, "" when it takes it."""
    try:
        parser.parse_args(words)
    except (SystemExit, cli.CliError) as refused:
        return f"{' '.join(words)}: {refused}"
    return ""


@every_page
def test_own_commands_are_those_of_the_parser(page: Path) -> None:
    """A page never names a subcommand or an option that does not exist."""
    parser = cli.build_parser()[0]
    ours = [words[1:] for words in commands(page) if words[0] == "nodeagent"]
    whole = [words for words in ours if words != ["explain"]]

    assert whole
    assert [found for found in (problems(words, parser) for words in whole) if found] == []


@every_page
def test_checks_named_on_a_page_exist(page: Path) -> None:
    """`check` and `explain` are only followed by ids that the agent knows."""
    known = set(registry()) | {"xid.N"}
    named = {
        word
        for words in commands(page)
        if words[:2] in (["nodeagent", "check"], ["nodeagent", "explain"])
        for word in words[2:]
        if not word.startswith("-")
    }

    assert {name for name in named if name not in known and not re.fullmatch(r"s?xid\.\d+", name)} == set()


def test_the_parser_check_can_fail() -> None:
    """An unknown subcommand and an unknown option are both found."""
    parser = cli.build_parser()[0]

    assert [bool(problems(words, parser)) for words in (["cure"], ["status", "--fast"], ["status"])] == [
        True,
        True,
        False,
    ]
