"""Lines whose number says too little: NVLink registers and info words, and the recovery action."""

from __future__ import annotations

import pytest

from nodeagent.decide.xid_class import sxid_class
from nodeagent.decide.xid_decode import V2_SINCE, driver_branch
from nodeagent.decide.xid_table import FOLLOW_154, NvlinkRow
from nodeagent.model import NodeClass
from tests.decide.xid_build import line, sxid, table

ROWS = [row for rows in table().nvlink.values() for row in rows]
STATUSES = [
    pytest.param(row, status, id=f"{row.xid}-{row.unit}-{row.v2_value:#x}-{status:#x}")
    for row in ROWS
    for status in (row.status or {0, 0x12345678})
]
V1, V2 = f"{V2_SINCE - 1}.90.07", f"{V2_SINCE}.57.08"


def nvlink(xid: int, info: int, status: int, *, word: str = "Nonfatal", injected: int = 0) -> str:
    """The free part of an NVLink5 line."""
    return f"{xid}, SAW_MVB {word}   XC0 i{injected} Link 08 ({info:#010x} {status:#010x} 0x0 0x0 0x0 0x0)"


def by_row(row: NvlinkRow) -> NodeClass:
    """The class of a row; a 154 beside it has a record of its own."""
    return NodeClass.APP if row.node_class == FOLLOW_154 else NodeClass(row.node_class)


@pytest.mark.parametrize("version", [V1, V2, ""])
@pytest.mark.parametrize(("row", "status"), STATUSES)
def test_every_row_decodes_its_own_line(row: NvlinkRow, status: int, version: str) -> None:
    """Old layout for old drivers, new for new ones, and the right one when the version is unknown."""
    word = "Nonfatal" if row.severity == "nonfatal" else "Fatal"
    infos = [row.v1_value] if version == V1 else [row.v2_value] if version else [row.v1_value, row.v2_value]

    for info in infos:
        event = line(nvlink(row.xid, info, status, word=word), driver_version=version)
        assert event.node_class is by_row(row)
        assert not event.injected


@pytest.mark.parametrize("row", [row for row in ROWS if row.xid != 150], ids=lambda row: f"{row.v1_value:#x}")
def test_layout_of_another_driver_is_not_decoded(row: NvlinkRow) -> None:
    """An old word from a new driver fits no row of that number, and is left to be looked at."""
    event = line(nvlink(row.xid, row.v1_value, min(row.status, default=0)), driver_version=V2)

    assert event.node_class is NodeClass.CHECK
    assert "no decode row" in event.detail


SPECIAL = (
    ("several bits, the worst counts", nvlink(144, 0x1, 0x7, word="Fatal"), "reset"),
    ("several tolerable bits", nvlink(144, 0x1, 0x5), "ignore"),
    ("a bit without a row beside one with", nvlink(144, 0x1, 0x40001), "ignore"),
    ("no bit has a row", nvlink(144, 0x1, 0x40000), "check"),
    ("a code is not split into bits", nvlink(149, 0x14, 0x6, word="Fatal"), "check"),
    ("no unit fits", nvlink(146, 0x7F, 0x1), "check"),
    ("Fatal outranks a nonfatal row", nvlink(144, 0x1, 0x1, word="Fatal"), "reset"),
    ("Nonfatal outranks a fatal row", nvlink(144, 0x1, 0x2), "check"),
    ("Fatal outranks follow-154", nvlink(145, 0x4, 0x1, word="Fatal"), "reset"),
    ("promoted by its bit", nvlink(145, 0x86, 0x1, word="Fatal"), "reset"),
    ("not promoted", nvlink(145, 0x6, 0x1), "ignore"),
    ("link down by the host", nvlink(149, 0x2800011, 0x0, word="Fatal"), "ignore"),
    ("link lost its alignment", nvlink(149, 0x400011, 0x0, word="Fatal"), "reset"),
)


@pytest.mark.parametrize(("rest", "node_class"), [c[1:] for c in SPECIAL], ids=[c[0] for c in SPECIAL])
def test_line_without_a_plain_row_has_its_class(rest: str, node_class: str) -> None:
    """Several bits, missing rows and contradicting severity words each have one answer."""
    assert line(rest).node_class == node_class


def test_injected_flag_is_read() -> None:
    """A line that a test tool injected says so."""
    assert line(nvlink(150, 0x0, 0x0, word="Fatal", injected=1)).injected


