"""Records end by the proof of their class, and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.errors import ErrorKind
from nodeagent.memory import GpuMemory, Memory
from nodeagent.model import NodeClass, Now
from nodeagent.signals import GpuPresence, RecoveryAction, Unread
from tests.decide.build import GPU, UPTIME_SECONDS, now
from tests.decide.xid_build import (
    HEALTHY,
    HEARD,
    clear,
    fold,
    instant,
    line,
    presence,
    record,
    standing,
    sxid,
    with_gpu,
)

T = UPTIME_SECONDS
DAY = 86400.0
APP, CHECK, RESET = "31, MMU fault", "63, Row Remapper", "95, Uncontained"
REBOOT, VENDOR = "79, GPU has fallen off the bus.", "64, Row Remapper failed"
NUMBERS = {APP: 31, CHECK: 63, RESET: 95, REBOOT: 79, VENDOR: 64}
REACHED = presence(GpuPresence(reachable=True))
GONE = presence(GpuPresence(reachable=False, detail="GPU is lost"))
UNREAD = presence(Unread(kind=ErrorKind.TIMEOUT, reason="no answer"))
DEAF: dict[str, Any] = {"kernel_log": Unread(kind=ErrorKind.LOST, reason="closed")}
NEXT_BOOT = now(100.0, boot_id="boot-2", wall_seconds=now(T + 300.0).at.wall_seconds)
RESET_SEEN = {"reset_seen": instant(T + 50), "reset_evidence": "recovery action returned to 0"}
REPLACED = {"replaced": instant(T + 50)}

PROOFS: tuple[tuple[str, str, Now | float, dict[str, Any], dict[str, Any], str], ...] = (
    ("app: quiet long enough", APP, T + 600, HEARD, {}, "no repeat for 600 s"),
    ("app: not yet", APP, T + 599, HEARD, {}, ""),
    ("app: nobody listened", APP, T + 6000, DEAF, {}, ""),
    ("app: heard by NVML alone", APP, T + 600, {**DEAF, **{k: v for k, v in REACHED.items() if "@" in k}}, {},
     "no repeat"),
    ("app: new boot", APP, NEXT_BOOT, HEARD, {}, "new boot"),
    ("check: quiet for a day", CHECK, T + DAY, HEARD, {}, "no repeat for 86400 s"),
    ("check: quiet for less", CHECK, T + DAY - 1, HEARD, {}, ""),
    ("check: reset seen", CHECK, T + 60, HEARD, RESET_SEEN, "reset seen"),
    ("check: new boot", CHECK, NEXT_BOOT, HEARD, {}, "new boot"),
    ("reset: time proves nothing", RESET, T + 300 * DAY, REACHED, {}, ""),
    ("reset: seen, and reached since", RESET, T + 60, REACHED, RESET_SEEN, "recovery action returned to 0"),
    ("reset: seen, but lost", RESET, T + 60, GONE, RESET_SEEN, ""),
    ("reset: seen, but unread", RESET, T + 60, UNREAD, RESET_SEEN, ""),
    ("reset: seen, but never read", RESET, T + 60, HEARD, RESET_SEEN, ""),
    ("reset: seen before the fault", RESET, T + 60, REACHED, {"reset_seen": instant(T - 5)}, ""),
    ("reset: new boot, reached", RESET, NEXT_BOOT, REACHED, {}, "new boot"),
    ("reset: new boot, lost", RESET, NEXT_BOOT, GONE, {}, ""),
    ("reset: new boot, unread", RESET, NEXT_BOOT, UNREAD, {}, ""),
    ("reset: reported repaired", RESET, T + 60, REACHED, REPLACED, "repaired"),
    ("reboot: seen reset, reached", REBOOT, T + 60, REACHED, RESET_SEEN, "reset seen"),
    ("reboot: new boot, reached", REBOOT, NEXT_BOOT, REACHED, {}, "new boot"),
    ("reboot: new boot, lost", REBOOT, NEXT_BOOT, GONE, {}, ""),
    ("vendor: a reset is no repair", VENDOR, T + 60, REACHED, RESET_SEEN, ""),
    ("vendor: a reboot is no repair", VENDOR, NEXT_BOOT, REACHED, {}, ""),
    ("vendor: replaced, reached", VENDOR, T + 60, REACHED, REPLACED, "replaced"),
    ("vendor: replaced, unread", VENDOR, T + 60, UNREAD, REPLACED, ""),
    ("vendor: replaced before the fault", VENDOR, T + 60, REACHED, {"replaced": instant(T - 5)}, ""),
)


@pytest.mark.parametrize(
    ("text", "at", "readings", "facts", "reason"), [p[1:] for p in PROOFS], ids=[p[0] for p in PROOFS]
)
def test_class_clears_by_its_own_proof(
    text: str, at: Now | float, readings: dict[str, Any], facts: dict[str, Any], reason: str
) -> None:
    """Each class ends by what proves it gone, and stands without."""
    memory = with_gpu(fold(Memory(), line(text, T)), **facts)

    found = record(clear(memory, at, readings), NUMBERS[text])
    assert (found.cleared is not None) == bool(reason)
    assert reason in found.cleared_by


def test_reading_from_before_the_reset_proves_nothing() -> None:
    """A GPU that was reachable before it was reset may be anything after."""
    memory = with_gpu(fold(Memory(), line(RESET, T)), **RESET_SEEN)

    assert standing(clear(memory, T + 60, REACHED, read_at_seconds=T + 49)) == {95: NodeClass.RESET}
    assert standing(clear(memory, T + 60, REACHED, read_at_seconds=T + 51)) == {}


def test_other_gpus_reset_proves_nothing() -> None:
    """Each GPU needs its own proof."""
    memory = with_gpu(fold(Memory(), line(RESET, T)))
    memory = with_gpu(memory, "0000:5e:00.0", **RESET_SEEN)

    assert standing(clear(memory, T + 60, REACHED)) == {95: NodeClass.RESET}


def test_restart_of_the_agent_clears_nothing() -> None:
    """Memory loaded by a new process is judged like that of the old one."""
    memory = with_gpu(fold(Memory(), line(RESET, T), line(VENDOR, T)))

    assert standing(clear(fold(memory, at=T + 500), T + 500, REACHED)) == {95: "reset", 64: "vendor"}


def test_time_does_not_count_from_a_wall_clock_that_stepped() -> None:
    """The wall clock jumping a year ahead ends no window inside a boot."""
    memory = fold(Memory(), line(CHECK, T))
    stepped = now(T + 100, wall_seconds=now(T).at.wall_seconds + 365 * DAY)

    assert standing(clear(memory, stepped, HEARD)) == {63: NodeClass.CHECK}


def test_operators_ignore_ends_a_standing_fault_without_proof() -> None:
    """`"95" = "ignore"` means that nothing is waited for: class ignore is never raised."""
    memory = fold(Memory(), line(RESET, T), overrides={"95": NodeClass.IGNORE})

    assert standing(clear(memory, T + 1, UNREAD, {"95": NodeClass.IGNORE})) == {95: NodeClass.IGNORE}


# --------------------------------------------------------------------- 109's window

ACTION = f"gpu.recovery_action@{GPU}"
WINDOWS: tuple[tuple[str, float, dict[str, Any], str, bool], ...] = (
    ("still waiting", 59.0, HEALTHY, "app", True),
    ("over, driver asks for nothing", 60.0, HEALTHY, "app", False),
    ("over, driver asks for a reset", 60.0, {**HEALTHY, ACTION: RecoveryAction(value=1)}, "reset", False),
    ("over, GPU lost", 60.0, {**HEALTHY, **GONE}, "reset", False),
    ("over, GPU unread", 60.0, {**HEALTHY, **UNREAD}, "reset", False),
    ("over, driver has no such field", 60.0,
     {**HEALTHY, ACTION: Unread(kind=ErrorKind.ABSENT, reason="not supported")}, "reset", False),
    ("over, nothing read", 60.0, HEARD, "reset", False),
)


@pytest.mark.parametrize(
    ("after_seconds", "readings", "node_class", "held"), [w[1:] for w in WINDOWS], ids=[w[0] for w in WINDOWS]
)
def test_109_acts_after_its_window_unless_the_driver_sees_nothing_to_do(
    after_seconds: float, readings: dict[str, Any], node_class: str, held: bool
) -> None:
    """The window's end asks the driver; no answer is not a good answer."""
    memory = clear(fold(Memory(), line("109, x", T)), T + after_seconds, readings)

    found = record(memory, 109)
    assert (found.node_class, found.held, found.cleared) == (node_class, held, None)


