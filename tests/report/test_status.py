"""The reports: what a script reads, for nodes in every state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodeagent.errors import ErrorKind
from nodeagent.model import NODE, NodeClass, Now, State
from nodeagent.report import schema
from nodeagent.report.given import rfc3339
from nodeagent.report.status import build_check, build_history, build_status
from nodeagent.settings import GpuSettings, NodeSettings, Settings
from nodeagent.signals import PciGpus, Unread
from tests.report import build, scenes

EXIT_CODES = {
    "quiet": 0,
    "broken": 2,
    "all_lost": 2,
    "driver_hangs": 3,
    "no_gpu": 0,
    "released": 2,
    "two_xids": 2,
    "starting": 3,
    "worn": 1,
}


def as_json(report: schema.Report) -> dict[str, Any]:
    """What a script gets."""
    decoded: dict[str, Any] = json.loads(schema.encode(report))
    return decoded


@pytest.mark.parametrize("scene", scenes.SCENES)
def test_exit_code_follows_the_verdict(scene: str) -> None:
    """0 ok, 1 warning, 2 critical, 3 unknown, in the report and in its JSON."""
    report = build_status(scenes.SCENES[scene]())

    assert (EXIT_CODES[scene], EXIT_CODES[scene]) == (schema.exit_code(report), as_json(report)["exit_code"])


@pytest.mark.parametrize("scene", scenes.SCENES)
def test_reports_survive_the_socket(scene: str) -> None:
    """What the command line decodes is what the daemon encoded."""
    given = scenes.SCENES[scene]()
    status, check, history = build_status(given), build_check(given), build_history(given)

    assert status == schema.decode_status(schema.encode(status))
    assert check == schema.decode_check(schema.encode(check))
    assert history == schema.decode_history(schema.encode(history))


@pytest.mark.parametrize("scene", scenes.SCENES)
def test_every_report_begins_with_its_schema(scene: str) -> None:
    """A script can tell what it reads from the first field."""
    given = scenes.SCENES[scene]()
    first = [
        next(iter(as_json(report).items()))
        for report in (build_status(given), build_check(given), build_history(given))
    ]

    assert [("schema", f"nodeagent/{name}/v1") for name in ("status", "check", "history")] == first


def test_node_class_is_named_class_in_json() -> None:
    """The JSON says `class`, the word of the configuration."""
    report = as_json(build_status(scenes.broken()))

    assert (report["verdict"]["class"], report["rows"][0]["class"]) == ("reset", "reset")


def test_unread_value_carries_its_reason_and_is_no_null() -> None:
    """A value that could not be read is an object with the reason, never null or zero."""
    rows = {(r["id"], r["target"]): r for r in as_json(build_status(scenes.broken()))["rows"]}
    report = as_json(build_status(scenes.driver_hangs()))

    assert rows["gpu.recovery_action", build.GPUS[3]]["value"] == {"unread": "NVML gave no answer in 10 s"}
    assert report["gpus"]["seen"] == {"unread": "no answer in 10 s"}


def test_rows_are_sorted_worst_first_and_by_gpu_index() -> None:
    """The first row is the first thing to look at."""
    rows = build_status(scenes.broken()).rows
    ecc = [row.gpu_index for row in rows if row.id == "ecc.uncorrected" and row.state is State.OK]

    assert [row.state for row in rows[:4]] == [State.CRITICAL, State.UNKNOWN, State.PENDING, State.OK]
    assert ecc == [0, 1, 2, 4, 5, 6, 7]


def test_gpu_is_labelled_by_index_and_address() -> None:
    """A person sees the index of nvidia-smi and the address of the kernel log."""
    first = build_status(scenes.broken()).rows[0]

    assert (first.target_label, first.gpu_index, first.gpu_uuid) == ("GPU 3 0000:4e:00.0", 3, "GPU-3")


COUNTS = {
    "quiet": (True, 8, 8, 8, 0, 0),
    "broken": (True, 8, 8, 7, 1, 0),
    "all_lost": (True, 0, 8, 0, 8, 0),
    "no_gpu": (False, None, None, 0, 0, 0),
    "two_xids": (True, 8, 8, 7, 1, 0),
    "worn": (True, 8, 8, 8, 0, 0),
    "starting": (None, None, None, 0, 0, 0),
}


@pytest.mark.parametrize("scene", COUNTS)
def test_gpus_are_counted_as_healthy_faulty_or_unread(scene: str) -> None:
    """A GPU with a raised fault is faulty, one that nobody could judge is neither."""
    gpus = build_status(scenes.SCENES[scene]()).gpus

    assert COUNTS[scene] == (gpus.wanted, gpus.seen, gpus.expected, gpus.healthy, gpus.faulty, gpus.unread)


def test_muted_gpus_are_not_healthy() -> None:
    """While the driver hangs, nothing is known of any GPU."""
    gpus = build_status(scenes.driver_hangs()).gpus

    assert (gpus.healthy, gpus.faulty, gpus.unread) == (0, 0, 8)


def test_configured_count_outranks_the_count_seen_after_boot() -> None:
    """The operator's number is the expected one."""
    settings = Settings(gpu=GpuSettings(expected_count=9))
    gpus = build_status(build.given(settings=settings)).gpus

    assert (gpus.expected, gpus.expected_from) == (9, "config")


