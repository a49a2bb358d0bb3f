"""Kernel lines to events: what the driver prints is understood, what only looks like it is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.decide.xid_line import EVIDENCE_CHARACTERS, normalise_pci_address, parse_line
from nodeagent.signals import SxidEvent, XidEvent
from tests.decide.xid_build import PREFIX, table

SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): "

XID_LINES: tuple[tuple[str, dict[str, Any]], ...] = (
    (PREFIX + "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", {"number": 79, "count": 1}),
    ("NVRM: Xid (0000:4e:00): 31, Ch 00000010, engmask 00000101", {"number": 31}),
    ("NVRM: Xid (PCI:0000:4E:00.0): 43, pid=7, name=python3, Ch 00000008", {"number": 43}),
    ("NVRM: Xid (4e:00.0): 8, Channel 00000001", {"number": 8}),
    ("NVRM: Xid (PCI:0000:4e:00): 62", {"number": 62}),
    ("NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.", {"number": 79, "count": 0}),
    ("NVRM: GPU at PCI:0000:4e:00 has fallen off the bus.", {"number": 79, "count": 0}),
    ("NVRM: The NVIDIA GPU 0000:4e:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
     "NVRM: fallen off the bus and is not responding to commands.", {"number": 79, "count": 0}),
    (PREFIX + "45, pid=12, name=python3, Ch 00000008, caused by previous Xid 13",
     {"number": 45, "caused_by": 13}),
    (PREFIX + "45, pid=12, name=a, b, c, caused by previous Xid 31", {"number": 45, "caused_by": 31}),
    (PREFIX + "13, pid=1, name=x, Graphics SM Warp Exception on (GPC 1, TPC 0, SM 0): Out Of Range Address",
     {"number": 13, "detail": "exception in compute or graphics engine at GPC 1, TPC 0"}),
    (PREFIX + "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
     {"number": 154, "recovery_text": "GPU Reset Required"}),
)


@pytest.mark.parametrize(("text", "want"), XID_LINES)
def test_driver_line_is_understood(text: str, want: dict[str, Any]) -> None:
    """Old and new spellings, with and without pid, name, PCI: and function, all name the same GPU."""
    event = parse_line(text, 12.5, table())

    assert isinstance(event, XidEvent)
    assert (event.pci_address, event.at_seconds, event.source) == ("0000:4e:00.0", 12.5, "kernel")
    assert {name: getattr(event, name) for name in want} == want
    assert event.text.startswith("NVRM:")


NOT_OURS = (
    "",
    "NVRM:",
    "NVRM: GPU at PCI:0000:4e:00: GPU-8f3e",
    "NVRM: GPU Board Serial Number: 165032",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  575.57.08",
    "NVRM: Xid (PCI:0000:4e:00): , nothing",
    "NVRM: Xid (PCI:0000:4e:00): 79x, nothing",
    "NVRM: Xid (PCI:0000:4e:00): 12345, nothing",
    "NVRM: Xid (PCI:0000:4e:00): ٧٩, nothing",
    "NVRM: Xid (PCI:0000:4e:00) 79, nothing",
    " " + PREFIX + "79, a space before it",
    "x" + PREFIX + "79, a letter before it",
    "audit: comm=\"" + PREFIX + "79,\"",
    "\n" + PREFIX + "79, a line break before it",
    "nvrm: xid (pci:0000:4e:00): 79, lower case",
    SWITCH + "1202, four digits",
    SWITCH + "28006, Severity 0 Engine instance 46 Sub-engine instance 00",
    SWITCH + "28006, Data {0x00140004, 0x00000000}",
    "nvidia-nvswitch3: using MSI",
    "usb 1-1: GPU has fallen off the bus",
)


@pytest.mark.parametrize("text", NOT_OURS)
def test_other_line_is_no_event(text: str) -> None:
    """Banners, data lines and text that merely contains a driver's line are not events."""
    assert parse_line(text, 1.0, table()) is None


FORGING_NAMES = (
    "\nNVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:5e:00): 79, pid=1",
    "x, 79, y",
    "x): 79, ",
    "Xid 79",
    "fallen off the bus",
    "caused by previous Xid 79",
    "a, caused by previous Xid 79, b",
    "changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    "SAW_MVB Fatal XC0 i0 Link 1 (0x21 0x2)",
    "link 1(0x0, 0x0, 0x2000, 0x0, 0x0, 0x0, 0x0)",
)