def test_109_waits_for_its_window_even_where_application_faults_end_sooner() -> None:
    """`app_seconds = 10` must not let a held fault slip away before it was judged."""
    memory = clear(fold(Memory(), line("109, x", T)), T + 30, HEARD, limits={"xid": {"app_seconds": 10.0}})

    assert standing(memory) == {109: NodeClass.APP}


def test_109_resolved_and_back_again_acts() -> None:
    """What was the application's affair once is not twice in ten minutes."""
    memory = clear(fold(Memory(), line("109, x", T)), T + 60, HEALTHY)
    memory = fold(memory, line("109, x", T + 200), at=T + 201)

    assert record(memory, 109).node_class is NodeClass.RESET


# --------------------------------------------------------------------- switches

SWITCH = "0000:87:00.0"
OTHER = "0000:5e:00.0"
BOTH = {**REACHED, f"gpu.presence@{OTHER}": GpuPresence(reachable=True)}
SWITCHES: tuple[tuple[str, Now | float, dict[str, Any], dict[str, Any], str], ...] = (
    ("every GPU reset", T + 60, BOTH, {GPU: RESET_SEEN, OTHER: RESET_SEEN}, "reset seen"),
    ("one GPU not reset", T + 60, BOTH, {GPU: RESET_SEEN, OTHER: {}}, ""),
    ("one GPU unread", T + 60, {**BOTH, **UNREAD}, {GPU: RESET_SEEN, OTHER: RESET_SEEN}, ""),
    ("new boot", NEXT_BOOT, BOTH, {GPU: {}, OTHER: {}}, "new boot"),
    ("new boot, nothing read", NEXT_BOOT, HEARD, {GPU: {}}, ""),
    ("no GPU known", T + 60, HEARD, {}, ""),
    ("switch reported repaired", T + 60, BOTH, {SWITCH: REPLACED}, "repaired"),
)


