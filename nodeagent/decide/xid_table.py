"""The typed table of Xid and SXid numbers, built from parsed data and handed around as a value.

It exists so that a wrong key or class in the data fails at start and not when the fault comes. It must
never read a file: `nodeagent/xid_data.py` does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.model import NodeClass

DECODE = "decode"
"""Class of a number whose line must be read to know the class."""
FOLLOW_154 = "follow154"
"""Class of an NVLink5 row that takes the class of a 154 seen with it."""

RECOVERY_ACTION_XID = 154
UNKNOWN_TO_NVML = 999
FALLEN_OFF_BUS = 79
NUMBER_CHECKS = frozenset({"xid", "nvswitch.sxid"})
"""Checks whose findings are records of numbers."""
SXID_FLOOR = 10000
"""SXid numbers have five digits; Xid numbers are smaller."""


class XidRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One Xid number."""

    number: int
    node_class: str = msgspec.field(name="class")
    """A NodeClass, or "decode"."""
    meaning: str
    repeat: NodeClass | None = None
    """Class from the second occurrence within the repeat window on."""
    repeat_by: str = ""
    """"unit": only occurrences that name the same unit count as a repeat."""
    linked: frozenset[int] = frozenset()
    hold_seconds: float = 0.0
    """Seconds the number is shown as class app before its own class counts."""
    clears: int | None = None
    note: str = ""


class RecoveryRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value of the driver's recovery action."""

    value: int
    node_class: NodeClass = msgspec.field(name="class")
    text: str


class RegisterRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bits of one register of an Xid 74 line; registers from 1, bits from 0."""

    register: int
    node_class: NodeClass = msgspec.field(name="class")
    bits: frozenset[int]
    meaning: str


class NvlinkRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decode row of Xid 144 to 150."""

    xid: int
    unit: str
    v1_mask: int
    v1_value: int
    v2_mask: int
    v2_value: int
    status: frozenset[int]
    """Error status words that fit; empty: any."""
    status_is_code: bool = False
    """The status is a code and is never split into bits."""
    severity: str
    """fatal, link-fatal or nonfatal"""
    node_class: str = msgspec.field(name="class")
    """A NodeClass, or "follow154"."""
    meaning: str = ""


class SxidRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One SXid number."""

    number: int
    node_class: NodeClass = msgspec.field(name="class")
    fatal: bool
    meaning: str
    linked: frozenset[int] = frozenset()


class _Data(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files as they are written: lists of rows."""

    schema: int
    xid: tuple[XidRow, ...]
    recovery_action: tuple[RecoveryRow, ...]
    xid74: tuple[RegisterRow, ...]
    nvlink5: tuple[NvlinkRow, ...]
    sxid: tuple[SxidRow, ...]


class XidTable(Struct, frozen=True, kw_only=True):
    """Everything known of the numbers; look-ups only."""

    xids: Mapping[int, XidRow]
    sxids: Mapping[int, SxidRow]
    recovery_actions: tuple[RecoveryRow, ...]
    registers: tuple[RegisterRow, ...]
    nvlink: Mapping[int, tuple[NvlinkRow, ...]]
    """Decode rows by Xid number."""
    with_recovery_text: frozenset[int]
    """Numbers beside which the driver prints a 154."""
    links: Mapping[int, frozenset[int]]
    """Numbers that accompany each number, told by either side; SXid and Xid alike."""

    def meaning(self, number: int) -> str:
        """What the number means, with its note; "not in the table" for an unknown one."""
        if number >= SXID_FLOOR:
            sxid = self.sxids.get(number)
            return sxid.meaning if sxid else "not in the table"
        row = self.xids.get(number)
        if row is None:
            return "not in the table"
        return f"{row.meaning}; {row.note}" if row.note else row.meaning

    def recovery(self, words: str) -> RecoveryRow | None:
        """Row of the words in a 154 line, compared without case; None for words never seen."""
        wanted = " ".join(words.split()).casefold()
        for row in self.recovery_actions:
            if row.text.casefold() == wanted:
                return row
        return None


def build_xid_table(parsed: Mapping[str, Any]) -> XidTable:
    """The table from the parsed data files, merged into one mapping.

    Raises ValueError that names the row, key and value when the data is wrong.
    """
    try:
        data = msgspec.convert(dict(parsed), _Data)
    except msgspec.ValidationError as error:
        raise ValueError(f"xid data: {error}") from error
    _require_known_classes(data)
    nvlink: dict[int, tuple[NvlinkRow, ...]] = {}
    for row in data.nvlink5:
        nvlink[row.xid] = (*nvlink.get(row.xid, ()), row)
    xids = {row.number: row for row in data.xid}
    sxids = {row.number: row for row in data.sxid}
    if len(xids) != len(data.xid) or len(sxids) != len(data.sxid):
        raise ValueError("xid and sxid: each number must be listed once")
    return XidTable(
        xids=xids,
        sxids=sxids,
        recovery_actions=data.recovery_action,
        registers=data.xid74,
        nvlink=nvlink,
        with_recovery_text=xids[RECOVERY_ACTION_XID].linked,
        links=_both_ways((*data.xid, *data.sxid)),
    )


def _both_ways(rows: Iterable[XidRow | SxidRow]) -> dict[int, frozenset[int]]:
    links: dict[int, set[int]] = {}
    for row in rows:
        for other in row.linked:
            links.setdefault(row.number, set()).add(other)
            links.setdefault(other, set()).add(row.number)
    return {number: frozenset(others) for number, others in links.items()}


def _require_known_classes(data: _Data) -> None:
    known = {node_class.value for node_class in NodeClass}
    for row in data.xid:
        if row.node_class not in known | {DECODE}:
            raise ValueError(f"xid {row.number}: class {row.node_class!r} is not a class or {DECODE!r}")
    for nvlink_row in data.nvlink5:
        if nvlink_row.node_class not in known | {FOLLOW_154}:
            raise ValueError(
                f"nvlink5 {nvlink_row.xid} {nvlink_row.unit}: class {nvlink_row.node_class!r} "
                f"is not a class or {FOLLOW_154!r}"
            )
