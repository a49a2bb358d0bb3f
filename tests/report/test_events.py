"""The event catalogue: names, ids and sentences that others build upon."""

import re
import string
from importlib import resources
from pathlib import Path

import pytest

from nodeagent.report.events import CATALOGUE, EventKind, Priority

KINDS = list(CATALOGUE.values())
SOURCES = sorted((Path(__file__).resolve().parents[2] / "nodeagent").rglob("*.py"))


def _placeholders(sentence: str) -> set[str]:
    return {name for _text, name, _spec, _conversion in string.Formatter().parse(sentence) if name}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_sentence_uses_only_declared_fields(kind: EventKind) -> None:
    """What a sentence and its catalog entry fill in is declared, so that the entry can be filled."""
    assert _placeholders(kind.sentence) <= set(kind.fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_first_steps_name_only_declared_fields(kind: EventKind) -> None:
    """A command in the catalog never shows an unfilled @FIELD@."""
    used = set(re.findall(r"@NODEAGENT_([A-Z_]+)@", " ".join(kind.first_steps)))

    assert used <= {name.upper() for name in kind.fields}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_message_id_is_32_hex_digits(kind: EventKind) -> None:
    """journald and `journalctl MESSAGE_ID=` take exactly this form."""
    assert re.fullmatch(r"[0-9a-f]{32}", kind.message_id)


def test_message_ids_are_distinct() -> None:
    """No two events share an id."""
    assert len({kind.message_id for kind in KINDS}) == len(KINDS)


def test_released_message_ids_do_not_change() -> None:
    """Alerts hang on these ids; a changed one breaks them without a trace."""
    released = {
        "started": "17f6ea6439384b83a4a9eadbb98b45d0",
        "ready": "9e45f23a39cc414bb77cb899980787c0",
        "verdict_changed": "ec106e3e046b4e63ab1145d6c40290d2",
        "finding_raised": "ee89c1136ede4d25b67d3027bac3b5df",
        "finding_cleared": "f93d02d646e24bb09ae7ca3b77021a75",
        "xid_seen": "3c44fd7617e347ce8bfdb25c00f970a0",
        "config_rejected": "c017518eda2c433492c342d65d736888",
        "stopping": "387dfd42dc2644c487ec354c5a33b47c",
    }

    assert released == {name: CATALOGUE[name].message_id for name in released}


@pytest.mark.parametrize(
    ("state", "priority"),
    [
        ("critical", Priority.CRITICAL),
        ("warning", Priority.WARNING),
        ("unknown", Priority.WARNING),
        ("ok", Priority.NOTICE),
        ("", Priority.NOTICE),
    ],
)
def test_priority_follows_the_state(state: str, priority: Priority) -> None:
    """A critical finding is logged at 2, a warning at 4, everything else as a change of state."""
    assert CATALOGUE["finding_raised"].priority_of({"state": state}) == priority


def test_every_event_the_code_names_is_catalogued() -> None:
    """A Notice or an emit with a name that the catalogue lacks would lose its id and its sentence."""
    pattern = re.compile(r'Notice\(\s*event="(\w+)"|\bemit\(\s*[\w.]+,\s*"(\w+)"')
    named = {one or two for path in SOURCES for one, two in pattern.findall(path.read_text("utf-8"))}

    assert named
    assert named - set(CATALOGUE) == set()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.runbook], ids=lambda kind: kind.name)
def test_runbook_of_an_event_exists(kind: EventKind) -> None:
    """The page that an event points to is shipped."""
    assert resources.files("nodeagent").joinpath("runbooks", f"{kind.runbook}.md").is_file()
