"""Decodes the lines whose number alone says too little: NVLink (74, 144 to 150) and recovery action (154).

It must never let a line's free text choose the class: every pattern is anchored at the end of the line,
where the driver writes, so that a process name earlier in the line cannot stand in for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from nodeagent.decide.xid_table import (
    FOLLOW_154,
    NvlinkRow,
    RegisterRow,
    XidTable,
)
from nodeagent.model import NodeClass

V2_SINCE = 575
"""Driver branch from which NVLink5 info words have their second layout."""

_HEX = r"0x[0-9a-fA-F]{1,8}"
_NVLINK = re.compile(
    r"(?:^|[,\s])(?P<unit>[A-Z][A-Za-z0-9_]*)\s+(?P<severity>Fatal|Nonfatal)\s+XC[01]\s+i(?P<injected>[01])"
    rf"\s+Link\s+(?P<link>-?\d{{1,4}})\s+\((?P<words>{_HEX}(?:\s+{_HEX}){{1,15}})\s*\)\s*\Z",
    re.ASCII,
)
_REGISTERS = re.compile(
    rf"link\s*(?P<link>\d{{1,4}})\s*\((?P<words>{_HEX}(?:,\s*{_HEX}){{6}})\)\W*\Z", re.ASCII
)
_RECOVERY = re.compile(
    rf"changed from {_HEX} \([^()]*\) to {_HEX} \((?P<words>[^()]{{1,80}})\)\W*\Z", re.ASCII
)
_BITS = range(32)


class Decoded(NamedTuple):
    """What a line says beyond its number."""

    node_class: NodeClass | None = None
    """None: the line could not be decoded, or the number is enough."""
    detail: str = ""
    injected: bool = False
    recovery_text: str | None = None


def driver_branch(driver_version: str) -> int | None:
    """575 of "575.57.08"; None when the version is not known."""
    match = re.match(r"\d{1,5}(?=\.|$)", driver_version, re.ASCII)
    return int(match.group()) if match else None


def decode_recovery(rest: str, table: XidTable) -> Decoded:
    """Class and words of a 154 line; words that the table lacks are class check."""
    match = _RECOVERY.search(rest)
    if match is None:
        return Decoded(NodeClass.CHECK, "recovery action that could not be read")
    words = " ".join(match["words"].split())
    row = table.recovery(words)
    if row is None:
        return Decoded(NodeClass.CHECK, f"recovery action not in the table: {words}", recovery_text=words)
    return Decoded(row.node_class, f"driver asks for: {row.text}", recovery_text=words)


def decode_registers(rest: str, table: XidTable) -> Decoded:
    """Worst row of the bits set in the seven registers of an Xid 74 line."""
    match = _REGISTERS.search(rest)
    if match is None:
        return Decoded()
    values = [int(word, 16) for word in match["words"].split(",")]
    rows: list[RegisterRow] = []
    unlisted = False
    for register in {row.register for row in table.registers}:
        set_bits = {bit for bit in _BITS if values[register - 1] >> bit & 1}
        hit = [row for row in table.registers if row.register == register and row.bits & set_bits]
        rows += hit
        unlisted |= bool(set_bits - {bit for row in hit for bit in row.bits})
    where = f"NVLink {match['link']}"
    if not rows or (unlisted and max(row.node_class.rank for row in rows) < NodeClass.CHECK.rank):
        return Decoded(NodeClass.CHECK, f"{where}: register bits not in the table")
    worst = max(rows, key=lambda row: row.node_class.rank)
    return Decoded(worst.node_class, f"{where}: {worst.meaning}")


def decode_nvlink(number: int, rest: str, table: XidTable, driver_version: str) -> Decoded:
    """Class of an NVLink5 line by its decode row; class check when no row fits."""
    match = _NVLINK.search(rest)
    if match is None:
        return Decoded()
    words = [int(word, 16) for word in match["words"].split()]
    fatal = match["severity"] == "Fatal"
    where = f"{match['unit']} link {match['link']} {match['severity'].lower()}"
    injected = match["injected"] == "1"
    rows = _fitting(table.nvlink.get(number, ()), words[0], driver_branch(driver_version))
    rows = _by_status(rows, words[1])
    if not rows:
        return Decoded(NodeClass.CHECK, f"{where}: no decode row fits", injected)
    judged = [(_with_severity_word(row, fatal), row) for row in rows]
    node_class, worst = max(judged, key=lambda pair: pair[0].rank)
    detail = f"{where}: {worst.meaning}" if worst.meaning else where
    return Decoded(node_class, detail, injected)


def _fitting(rows: Iterable[NvlinkRow], info: int, branch: int | None) -> list[NvlinkRow]:
    """Rows whose mask and value fit the info word, by driver branch, or by either layout when unknown:
    no word fits a v1 and a v2 row of one number, 150 excepted, where both say the same."""
    v1_possible = branch is None or branch < V2_SINCE
    v2_possible = branch is None or branch >= V2_SINCE
    return [
        row for row in rows
        if (v1_possible and info & row.v1_mask == row.v1_value)
        or (v2_possible and info & row.v2_mask == row.v2_value)
    ]


def _by_status(rows: list[NvlinkRow], status: int) -> list[NvlinkRow]:
    """Rows of the whole status word, else of each of its bits."""
    whole = [row for row in rows if not row.status or status in row.status]
    if whole:
        return whole
    bits = {1 << bit for bit in _BITS if status >> bit & 1}
    return [row for row in rows if not row.status_is_code and row.status & bits]


def _with_severity_word(row: NvlinkRow, fatal: bool) -> NodeClass:
    """The line's severity word outranks the row's: Fatal on a nonfatal row asks for a reset, Nonfatal
    on a fatal row leaves a degraded link to look at."""
    row_class = NodeClass.APP if row.node_class == FOLLOW_154 else NodeClass(row.node_class)
    row_fatal = row.severity != "nonfatal"
    if fatal and not row_fatal:
        return max(row_class, NodeClass.RESET, key=lambda node_class: node_class.rank)
    if row_fatal and not fatal:
        return min(row_class, NodeClass.CHECK, key=lambda node_class: node_class.rank)
    return row_class
