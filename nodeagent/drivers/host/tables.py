"""How full the kernel's tables of connections and of neighbours are, from /proc.

The table of connections is counted per network namespace, that of neighbours over all of them. Nothing is
judged here.
"""

from __future__ import annotations

from pathlib import Path

from nodeagent.drivers.host import netlink
from nodeagent.drivers.host.system import read_bounded
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.net_signals import ConntrackTable, NeighbourTable
from nodeagent.wire import HostArguments

_STATISTICS_LIMIT_BYTES = 1 << 20
_CACHES = {"ipv4": "arp_cache", "ipv6": "ndisc_cache"}


def conntrack(arguments: HostArguments) -> ConntrackTable:
    """Entries, limit and what a full table cost. Raises DriverError: absent without connection tracking."""
    folder = Path(arguments.proc_root, "sys/net/netfilter")
    try:
        entries_count = _number(folder / "nf_conntrack_count")
    except DriverError as error:
        if error.kind is not ErrorKind.ABSENT:
            raise
        detail = "no connection is tracked here: nf_conntrack is not loaded"
        raise DriverError(ErrorKind.ABSENT, error.target, "read conntrack", detail) from error
    sums = _sums(Path(arguments.proc_root, "net/stat/nf_conntrack"))
    return ConntrackTable(
        entries_count=entries_count, limit_count=_number(folder / "nf_conntrack_max"),
        dropped_count=sums["drop"] + sums["early_drop"] if {"drop", "early_drop"} <= sums.keys() else None,
        insert_failed_count=sums.get("insert_failed"),
    )


def neighbours(arguments: HostArguments, family: str) -> NeighbourTable:
    """Entries, limit and overflows of the table of "ipv4" or "ipv6".

    Raises DriverError: absent without that family, and outside the first network namespace.
    """
    folder = Path(arguments.proc_root, "sys/net", family, "neigh/default")
    statistics = Path(arguments.proc_root, "net/stat", _CACHES[family])
    try:
        limit_count = _number(folder / "gc_thresh3")
        first = _rows(statistics)[0]
    except DriverError as error:
        if error.kind is not ErrorKind.ABSENT:
            raise
        detail = "the table shows only in the first network namespace"
        raise DriverError(ErrorKind.ABSENT, family, "neighbours", detail) from error
    entries_count = first.get("entries", 0)
    collected = entries_count > _number(folder / "gc_thresh1")
    return NeighbourTable(
        entries_count=entries_count, limit_count=limit_count,
        exempt_count=netlink.exempt_count(netlink.FAMILIES[family]) if collected else 0,
        overflow_count=_sums(statistics).get("table_fulls"),
    )


def _number(path: Path) -> int:
    text = read_bounded(path, 64).decode("ascii", "replace").strip()
    if not text.isdecimal():
        raise DriverError(ErrorKind.INVALID, str(path), "read", f"{text[:40]!r} is no number")
    return int(text)


def _rows(path: Path) -> list[dict[str, int]]:
    """One row a processor, by the names in the head of the file. Raises DriverError."""
    lines = read_bounded(path, _STATISTICS_LIMIT_BYTES).decode("ascii", "replace").splitlines()
    names = lines[0].split() if lines else []
    try:
        counts = [[int(word, 16) for word in line.split()] for line in lines[1:]]
    except ValueError as error:
        raise DriverError(ErrorKind.INVALID, str(path), "read", "a row is not hexadecimal") from error
    if not counts:
        raise DriverError(ErrorKind.INVALID, str(path), "read", "no row of any processor")
    return [dict(zip(names, row, strict=False)) for row in counts]


def _sums(path: Path) -> dict[str, int]:
    """Sum over all processors by name; empty where the kernel does not tell."""
    try:
        rows = _rows(path)
    except DriverError as error:
        if error.kind is ErrorKind.ABSENT:
            return {}
        raise
    return {name: sum(row.get(name, 0) for row in rows) for name in rows[0]}