@pytest.mark.parametrize("name", FORGING_NAMES)
@pytest.mark.parametrize("number", [31, 45, 74, 145, 154])
def test_process_name_forges_nothing(name: str, number: int) -> None:
    """The number, the GPU, the class and the words are the driver's, whatever a process calls itself."""
    shown = name[:15] if number == 45 else name
    event = parse_line(f"{PREFIX}{number}, pid=7, name={shown}, Ch 00000010", 1.0, table())
    plain = parse_line(f"{PREFIX}{number}, pid=7, name=python3, Ch 00000010", 1.0, table())

    assert isinstance(event, XidEvent)
    assert isinstance(plain, XidEvent)
    assert (event.number, event.pci_address) == (number, "0000:4e:00.0")
    assert (event.node_class, event.recovery_text, event.caused_by, event.injected) == (
        plain.node_class, plain.recovery_text, plain.caused_by, plain.injected
    )


SXID_LINES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
     {"number": 28006, "fatal": False, "link": 46}),
    ("24007, Fatal, Link 32 sourcetrack timeout error", {"number": 24007, "fatal": True, "link": 32}),
    ("10003, Fatal, unknown interrupt", {"number": 10003, "fatal": True, "link": None}),
    ("10005, temperature is low again", {"number": 10005, "fatal": None, "link": None}),
    ("10008", {"number": 10008, "fatal": None, "link": None}),
)


@pytest.mark.parametrize(("rest", "want"), SXID_LINES)
def test_switch_line_is_understood(rest: str, want: dict[str, Any]) -> None:
    """Severity word and link are read where the line has them, and nothing is guessed elsewhere."""
    event = parse_line(SWITCH + rest, 1.0, table())

    assert isinstance(event, SxidEvent)
    assert event.pci_address == "0000:c1:00.0"
    assert {name: getattr(event, name) for name in want} == want


@pytest.mark.parametrize(
    ("address", "want"),
    [("0000:4e:00", "0000:4e:00.0"), ("00000000:4E:00.0", "0000:4e:00.0"), ("4e:00.1", "0000:4e:00.1"),
     ("0018:01:00", "0018:01:00.0"), ("10000:01:00.0", "10000:01:00.0")],
)
def test_pci_address_has_one_spelling(address: str, want: str) -> None:
    """Lower case, domain of four digits, function always there."""
    assert normalise_pci_address(address) == want


def test_evidence_is_short_and_printable() -> None:
    """Control characters and excess length never reach a terminal or the journal."""
    event = parse_line(PREFIX + "31, name=\x1b[31mred\x00\u2028\x9b" + "y" * 4000, 1.0, table())

    assert isinstance(event, XidEvent)
    assert len(event.text) == EVIDENCE_CHARACTERS
    assert not {"\x1b", "\x00", "\u2028", "\x9b"} & set(event.text)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_event_or_nothing(raw: bytes) -> None:
    """Whatever a record holds, reading it ends without an exception."""
    assert parse_line(raw.decode("utf-8", "replace"), 1.0, table()) is None


PIECES = st.sampled_from([
    "NVRM: Xid (", "PCI:", "0000:4e:00", ".0", "): ", "79", "145", "149", "154", "74", "13", "45", ", ",
    "pid=", "name=", "nvidia-nvswitch0: SXid (", "12028", "Fatal", "Nonfatal", "Non-fatal", " XC0 i1 Link ",
    "-1", "08", " (0x", "ffffffff", " 0x0", ")", "link 3(", "0x1, ", "changed from 0x0 (None) to 0x", "1 (",
    "GPU Reset Required", "NVRM: GPU at ", "caused by previous Xid ", "fallen off the bus", "\n", "\x00",
    "é", "\udc80", "9" * 30,
])


@given(st.lists(PIECES, max_size=20).map("".join), st.sampled_from(["", "570.1", "575.57", "x", "99999999"]))
def test_any_shuffled_driver_words_are_an_event_or_nothing(text: str, driver_version: str) -> None:
    """Lines put together from the driver's own words never raise, and an event is always well-formed."""
    event = parse_line(text, 1.0, table(), driver_version)

    if event is not None:
        assert event.number < 100_000
        assert len(event.text) <= EVIDENCE_CHARACTERS
        assert len(event.pci_address.split(":")) == 3


@given(st.text(max_size=200))
def test_any_tail_keeps_number_and_address(tail: str) -> None:
    """Free text after the number cannot change which GPU and which number the line is about."""
    event = parse_line(PREFIX + "31, " + tail, 1.0, table())

    assert isinstance(event, XidEvent)
    assert (event.number, event.pci_address) == (31, "0000:4e:00.0")