WANTED = {
    "by order": (Settings(gpu=GpuSettings(enabled="true")), None, True),
    "switched off": (Settings(gpu=GpuSettings(enabled="false")), PciGpus(addresses=build.GPUS), False),
    "on the bus": (Settings(), PciGpus(addresses=build.GPUS), True),
    "none on the bus": (Settings(), PciGpus(addresses=()), False),
    "expected, and none on the bus": (
        Settings(gpu=GpuSettings(expected_count=8)), PciGpus(addresses=()), True,
    ),
    "bus not read": (Settings(), Unread(kind=ErrorKind.DENIED, reason="sysfs"), None),
    "nothing read": (Settings(), None, None),
}


@pytest.mark.parametrize("case", WANTED)
def test_gpus_are_wanted_unknown_or_not(case: str) -> None:
    """A bus that was not read yet does not say that the node has no GPU."""
    settings, bus, wanted = WANTED[case]
    board = build.readings(gpu__pci=bus, gpu__kernel_driver=None)

    assert wanted is build_status(build.given(settings=settings, board=board)).gpus.wanted


def test_release_shows_who_why_and_how_long() -> None:
    """An operator sees the end of the release that they asked for."""
    gpus = build_status(scenes.released()).gpus

    assert gpus.released
    assert gpus.release is not None
    assert (gpus.release.age_seconds, gpus.release.left_seconds, gpus.release.by_operator) == (182, 718, True)


def test_ages_count_to_the_moment_of_the_request() -> None:
    """A report asked for 90 s after the last cycle says so."""
    report = build_status(build.given(now=Now(at=build.ago(-90))))

    assert (report.cycle.age_seconds, report.rows[0].read_age_seconds) == (90, 92)


def test_faults_that_can_no_longer_be_read_stay_in_force() -> None:
    """Released or unread, a raised fault keeps the exit code of `check`."""
    given = scenes.released()
    unknown = build.row("gpu.lost", build.GPUS[0], State.UNKNOWN, stale_state=State.WARNING)

    assert build_check(given, ["ecc.uncorrected"]).exit_code == 2
    assert build_check(build.given(check_rows=(unknown,))).exit_code == 1


CHECK_EXIT_CODES = {
    "ok": ((State.OK, State.NOT_APPLICABLE, State.PENDING), 0),
    "unknown": ((State.OK, State.UNKNOWN), 3),
    "warning": ((State.UNKNOWN, State.WARNING), 1),
    "critical": ((State.WARNING, State.CRITICAL), 2),
    "nothing": ((), 3),
}


@pytest.mark.parametrize("case", CHECK_EXIT_CODES)
def test_check_exits_by_its_worst_row(case: str) -> None:
    """critical, warning, unknown, ok; no row at all is unknown."""
    states, code = CHECK_EXIT_CODES[case]
    rows = tuple(build.row("xid", pci, state) for pci, state in zip(build.GPUS, states, strict=False))

    assert code == schema.exit_code(build_check(build.given(check_rows=rows)))


def test_check_selects_by_id_and_keeps_not_applicable_rows() -> None:
    """A named check is there even where it does not apply."""
    report = build_check(scenes.no_gpu(), ["gpu.lost", "clock.unsynced"], duration_seconds=1.5)

    assert report.counts == {"ok": 1, "not_applicable": 1}
    assert ([row.id for row in report.checks], report.duration_seconds) == (
        ["clock.unsynced", "gpu.lost"],
        1.5,
    )


def test_pending_call_is_named_with_its_age() -> None:
    """A call that does not return has a name before any check is raised."""
    (call,) = build_status(scenes.driver_hangs()).pending_calls

    assert (call.worker, call.call, call.for_seconds, call.misses) == (
        "nvml",
        "nvmlDeviceGetTotalEccErrors GPU 3",
        40,
        2,
    )


def test_taint_is_only_wanted_while_nothing_writes_to_the_cluster() -> None:
    """The report never claims a taint that is not there."""
    report = as_json(
        build_status(
            build.given(
                State.CRITICAL, taints=(build.TAINT,), settings=Settings(node=NodeSettings(dry_run=True))
            )
        )
    )

    assert report["taint"] == {
        "wanted": [{"key": "nodeagent.io/gpu-unhealthy", "value": "xid", "effect": "NoSchedule"}],
        "silenced": [],
        "would": True,
        "held": "there is no API server to write to",
        "dry_run": True,
    }


