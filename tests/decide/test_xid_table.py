"""The shipped numbers: each has the class that the catalogue study chose, and wrong data is refused."""

from __future__ import annotations

import copy
import tomllib
from importlib import resources
from typing import Any

import pytest

from nodeagent.decide.xid import linked_numbers
from nodeagent.decide.xid_class import number_class
from nodeagent.decide.xid_table import build_xid_table
from nodeagent.model import NodeClass
from tests.decide.xid_build import numbers, table

CLASSES = (
    ("8, 11, 25, 13, 31, 32", "app"),
    ("39-41, 70-72, 75-77, 85, 60, 68, 69, 80", "app"),
    ("82-84, 86, 88, 89, 96-105, 126-135, 139", "app"),
    ("94, 137, 170, 174", "app"),
    ("14, 37, 38, 43, 44, 45, 66, 67, 106-108, 141", "ignore"),
    ("147, 148, 152, 153, 160, 162", "ignore"),
    ("61, 63, 74, 78, 92, 93, 121, 159, 161, 163, 164", "check"),
    ("1-7, 9, 10, 12, 15-24, 26-30, 33-36, 42, 47, 49-53, 55-59, 65, 73", "check"),
    ("81, 87, 90, 91, 111-118, 122-125, 138, 999", "check"),
    ("46, 48, 62, 95, 109, 110, 119, 120, 136, 140, 143, 150", "reset"),
    ("155, 156, 158, 166, 169, 171-173", "reset"),
    ("79, 151, 167, 168", "reboot"),
    ("54, 64, 142, 157, 165", "vendor"),
    ("144-146, 149", "check"),
)
"""By number alone: where the line must be read (144 to 146, 149), what is left when it cannot be."""
REPEATS = {13: "check", 32: "check", 38: "check", 44: "check", 80: "check", 137: "check",
           48: "vendor", 79: "vendor", 92: "vendor", 143: "vendor", 173: "vendor"}
ROWS = [(number, node_class) for text, node_class in CLASSES for number in numbers(text)]


@pytest.mark.parametrize(("number", "node_class"), ROWS)
def test_number_alone_has_its_class(number: int, node_class: str) -> None:
    """The class of each number before lines, repeats and overrides."""
    assert number_class(number, table()).value == node_class


def test_every_number_of_the_catalogue_is_tried_above() -> None:
    """1 to 173 and the four beyond; 154 alone has no class by number."""
    tried = {number for number, _ in ROWS}

    assert tried >= set(range(1, 174)) - {154}
    assert set(table().xids) - {154, 175, 176} <= tried


def test_repeat_classes_are_those_of_the_catalogue() -> None:
    """A number without a repeat class never escalates."""
    assert {n: row.repeat.value for n, row in table().xids.items() if row.repeat} == REPEATS


@pytest.mark.parametrize("number", [0, 177, 998, 1000, 9999])
def test_unknown_number_is_check(number: int) -> None:
    """A number that nobody has seen is looked at, and never taints."""
    assert number_class(number, table()) is NodeClass.CHECK
    assert table().meaning(number) == "not in the table"


@pytest.mark.parametrize(
    ("number", "other"),
    [(45, 48), (48, 171), (171, 48), (74, 79), (79, 74), (12028, 45), (74, 24007), (162, 163)],
)
def test_links_are_known_from_both_ends(number: int, other: int) -> None:
    """Sympathetic numbers find their cause, and the cause its sympathetic numbers."""
    assert other in linked_numbers(table(), number)
    assert number in linked_numbers(table(), other)


def _data() -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name in ("xid.toml", "sxid.toml"):
        data |= tomllib.loads(resources.files("nodeagent").joinpath("data", name).read_text())
    return data


def _wrong(what: str) -> dict[str, Any]:
    data = copy.deepcopy(_data())
    if what == "class":
        data["xid"][0]["class"] = "restart"
    elif what == "nvlink class":
        data["nvlink5"][0]["class"] = "restart"
    elif what == "unknown key":
        data["sxid"][0]["colour"] = "red"
    elif what == "missing key":
        del data["xid"][3]["meaning"]
    elif what == "twice":
        data["xid"].append(data["xid"][0])
    return data


@pytest.mark.parametrize(
    ("what", "says"),
    [("class", "xid 1: class 'restart'"), ("nvlink class", "nvlink5 144"), ("unknown key", "colour"),
     ("missing key", "meaning"), ("twice", "once")],
)
def test_wrong_data_is_refused_and_named(what: str, says: str) -> None:
    """A slip in the data ends in a sentence at start, not in a fault that nobody sees."""
    with pytest.raises(ValueError, match=says):
        build_xid_table(_wrong(what))


def test_data_as_shipped_is_accepted() -> None:
    """The same helper builds the good data, so the refusals above are about the slips."""
    assert build_xid_table(_wrong("nothing")) == table()