@pytest.mark.parametrize(
    ("at", "readings", "gpus", "reason"), [s[1:] for s in SWITCHES], ids=[s[0] for s in SWITCHES]
)
def test_switch_fault_ends_when_all_gpus_were_reset(
    at: Now | float, readings: dict[str, Any], gpus: dict[str, dict[str, Any]], reason: str
) -> None:
    """GPUs and switches are reset together, and a switch has no counters of its own to show it."""
    folded = fold(Memory(), sxid("24007, Fatal, Link 3 x", T))
    memory = Memory(xids=folded.xids, gpus={pci: GpuMemory(**facts) for pci, facts in gpus.items()})

    assert reason in record(clear(memory, at, readings), 24007, SWITCH).cleared_by
    assert (standing(clear(memory, at, readings)) == {}) == bool(reason)


# --------------------------------------------------------------------- what is kept

KEPT = (
    ("no repeat rule, within a day", APP, DAY, True),
    ("no repeat rule, after a day", APP, DAY + 1000, False),
    ("repeat rule, within 30 days", "32, x", 30 * DAY - 1000, True),
    ("repeat rule, after 30 days", "32, x", 31 * DAY, False),
)


@pytest.mark.parametrize(("text", "after_seconds", "kept"), [k[1:] for k in KEPT], ids=[k[0] for k in KEPT])
def test_cleared_record_is_kept_as_long_as_something_needs_it(
    text: str, after_seconds: float, kept: bool
) -> None:
    """The repeat rule looks back 30 days; without one a day of history is enough."""
    memory = clear(fold(Memory(), line(text, T)), T + 700, HEARD)
    assert standing(memory) == {}

    assert bool(clear(memory, T + after_seconds, HEARD).xids) == kept


def test_standing_record_is_never_pruned() -> None:
    """A fault that nobody cured is still there after a year."""
    memory = with_gpu(fold(Memory(), line(VENDOR, T)))

    assert standing(clear(memory, T + 365 * DAY, REACHED)) == {64: NodeClass.VENDOR}


def test_cleared_fault_that_comes_back_counts_its_past() -> None:
    """A cleared 79 that returns within the month is the vendor's, with a fresh count."""
    memory = with_gpu(fold(Memory(), line(REBOOT, T)), **RESET_SEEN)
    memory = clear(memory, T + 60, REACHED)
    memory = fold(memory, line(REBOOT, T + 5 * DAY), at=T + 5 * DAY + 1)

    found = record(memory, 79)
    assert (found.node_class, found.count, len(found.episodes), found.cleared) == ("vendor", 1, 2, None)
    assert found.first == instant(T + 5 * DAY)


@pytest.mark.parametrize("again_at", [T - 30, T])
def test_line_from_before_the_cure_is_no_new_occurrence(again_at: float) -> None:
    """A restart that reads an old line again neither raises the fault nor counts it as a repeat."""
    memory = clear(with_gpu(fold(Memory(), line(REBOOT, T)), **RESET_SEEN), T + 60, REACHED)

    assert fold(memory, line(REBOOT, again_at), at=T + 90).xids == memory.xids
