"""Faults of other node agents that their users reported in public, and the tests that hold us to better.

Each is named by its letter and number, what went wrong, and the tests here; a test that is renamed or lost
is noticed.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "A1": ("a fast and slow-spoken ECC decay is never reported, the monitor restarts for ever", (
        "tests/e2e/test_slow_ecc.py::test_a_decaying_gpu_that_answers_slowly_is_told_by_its_rate",
        "tests/e2e/test_slow_ecc.py::test_a_decaying_gpu_that_answers_too_late_is_told_by_the_hung_call",
        "tests/scenarios/test_links_and_fabric.py::test_seventeen_thousand_corrected_errors_a_second_are_told",
    )),
    "A2": ("Xids of this boot from before the start are never read", (
        "tests/observe/test_kernel_log.py::test_xid_from_before_the_start_is_reported_with_its_own_time",
        "tests/scenarios/test_days.py::test_a_line_from_before_the_agent_started_is_a_fault",
        "tests/e2e/test_kills.py::test_a_record_of_the_time_without_a_daemon_is_found",
    )),
    "A3": ("800,000 lines of one Xid cost as many events", (
        "tests/observe/test_kernel_log_flood.py::test_flood_is_counted_in_bounded_events",
        "tests/observe/test_kernel_log_flood.py::test_flood_that_nobody_drains_is_bounded_too",
    )),
    "A4": ("links that train after a planned reboot are reported down", (
        "tests/scenarios/test_links_and_fabric.py::"
        "test_links_that_train_for_ninety_seconds_after_boot_are_no_fault",
        "tests/scenarios/test_links_and_fabric.py::test_links_that_are_down_ten_minutes_after_boot_are_a_fault",
        "tests/scenarios/test_days.py::test_boot_grace_swallows_what_settles_by_itself",
    )),
    "A5": ("a release lifts a cordon that is somebody else's", (
        "tests/kube/test_writes.py::test_somebodys_cordon_is_kept",
    )),
    "A6": ("the end of a stop replays what was days ago", (
        "tests/kube/test_writes.py::test_what_came_and_went_while_paused_is_never_written",
    )),
    "A7": ("the kernel log's reader dies under a flood, and nobody notices", (
        "tests/observe/test_kernel_log.py::test_overrun_is_a_gap_and_reading_goes_on",
        "tests/observe/test_kernel_log.py::test_broken_source_is_opened_again_without_loss_or_repeat",
        "tests/observe/test_kernel_log.py::test_reader_says_that_it_is_blind_while_it_is",
    )),
    "A8": ("a condition made of a log line never ends", (
        "tests/scenarios/test_days.py::test_a_fault_log_line_does_not_outlive_the_cure",
        "tests/e2e/test_release.py::test_a_release_lets_a_reset_succeed_that_then_clears_the_fault",
    )),
    "A9": ("a placeholder Xid, 999, condemns the device", (
        "tests/decide/test_xid_fold.py::test_999_alone_waits_and_then_is_check",
        "tests/decide/test_xid_fold.py::test_999_with_a_kernel_line_is_the_line",
    )),
    "A10": ("the agent loses its access to the devices, and every GPU is called sick", (
        "tests/scenarios/test_days.py::test_lost_access_is_the_agents_own_trouble",
        "tests/observe/test_gpus_failures.py::test_a_lost_permission_blames_no_gpu",
    )),
    "A11": ("a call that never returns stops the monitor", (
        "tests/observe/test_gpus_failures.py::test_a_hanging_init_leaves_one_process",
        "tests/e2e/test_hangs.py::test_a_call_that_hangs_for_ever_is_stuck_and_then_well_again",
    )),
    "A12": ("parts with fewer NVLinks are called sick", (
        "tests/decide/cases/nvlink_down.py::CASES",
        "tests/observe/test_gpu_links.py::test_links_that_cannot_be_judged_are_absent",
    )),
    "A13": ("a port whose counters fail is read again and again", (
        "tests/drivers/test_host_infiniband.py::test_counters_that_fail_are_left_alone_for_longer_and_longer",
        "tests/drivers/test_host_infiniband.py::test_one_bad_port_costs_no_other",
    )),
    "A14": ("two faults that come by turns renew the transition time for ever", (
        "tests/scenarios/test_days.py::test_two_faults_that_flap_by_turns_keep_one_time",
    )),
    "A15": ("an old line in the log keeps a healthy node drained", (
        "tests/scenarios/test_days.py::test_an_old_line_read_again_is_no_new_fault",
        "tests/scenarios/test_no_false_taint.py::"
        "test_an_old_line_of_a_cured_fault_taints_no_node_on_the_first_day",
    )),
}
"""Case of GPU health -> what went wrong elsewhere, and our tests."""

WRITES, WATCH = "tests/kube/test_writes.py::", "tests/drivers/test_kube_client.py::"
TAINTS = "tests/decide/test_node_taints.py::"
API_CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "A1": ("a taint that was just added is lost to somebody's older list", (
        TAINTS + "test_a_lost_update_is_put_back_once_after_a_confirming_read",
        TAINTS + "test_a_stale_base_is_read_anew_before_the_next_write",
        WRITES + "test_a_clobbering_neighbour_is_answered_once",
    )),
    "A2": ("a stale cache hides that the taint came back", (
        "tests/observe/test_node_watch.py::test_an_answer_is_newer_than_a_watch_that_lags",
        "tests/act/test_cluster_writer.py::test_the_patch_tests_what_it_was_made_for",
    )),
    "A3": ("an old snapshot deletes other owners' taints", (
        "tests/act/test_cluster_writer.py::test_the_patch_tests_what_it_was_made_for",
        "tests/decide/test_node_properties.py::test_what_is_foreign_stays_and_health_leaves_nothing",
        WRITES + "test_a_clobbering_neighbour_is_answered_once",
    )),
    "A4": ("conditions of another writer are wiped", (
        WRITES + "test_a_taint_comes_with_the_fault_and_goes_with_it",
    )),
    "A5": ("a node is uncordoned that somebody else had cordoned", (
        WRITES + "test_somebodys_cordon_is_kept",
        TAINTS + "test_a_foreign_value_and_a_foreign_cordon_stay",
    )),
    "A6": ("a cordon from before is forgotten over a restart", (
        WRITES + "test_somebodys_cordon_is_kept",
    )),
    "A9": ("all agents come back at once after the API server was away", (
        WRITES + "test_a_killed_server_delays_and_loses_nothing",
        "tests/kube/test_watch.py::test_a_killed_server_is_waited_for_and_the_list_stands",
        "tests/observe/test_api_watch.py::test_how_it_ended_decides_how_soon",
    )),
    "A10": ("a watch is silent for ever", (
        WATCH + "test_a_watch_ends_by_an_error", WATCH + "test_a_watch_that_never_begins_ends_too",
    )),
    "A11": ("a rotated token is never read", (
        WATCH + "test_a_renewed_token_is_used_at_once", WATCH + "test_the_same_token_is_not_sent_again",
        "tests/drivers/test_kube_credentials.py::test_files_are_named_beside_the_kubeconfig_and_read_anew",
    )),
    "A12": ("410 is answered with the same question in a tight loop", (
        WATCH + "test_a_watch_ends_by_an_error",
        "tests/observe/test_api_watch.py::test_how_it_ended_decides_how_soon",
    )),
    "A13": ("a condition is asserted for ever after the repair", (
        WRITES + "test_a_taint_comes_with_the_fault_and_goes_with_it",
        TAINTS + "test_a_healthy_node_is_never_written_to",
    )),
    "A14": ("a node that was made anew under its name is taken for the old one", (
        WRITES + "test_a_node_that_is_created_anew_is_written_anew",
        TAINTS + "test_another_node_of_the_same_name_starts_anew",
        "tests/observe/test_node_watch.py::test_a_node_that_is_gone_is_absent",
    )),
}
"""The same for agents that write to the API server. A7, A8 and A15 are about drains and fleets: not ours."""


def names_of(path: Path) -> set[str]:
    """Functions and constants at the top of a file."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


TABLES = [*CASES.values(), *API_CASES.values()]


@pytest.mark.parametrize(("fault", "tests"), TABLES, ids=[row[0] for row in TABLES])
def test_every_public_case_is_tested_here(fault: str, tests: tuple[str, ...]) -> None:
    """Each test that the table names exists."""
    assert fault
    lacking = []
    for test in tests:
        path, _, name = test.partition("::")
        if not (ROOT / path).is_file() or name not in names_of(ROOT / path):
            lacking.append(test)

    assert lacking == []


def test_no_case_is_left_out() -> None:
    """All fifteen are in the table."""
    assert list(CASES) == [f"A{number}" for number in range(1, 16)]


def test_a_lost_test_is_noticed() -> None:
    """The look itself can fail."""
    assert "test_that_nobody_wrote" not in names_of(Path(__file__))
    assert "test_a_lost_test_is_noticed" in names_of(Path(__file__))
