"""Events to records: two sources joined, repeats told from bursts, authority in its order."""

from __future__ import annotations

import pytest

from nodeagent.decide import xid
from nodeagent.errors import ErrorKind
from nodeagent.memory import KernelLogCursor, Memory
from nodeagent.model import NodeClass
from nodeagent.signals import KernelLogStatus, Reading, SignalKey, Unread, XidEvent
from tests.decide.build import BOOT, GPU, UPTIME_SECONDS, now
from tests.decide.xid_build import (
    fold,
    instant,
    line,
    nvml,
    record,
    standing,
    sxid,
    table,
    told,
    with_gpu,
    worst,
)

T = UPTIME_SECONDS - 100.0
"""When the first thing happens."""
DAY = 86400.0
LOST = "79, GPU has fallen off the bus."
RESET_154 = "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
REBOOT_154 = "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
P2P_154 = "154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)"
NONE_154 = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


# --------------------------------------------------------------------- two sources


@pytest.mark.parametrize("apart_seconds", [-4.9, -1.0, 0.0, 1.0, 4.9])
def test_both_sources_are_one_occurrence(apart_seconds: float) -> None:
    """The kernel's line and NVML's event of one fault count once, whichever comes first."""
    memory = fold(Memory(), line(LOST, T), nvml(79, T + apart_seconds))

    found = record(memory, 79)
    assert (found.kernel_count, found.nvml_count, found.count, len(found.episodes)) == (1, 1, 1, 1)


def test_counts_are_kept_per_source_and_the_larger_is_told() -> None:
    """NVML keeps only the latest event, so its count may be lower, and a sum would be a lie."""
    events = [line(LOST, T + second) for second in range(5)]

    found = record(fold(Memory(), *events, nvml(79, T), nvml(79, T + 2)), 79)

    assert (found.kernel_count, found.nvml_count, found.count) == (5, 2, 5)


def test_line_without_a_number_adds_nothing_to_the_numbered_one() -> None:
    """The driver prints "fallen off the bus" twice for one fault."""
    bare = XidEvent(source="kernel", pci_address=GPU, number=79, at_seconds=T, count=0, text="no number")

    assert record(fold(Memory(), line(LOST, T), bare), 79).count == 1
    assert record(fold(Memory(), bare), 79).count == 1


def test_evidence_is_the_kernels_line_even_when_nvml_was_first() -> None:
    """An NVML event has no text; the line arrives later and becomes the evidence."""
    found = record(fold(Memory(), nvml(79, T), line(LOST, T + 1)), 79)

    assert found.text.endswith("fallen off the bus.")


# --------------------------------------------------------------------- 999 (A9) and numbers to decode


def test_999_alone_waits_and_then_is_check() -> None:
    """A number unknown to the NVML library is looked at, never fatal."""
    waiting = fold(Memory(), nvml(999, T), at=T + 1)
    assert standing(waiting) == {}
    assert xid.due_seconds(fold(Memory(boot_id=BOOT), nvml(999, T), at=T + 1), table()) == T + 5.0

    assert standing(fold(waiting, at=T + 5.1)) == {999: NodeClass.CHECK}


@pytest.mark.parametrize("kernel_at", [T - 4.0, T, T + 4.0])
def test_999_with_a_kernel_line_is_the_line(kernel_at: float) -> None:
    """The kernel names the number that NVML does not know."""
    memory = fold(Memory(), nvml(999, T), at=T + 1) if kernel_at > T else Memory()
    later = [line("13, pid=1, name=x, Graphics Exception", kernel_at)]
    memory = fold(memory, *later, *([] if kernel_at > T else [nvml(999, T)]), at=T + 4.5)

    assert standing(fold(memory, at=T + 30)) == {13: NodeClass.APP}
    assert record(memory, 13).nvml_count == 1
    assert memory.unmatched == ()