def test_without_a_decision_the_node_is_unknown_and_starting() -> None:
    """Before the first cycle ends, nothing is claimed."""
    report = build_status(build.given(decision=None))

    assert (report.phase, report.verdict.state, report.exit_code, report.rows) == (
        "starting",
        State.UNKNOWN,
        3,
        [],
    )


NEXT = {
    "quiet": [],
    "no_gpu": [],
    "starting": ["nodeagent status"],
    "broken": ["nodeagent explain ecc.uncorrected", "nodeagent history"],
    "driver_hangs": ["nodeagent explain driver.stuck"],
    "released": ["nodeagent explain ecc.uncorrected", "nodeagent gpu resume", "nodeagent history"],
    "two_xids": ["nodeagent explain xid.79", "nodeagent explain gpu.lost", "nodeagent history"],
    "worn": ["nodeagent explain agent.state", "nodeagent config check", "nodeagent history"],
}


@pytest.mark.parametrize("scene", NEXT)
def test_next_commands_begin_with_the_cause(scene: str) -> None:
    """The first command explains the fault that explains the others."""
    assert NEXT[scene] == build_status(scenes.SCENES[scene]()).next


def test_xids_keep_kind_evidence_and_repeat_count() -> None:
    """The kernel's own line and the count are there, the newest first."""
    newest, oldest = build_status(scenes.two_xids()).xids

    assert (newest.kind, newest.number, newest.count, newest.caused_by, newest.age_seconds) == (
        "xid",
        45,
        12,
        79,
        60,
    )
    assert (oldest.kind, oldest.number, oldest.node_class, "fallen off the bus" in oldest.text) == (
        "xid",
        79,
        NodeClass.REBOOT,
        True,
    )


def test_upkeep_of_the_agent_is_reported() -> None:
    """Lost kernel records, an unwritable state file, a rejected file and dropped events are all said."""
    report = as_json(build_status(scenes.worn()))

    assert tuple(report["kernel_log"][k] for k in ("lost_records", "refused_records", "backfilled")) == (
        1520,
        1,
        False,
    )
    assert (report["state_file"]["writable"], report["state_file"]["detail"]) == (
        False,
        "No space left on device",
    )
    assert (report["config"]["reload_error"], report["inbox_dropped"]) == ("[gpu] polls: no such key", 17)


def test_signal_that_was_never_read_is_null_and_an_unread_one_is_not() -> None:
    """ "There is none yet" and "it could not be read" are two things."""
    never = build_status(build.given(board={}))
    denied = Unread(kind=ErrorKind.DENIED, reason="/dev/kmsg: permission denied")
    unread = build_status(build.given(board=build.readings(kernel_log=denied)))

    assert (never.kernel_log, never.state_file) == (None, None)
    assert as_json(unread)["kernel_log"] == {"unread": "/dev/kmsg: permission denied"}


def test_history_is_cut_to_the_window_and_marks_earlier_boots() -> None:
    """The window counts back from the request."""
    given = build.given(remembered=build.memory(history=scenes.HISTORY))

    assert [t.this_boot for t in build_history(given).transitions] == [False, True, True]
    assert [t.age_seconds for t in build_history(given, since_seconds=600).transitions] == [32.0]


TIMES = {
    0.0: "1970-01-01T00:00:00Z",
    build.WALL_SECONDS: "2026-11-29T03:12:40Z",
    -5.0: "1970-01-01T00:00:00Z",
    1e18: "9999-12-31T23:59:59Z",
}


@pytest.mark.parametrize("wall_seconds", TIMES)
def test_times_are_rfc_3339_whatever_the_clock_says(wall_seconds: float) -> None:
    """A clock battery that died does not break the report."""
    assert TIMES[wall_seconds] == rfc3339(wall_seconds)


def test_target_of_a_switch_and_of_the_node_are_labelled() -> None:
    """What is no GPU is not called one."""
    record = scenes.two_xids().memory.xids[f"{build.GPUS[3]}|79"]
    remembered = build.memory(xids={"0000:c5:00.0|sxid 20034": record})
    rows = (
        build.row("xid", "0000:c5:00.0", State.CRITICAL),
        build.row("disk.full", "/var"),
        build.row("xid", NODE),
    )
    report = build_status(build.given(check_rows=rows, remembered=remembered))

    assert {"NVSwitch 0000:c5:00.0", "/var", "node"} == {row.target_label for row in report.rows}
    assert [xid.kind for xid in report.xids] == ["sxid"]


def test_name_that_is_no_utf8_does_not_break_the_json() -> None:
    """A mount point may be named with any bytes; the report still goes out."""
    rows = (build.row("disk.full", "/mnt/\udcff"), build.row("clock.unsynced"))
    report = as_json(build_status(build.given(check_rows=rows)))

    assert [row["target"] for row in report["rows"]] == ["node", "/mnt/?"]
