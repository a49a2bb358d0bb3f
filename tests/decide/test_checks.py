"""Every check against its table of cases, through the wrapper that runs all checks."""

from __future__ import annotations

import copy
import importlib.util

import pytest

from nodeagent.decide.check import run_check
from nodeagent.decide.registry import registry
from nodeagent.model import Finding
from tests.decide.build import Case, Want

CHECKS = registry()
TABLES = {
    check_id: importlib.import_module(f"tests.decide.cases.{check_id.replace('.', '_')}").CASES
    for check_id in CHECKS
    if importlib.util.find_spec(f"tests.decide.cases.{check_id.replace('.', '_')}")
}
ROWS = [
    pytest.param(check_id, case, id=f"{check_id}: {case.name}")
    for check_id, cases in TABLES.items()
    for case in cases
]


def _differences(want: Want, found: Finding) -> list[str]:
    """Fields in which a finding is not what the case wants."""
    wrong = [
        f"{name}: wanted {getattr(want, name)!r}, found {getattr(found, name)!r}"
        for name in ("state", "node_class", "value", "limit", "cause", "immediate")
        if getattr(want, name) is not None and getattr(want, name) != getattr(found, name)
    ]
    if want.says not in found.sentence:
        wrong.append(f"sentence: wanted {want.says!r} in {found.sentence!r}")
    return wrong


@pytest.mark.parametrize(("check_id", "case"), ROWS)
def test_check_finds_what_its_case_wants(check_id: str, case: Case) -> None:
    """The findings have exactly the wanted targets, and each is as the case says."""
    found = {f.target: f for f in run_check(CHECKS[check_id], case.given(CHECKS[check_id]))}

    assert {want.target for want in case.want} == set(found)
    assert not [line for want in case.want for line in _differences(want, found[want.target])]


@pytest.mark.parametrize(("check_id", "case"), ROWS)
def test_check_changes_nothing_it_is_given(check_id: str, case: Case) -> None:
    """Memory and snapshot are the same afterwards, and a second run finds the same."""
    given = case.given(CHECKS[check_id])
    before = copy.deepcopy((given.memory, given.snapshot))

    first, second = (run_check(CHECKS[check_id], given) for _ in range(2))

    assert before == (given.memory, given.snapshot)
    assert first == second


@pytest.mark.parametrize(("check_id", "case"), ROWS)
def test_every_finding_reads_well(check_id: str, case: Case) -> None:
    """Bad and unread findings carry a sentence; a measured one carries the time of its reading."""
    for found in run_check(CHECKS[check_id], case.given(CHECKS[check_id])):
        if found.state.value in ("warning", "unknown", "not_applicable"):
            assert found.sentence
        if found.state.value in ("ok", "warning"):
            assert found.read_at_seconds > 0


def test_a_wrong_finding_is_noticed() -> None:
    """The comparison itself can fail: each compared field reports its difference."""
    want = Want(state=TABLES["gpu.lost"][0].want[0].state, value="x", says="never said")
    found = run_check(CHECKS["gpu.lost"], TABLES["gpu.lost"][2].given(CHECKS["gpu.lost"]))[0]

    wrong = [line.split(":")[0] for line in _differences(want, found)]
    assert wrong == ["state", "value", "sentence"]