def test_999_of_one_gpu_is_not_explained_by_another() -> None:
    """Two GPUs may fail in the same second."""
    other = XidEvent(source="nvml", pci_address="0000:5e:00.0", number=999, at_seconds=T)
    memory = fold(fold(Memory(), other, line("13, x", T), at=T + 1), at=T + 10)

    assert record(memory, 999, "0000:5e:00.0").node_class is NodeClass.CHECK


@pytest.mark.parametrize("kernel_at", [T - 6.0, T + 6.0])
def test_999_is_not_explained_by_a_line_of_another_time(kernel_at: float) -> None:
    """Six seconds away is another fault: both stand."""
    memory = fold(Memory(), line("13, x", kernel_at), nvml(999, T), at=T + 7)

    assert standing(memory) == {13: NodeClass.APP, 999: NodeClass.CHECK}


def test_nvml_number_that_must_be_decoded_waits_for_its_line() -> None:
    """149 by NVML may be harmless or fatal; the line decides, and no warning flaps meanwhile."""
    memory = fold(Memory(), nvml(149, T), at=T + 1)
    assert standing(memory) == {}
    decoded = fold(memory, line("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x00400011 0x0)", T + 2), at=T + 3)
    alone = fold(memory, at=T + 6)

    assert standing(decoded) == {149: NodeClass.RESET}
    assert standing(alone) == {149: NodeClass.CHECK}


def test_waiting_events_are_bounded() -> None:
    """A storm of unknown events from many devices cannot grow Memory."""
    addresses = [f"0000:{n:02x}:00.0" for n in range(99)]
    storm = [XidEvent(source="nvml", pci_address=pci, number=999, at_seconds=T) for pci in addresses]

    assert len(fold(Memory(), *storm, at=T + 1).unmatched) == xid.MAX_UNMATCHED


# --------------------------------------------------------------------- repeats


REPEATS = (
    ("second within 30 days", LOST, 79, 20 * DAY, "vendor"),
    ("second after 30 days", LOST, 79, 31 * DAY, "reboot"),
    ("a burst is one occurrence", LOST, 79, 59.0, "reboot"),
    ("a minute apart is two", LOST, 79, 61.0, "vendor"),
    ("38 comes back", "38, x", 38, DAY, "check"),
    ("a number without a repeat class", "31, x", 31, DAY, "app"),
    ("13 without a unit", "13, Graphics Exception", 13, DAY, "app"),
    ("13 on the same unit", "13, Graphics Exception on (GPC 1, TPC 2, SM 0): x", 13, DAY, "check"),
)


@pytest.mark.parametrize(
    ("text", "number", "apart_seconds", "node_class"), [r[1:] for r in REPEATS], ids=[r[0] for r in REPEATS]
)
def test_repeat_rule(text: str, number: int, apart_seconds: float, node_class: str) -> None:
    """A second distinct occurrence within 30 days is a fault of the hardware, where the table says so."""
    memory = fold(Memory(), line(text, T))
    end = T + apart_seconds
    memory = fold(memory, line(text, end), at=end + 1)

    assert record(memory, number).node_class == node_class


def test_13_on_another_unit_is_no_repeat() -> None:
    """Two bugs in two jobs hit two units; a sick unit is hit twice."""
    texts = ["13, Exception on (GPC 1, TPC 2, SM 0)", "13, Exception on (GPC 3, TPC 0, SM 0)",
             "13, Exception on (GPC 3, TPC 0, SM 1)"]
    memory, classes = Memory(), []
    for day, text in enumerate(texts):
        memory = fold(memory, line(text, T + day * DAY), at=T + day * DAY + 1)
        classes.append(record(memory, 13).node_class)

    assert classes == ["app", "app", "check"]


