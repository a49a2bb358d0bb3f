"""Reads one line of the kernel log and says which Xid or SXid it reports, if any.

Only the driver's own prefix at the very start of the record counts: what follows the number holds a
process name, which its user chooses. It must never raise, whatever the bytes were.
"""

from __future__ import annotations

import re

from nodeagent.decide.xid_decode import Decoded, decode_nvlink, decode_recovery, decode_registers
from nodeagent.decide.xid_table import FALLEN_OFF_BUS, RECOVERY_ACTION_XID, XidTable
from nodeagent.signals import SxidEvent, XidEvent

EVIDENCE_CHARACTERS = 500
"""Longest evidence text that is kept."""
DRIVER_PREFIXES = ("NVRM:", "nvidia-nvswitch")
"""How every line that can hold an Xid or SXid begins."""

_NVLINK5 = frozenset(range(144, 151))
_NVLINK_BEFORE_5 = 74
_ENGINE_EXCEPTION = 13
_CLEANUP = 45

_FLAGS = re.DOTALL | re.ASCII
_ADDRESS = r"(?:PCI:)?(?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(rf"NVRM: Xid \({_ADDRESS}\): (?P<number>\d{{1,4}})(?P<rest>(?:[,\s].*)?)\Z", _FLAGS)
_SXID = re.compile(
    rf"nvidia-nvswitch\d{{1,3}}: SXid \({_ADDRESS}\): (?P<number>\d{{5}})(?:, (?P<rest>.*))?\Z", _FLAGS
)
_GPU_LINE = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_ADDRESS}(?P<rest>[:\s].*)\Z", _FLAGS)
_SXID_WORDS = re.compile(r"(?:(?P<severity>Fatal|Non-fatal)(?:, |$))?(?:Link (?P<link>\d{1,4})\b)?", re.ASCII)
_SXID_DATA = re.compile(r"Severity \d|Data \{|Engine instance \d", re.ASCII)
# Longer than the 15 characters that the kernel keeps of a process name, so no name can hold it.
_CAUSED_BY = re.compile(r"caused by previous Xid (\d{1,4})\b", re.ASCII)
_UNIT = re.compile(r"Exception on \(?(?P<unit>GPC \d{1,3}, TPC \d{1,3})\b", re.ASCII)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def parse_line(
    text: str, at_seconds: float, table: XidTable, driver_version: str = ""
) -> XidEvent | SxidEvent | None:
    """The event that a kernel record's text reports, or None.

    `at_seconds` is the record's time on CLOCK_MONOTONIC; `driver_version` ("575.57.08", or empty when
    not known) chooses the layout of NVLink5 words.
    """
    match = _XID.match(text)
    if match is not None:
        return _xid_event(match, text, at_seconds, table, driver_version)
    match = _SXID.match(text)
    if match is not None:
        return _sxid_event(match, text, at_seconds)
    match = _GPU_LINE.match(text)
    if match is not None and "fallen off the bus" in _one_line(match["rest"]):
        return XidEvent(
            source="kernel", pci_address=normalise_pci_address(match["pci"]), number=FALLEN_OFF_BUS,
            at_seconds=at_seconds, text=evidence(text), count=0,
        )
    return None


def normalise_pci_address(address: str) -> str:
    """`0000:4e:00.0` of "00000000:4E:00", "4e:00.0" and the like: domain of at least 4 hex digits."""
    head, _, function = address.lower().partition(".")
    parts = head.split(":")
    domain = int(parts[0], 16) if len(parts) == 3 else 0
    return f"{domain:04x}:{parts[-2]}:{parts[-1]}.{function or '0'}"


def evidence(text: str) -> str:
    """The line as it may be shown: no control characters, at most 500 characters."""
    shown = _UNPRINTABLE.sub(" ", text).strip()
    return shown.encode("utf-8", "replace").decode("utf-8")[:EVIDENCE_CHARACTERS]


def _xid_event(
    match: re.Match[str], text: str, at_seconds: float, table: XidTable, driver_version: str
) -> XidEvent:
    number = int(match["number"])
    rest = match["rest"].strip()
    decoded = _decode(number, rest, table, driver_version)
    caused_by = _CAUSED_BY.search(rest) if number == _CLEANUP else None
    return XidEvent(
        source="kernel",
        pci_address=normalise_pci_address(match["pci"]),
        number=number,
        at_seconds=at_seconds,
        text=evidence(text),
        caused_by=int(caused_by.group(1)) if caused_by else None,
        recovery_text=decoded.recovery_text,
        node_class=decoded.node_class,
        injected=decoded.injected,
        detail=evidence(decoded.detail),
    )


def _decode(number: int, rest: str, table: XidTable, driver_version: str) -> Decoded:
    if number == RECOVERY_ACTION_XID:
        return decode_recovery(rest, table)
    if number == _NVLINK_BEFORE_5:
        return decode_registers(rest, table)
    if number in _NVLINK5:
        return decode_nvlink(number, rest, table, driver_version)
    if number == _ENGINE_EXCEPTION:
        unit = _UNIT.search(rest)
        return Decoded(detail=f"{table.meaning(number)} at {unit['unit']}" if unit else "")
    return Decoded()


def _sxid_event(match: re.Match[str], text: str, at_seconds: float) -> SxidEvent | None:
    """None for the second and third line of one SXid: they repeat the number with data words."""
    rest = match["rest"] or ""
    if _SXID_DATA.match(rest):
        return None
    words = _SXID_WORDS.match(rest)
    severity = words["severity"] if words else None
    return SxidEvent(
        pci_address=normalise_pci_address(match["pci"]),
        number=int(match["number"]),
        at_seconds=at_seconds,
        fatal=None if severity is None else severity == "Fatal",
        link=int(words["link"]) if words and words["link"] else None,
        text=evidence(text),
    )


def _one_line(text: str) -> str:
    """The driver breaks one message over lines of one record, each with its prefix."""
    return " ".join(text.replace("NVRM:", " ").split())