@pytest.mark.parametrize(
    "rest", ["145, nothing that can be read", "145, SAW_MVB Fatal XC0 i0 Link 1 (0x21)",
             "145, SAW_MVB Deadly XC0 i0 Link 1 (0x21 0x2)"]
)
def test_unreadable_nvlink_line_leaves_the_class_to_the_number(rest: str) -> None:
    """A changed format is class check by number, never silent."""
    assert line(rest).node_class is None


def registers(*values: int) -> str:
    """The free part of an Xid 74 line."""
    words = ", ".join(f"{value:#x}" for value in values)
    return f"74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6({words})"


REGISTERS = (
    ("harmless bit", registers(1 << 23, 0, 0, 0, 0, 0, 0), "ignore"),
    ("possible hardware", registers(1 << 16, 0, 0, 0, 0, 0, 0), "check"),
    ("not in production", registers(0, 0, 1 << 13, 0, 0, 0, 0), "vendor"),
    ("fabric needs a reset", registers(0, 0, 0, 1 << 18, 0, 0, 0), "reset"),
    ("the worst of several", registers(1, 0, 1 << 13, 1 << 18, 0, 0, 0), "vendor"),
    ("a bit that no row names", registers(1 << 2, 0, 0, 0, 0, 0, 0), "check"),
    ("a harmless bit beside an unnamed one", registers(1 | 1 << 2, 0, 0, 0, 0, 0, 0), "check"),
    ("corrected", registers(0, 0, 0, 0, 1 << 20, 0, 0), "ignore"),
    ("registers that mean nothing", registers(0, 5, 0, 0, 0, 5, 5), "check"),
    ("no bit at all", registers(0, 0, 0, 0, 0, 0, 0), "check"),
)


@pytest.mark.parametrize(("rest", "node_class"), [c[1:] for c in REGISTERS], ids=[c[0] for c in REGISTERS])
def test_nvlink_registers_choose_the_class(rest: str, node_class: str) -> None:
    """Seven registers, counted from 1, bits from 0; the worst row of the set bits counts."""
    event = line(rest)

    assert event.node_class == node_class
    assert event.detail.startswith("NVLink 6")


RECOVERY = (
    ("0x0 (None) to 0x1 (GPU Reset Required)", "reset"),
    ("0x0 (None) to 0x2 (Node Reboot Required)", "reboot"),
    ("0x0 (None) to 0x3 (Drain P2P)", "check"),
    ("0x0 (None) to 0x4 (Drain and Reset)", "reset"),
    ("0x1 (GPU Reset Required) to 0x0 (None)", "ignore"),
    ("0x0 (None) to 0x1 (gpu  reset required)", "reset"),
    ("0x0 (None) to 0x5 (recover IMEX domain)", "check"),
    ("0x0 (None) to 0x6 (bus reset)", "reboot"),
    ("0x0 (None) to 0x7 (system reboot)", "reboot"),
    ("0x0 (None) to 0x9 (Call Your Mother)", "check"),
    ("something else", "check"),
)


@pytest.mark.parametrize(("words", "node_class"), RECOVERY)
def test_recovery_words_choose_the_class(words: str, node_class: str) -> None:
    """The last parentheses hold the driver's verdict; words never seen are class check, not fatal."""
    assert line(f"154, GPU recovery action changed from {words}").node_class == node_class


SWITCH = (
    ("24007, Fatal, Link 32 sourcetrack timeout", "reset"),
    ("24007, Non-fatal, Link 32 sourcetrack timeout", "check"),
    ("12028, Non-fatal, Link 32 privilege error", "reset"),
    ("22013, Non-fatal, Link 32 minion link request", "ignore"),
    ("22013, Fatal, Link 32 minion link request", "reset"),
    ("10001, Fatal, register access", "check"),
    ("10005, temperature is low again", "ignore"),
    ("10003", "reboot"),
    ("99999, Fatal, Link 1 never seen", "check"),
)


@pytest.mark.parametrize(("rest", "node_class"), SWITCH)
def test_switch_severity_word_outranks_the_table(rest: str, node_class: str) -> None:
    """Guide and driver disagree on some numbers: the word on the line is trusted."""
    assert sxid_class(sxid(rest), table()) == node_class


@pytest.mark.parametrize(
    ("version", "branch"), [("575.57.08", 575), ("570", 570), ("", None), ("x575", None), ("575x", None)]
)
def test_driver_branch_is_the_first_number(version: str, branch: int | None) -> None:
    """A version that cannot be read is unknown, not old."""
    assert driver_branch(version) == branch