def test_repeat_is_counted_over_a_reboot_by_the_wall_clock() -> None:
    """Two off-bus faults on two boots of one week: the vendor, even though the clock restarted."""
    memory = fold(Memory(), line(LOST, T))
    week_later = now(50.0, boot_id="boot-2", wall_seconds=now(T).at.wall_seconds + 7 * DAY)

    assert record(fold(memory, line(LOST, 40.0), at=week_later), 79).node_class is NodeClass.VENDOR


def test_fault_after_a_seen_reset_is_a_second_occurrence() -> None:
    """A GPU that fails again ten seconds after its reset was not cured by it."""
    memory = with_gpu(fold(Memory(), line("48, DBE", T)), reset_seen=instant(T + 5))

    assert record(fold(memory, line("48, DBE", T + 10)), 48).node_class is NodeClass.VENDOR


def test_standing_fault_does_not_lose_its_repeat_class_with_time() -> None:
    """Once the second occurrence made it the vendor's, the first growing old changes nothing."""
    memory = fold(fold(Memory(), line(LOST, T)), line(LOST, T + 29 * DAY), at=T + 29 * DAY)

    assert record(fold(memory, at=T + 300 * DAY), 79).node_class is NodeClass.VENDOR


# --------------------------------------------------------------------- authority


def test_operator_outranks_number_repeat_and_driver() -> None:
    """`"79" = "check"` holds for decoded, repeated and driver-judged faults alike."""
    memory = fold(Memory(), line(LOST, T), line(REBOOT_154, T + 1), line(LOST, T + 90))
    assert record(memory, 79).node_class is NodeClass.VENDOR

    assert record(fold(memory, overrides={"79": NodeClass.CHECK}), 79).node_class is NodeClass.CHECK


def test_changed_override_takes_hold_of_standing_records_both_ways() -> None:
    """A reload needs no restart and no new fault; taking it back restores the table's class."""
    memory = fold(Memory(), line("63, Row Remapper", T), sxid("12028, Non-fatal, Link 1 x", T))
    muted = fold(memory, overrides={"63": NodeClass.IGNORE, "12028": NodeClass.CHECK})

    assert standing(muted) == {63: NodeClass.IGNORE, 12028: NodeClass.CHECK}
    assert standing(fold(muted)) == standing(memory) == {63: NodeClass.CHECK, 12028: NodeClass.RESET}


DRIVER = (
    ("raises an application fault", "94, contained", RESET_154, "reset"),
    ("leaves a number alone that it does not belong to", "119, GSP", REBOOT_154, "reset"),
    ("raises a linked reset to a reboot", "95, uncontained", REBOOT_154, "reboot"),
    ("lowers a reboot to a reset", LOST, RESET_154, "reset"),
    ("lowers a reset to a check", "48, DBE", P2P_154, "check"),
    ("never lowers the vendor's", "64, remap failed", RESET_154, "vendor"),
    ("None lowers nothing", "95, uncontained", NONE_154, "reset"),
)


@pytest.mark.parametrize(
    ("text", "words", "node_class"), [d[1:] for d in DRIVER], ids=[d[0] for d in DRIVER]
)
@pytest.mark.parametrize("driver_first", [False, True])
def test_driver_outranks_the_number(text: str, words: str, node_class: str, driver_first: bool) -> None:
    """A 154 printed beside a fault that it belongs to decides that fault's class, in either order."""
    first, second = (words, text) if driver_first else (text, words)
    memory = fold(Memory(), line(first, T), line(second, T + 2))

    assert record(memory, line(text).number).node_class == node_class


def test_driver_words_far_from_a_fault_do_not_concern_it() -> None:
    """A verdict ten seconds later belongs to something else."""
    assert record(fold(Memory(), line(LOST, T), line(RESET_154, T + 10)), 79).node_class is NodeClass.REBOOT


def test_none_after_a_reset_clears_nothing_and_renews_nothing() -> None:
    """"None" ends no fault by itself; nor does it make the fault look newer than the reset."""
    memory = fold(Memory(), line(RESET_154, T), line(NONE_154, T + 50))

    found = record(memory, 154)
    assert (found.node_class, found.cleared, found.last) == (NodeClass.RESET, None, instant(T))


def test_154_from_nvml_alone_asks_for_nothing() -> None:
    """NVML names no action; the check of field 230 reads it itself."""
    assert standing(fold(Memory(), nvml(154, T))) == {154: NodeClass.IGNORE}


def test_follow_154_row_takes_the_class_of_the_154_beside_it() -> None:
    """Alone it is the application's; with a verdict it is what the driver says."""
    rest = "145, RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000004 0x00000001)"

    assert worst(fold(Memory(), line(rest, T))) is NodeClass.APP
    assert worst(fold(Memory(), line(rest, T), line(RESET_154, T + 1))) is NodeClass.RESET


def test_worse_line_of_a_standing_number_takes_over() -> None:
    """A fatal link event after a tolerable one brings its own class and evidence; the reverse does not."""
    tolerable = "149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 08 (0x00000013 0x0)"
    fatal = "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x00400011 0x0)"
    up = record(fold(Memory(), line(tolerable, T), line(fatal, T + 1)), 149)
    down = record(fold(Memory(), line(fatal, T), line(tolerable, T + 200)), 149)

    assert (up.node_class, "LINK_EVT" in up.text) == (NodeClass.RESET, True)
    assert (down.node_class, "LINK_EVT" in down.text) == (NodeClass.RESET, True)
    assert (down.last, len(down.episodes), down.count) == (instant(T), 1, 2)


# --------------------------------------------------------------------- special numbers


def test_45_is_never_raised_and_names_its_cause() -> None:
    """Ctrl-C of a job must not condemn a node."""
    found = record(fold(Memory(), line("45, pid=1, name=x, caused by previous Xid 13", T)), 45)

    assert (found.node_class, found.caused_by) == (NodeClass.IGNORE, 13)


def test_109_is_held_then_counts_when_it_comes_again() -> None:
    """One context-switch timeout is often the application's; a second is not."""
    memory = fold(Memory(boot_id=BOOT), line("109, CTX SWITCH TIMEOUT", T), at=T + 1)
    assert (record(memory, 109).held, record(memory, 109).node_class) == (True, NodeClass.APP)
    assert xid.due_seconds(memory, table()) == T + 60.0
    burst = fold(memory, line("109, CTX SWITCH TIMEOUT", T + 4), nvml(109, T + 1), at=T + 5)
    again = fold(memory, line("109, CTX SWITCH TIMEOUT", T + 20), at=T + 21)

    assert record(burst, 109).held
    assert (record(again, 109).held, record(again, 109).node_class) == (False, NodeClass.RESET)


def test_109_counts_at_once_when_the_driver_says_so() -> None:
    """The driver's word ends the wait."""
    found = record(fold(Memory(), line("109, x", T), line(RESET_154, T + 1), at=T + 2), 109)

    assert (found.held, found.node_class) == (False, NodeClass.RESET)


def test_162_clears_163() -> None:
    """Power smoothing that is back ends the fault that it was gone, but not a later one."""
    memory = fold(Memory(), line("163, x", T), line("162, x", T + 10))

    assert record(memory, 163).cleared_by == "xid 162"
    again = fold(memory, line("163, x", T + 20))
    assert 163 in standing(again)
    assert len(record(again, 163).episodes) == 1


def test_injected_line_is_kept_but_never_stands() -> None:
    """A test injection is shown; it neither raises, nor hides or touches a real fault of that number."""
    fatal = "(0x00400011 0x0)"
    fake = line(f"149, NETIR_LINK_EVT Fatal XC0 i1 Link 08 {fatal}", T)
    real = line(f"149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 {fatal}", T + 1)

    assert standing(fold(Memory(), fake)) == {}
    assert record(fold(Memory(), fake), 149).injected
    assert fold(Memory(), real).xids == fold(fold(Memory(), real), fake).xids
    assert standing(fold(fold(Memory(), fake), real)) == {149: NodeClass.RESET}


def test_switch_error_has_the_switch_as_target() -> None:
    """SXids have records of their own, with the link in their meaning."""
    memory = fold(Memory(), sxid("12028, Non-fatal, Link 32 x", T))

    found = record(memory, 12028, "0000:87:00.0")
    assert list(memory.xids) == ["0000:87:00.0|sxid 12028"]
    assert (found.node_class, found.detail) == (NodeClass.RESET, "link 32: egress: privilege error reply")


# --------------------------------------------------------------------- bounds, notices, cursor


def test_records_are_bounded_and_harmless_ones_go_first() -> None:
    """A flood of made-up numbers cannot push a standing fault out of Memory."""
    memory = fold(Memory(), line(LOST, T))
    flood = [
        XidEvent(source="kernel", pci_address=f"0000:{n % 200:02x}:00.0", number=43 if n < 200 else 31,
                 at_seconds=T + 1 + n / 1000)
        for n in range(400)
    ]
    memory, notices = told(memory, *flood)

    assert len(memory.xids) == xid.MAX_RECORDS
    assert standing(memory)[79] is NodeClass.REBOOT
    assert [n.fields for n in notices if n.event == "xid_forgotten"] == [{"count": 145}]


def test_each_occurrence_is_told_once() -> None:
    """The first line of a fault is worth a line in the journal, its repeats and its second source are not."""
    memory, first = told(Memory(), line(LOST, T), nvml(79, T + 1))
    _, second = told(memory, line(LOST, T + 3))
    _, harmless = told(Memory(), line("45, x", T))

    assert [(n.event, n.fields["xid"], n.fields["class"], n.fields["source"]) for n in first] == [
        ("xid_seen", 79, "reboot", "kernel and nvml")
    ]
    assert second == harmless == ()


def test_event_from_the_future_is_now() -> None:
    """A record stamped later than now could never be followed by a reset."""
    assert record(fold(Memory(), line(LOST, UPTIME_SECONDS + 500)), 79).last == instant(UPTIME_SECONDS)


def test_cursor_only_moves_forward_within_a_boot_and_starts_anew_with_another() -> None:
    """A restart continues where the log was read to; the next boot's numbers start at 0."""
    event = XidEvent(source="kernel", pci_address=GPU, number=31, at_seconds=T, kernel_sequence=40)
    memory = fold(Memory(kernel_log=KernelLogCursor(boot_id=BOOT, sequence=50)), event)
    assert memory.kernel_log == KernelLogCursor(boot_id=BOOT, sequence=50)

    memory = fold(memory, event, at=now(T, boot_id="boot-2"))
    assert memory.kernel_log == KernelLogCursor(boot_id="boot-2", sequence=40)


@pytest.mark.parametrize(("sequence", "want"), [(-1, None), (0, 0), (77, 77)])
def test_cursor_follows_what_was_read(sequence: int, want: int | None) -> None:
    """Records without an Xid are behind us as well."""
    status = KernelLogStatus(
        sequence=sequence, records=1, lost_records=0, refused_records=0, reopened=0, backfilled=True
    )
    key = SignalKey("kernel_log", "node")
    board = {key: Reading(value=status, read_at_seconds=T, sequence=1)}
    away = {key: Reading(value=Unread(kind=ErrorKind.DENIED, reason="EPERM"), read_at_seconds=T, sequence=2)}
    memory = xid.read_to(Memory(), now(), board)

    assert (memory.kernel_log and memory.kernel_log.sequence) == want
    assert xid.read_to(memory, now(), away) == memory


def test_folding_nothing_changes_nothing() -> None:
    """The cycle folds every time; a quiet one must not touch what is known."""
    memory = fold(Memory(), line(LOST, T), line("31, x", T), sxid("24007, Fatal, Link 1 x", T))

    assert fold(memory) == memory
