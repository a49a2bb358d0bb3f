"""The kernel's tables of connections and neighbours, read from scripted trees; tests/netns has real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.drivers.host import tables
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.net_signals import ConntrackTable, NeighbourTable
from nodeagent.wire import HostArguments

CONNTRACK = """entries  found insert_failed drop early_drop icmp_error
0000002a 1 3 10 1 0
0000002a 2 1 1 f 0
"""
CACHE = "entries  allocs table_fulls\n00000020 1 2\n00000020 2 a\n"


class Proc:
    """A tree like /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.arguments = HostArguments(proc_root=str(root))

    def write(self, file: str, text: str) -> None:
        """A file of it."""
        (self.root / file).parent.mkdir(parents=True, exist_ok=True)
        (self.root / file).write_text(text)

    def conntrack(self, count: str = "42\n") -> None:
        """A table with a limit of 256."""
        self.write("sys/net/netfilter/nf_conntrack_count", count)
        self.write("sys/net/netfilter/nf_conntrack_max", "256\n")

    def neighbours(self, family: str = "ipv4", cache: str = "arp_cache") -> None:
        """The kernel's default limits, and a table that is smaller than all of them."""
        for number, limit in enumerate((128, 512, 1024), 1):
            self.write(f"sys/net/{family}/neigh/default/gc_thresh{number}", f"{limit}\n")
        self.write(f"net/stat/{cache}", CACHE)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """An empty one."""
    return Proc(tmp_path)


def test_conntrack_adds_up_what_a_full_table_cost(proc: Proc) -> None:
    """Drops and early drops of all processors together; a lost race is no sign of a full table."""
    proc.conntrack()
    proc.write("net/stat/nf_conntrack", CONNTRACK)

    assert tables.conntrack(proc.arguments) == ConntrackTable(
        entries_count=42, limit_count=256, dropped_count=0x10 + 1 + 1 + 0xF, insert_failed_count=4
    )


def test_a_kernel_that_does_not_count_drops_is_believed(proc: Proc) -> None:
    """Without the file of statistics the drops are None, not 0."""
    proc.conntrack()

    assert tables.conntrack(proc.arguments).dropped_count is None


def test_neighbours_are_read_of_both_families(proc: Proc) -> None:
    """Entries are one number for the table, overflows one for each processor."""
    proc.neighbours()
    proc.neighbours("ipv6", "ndisc_cache")
    expected = NeighbourTable(entries_count=32, limit_count=1024, overflow_count=12)

    assert [tables.neighbours(proc.arguments, family) for family in ("ipv4", "ipv6")] == [expected] * 2


@pytest.mark.parametrize("family", ["ipv4", "conntrack"])
def test_where_there_is_no_table_it_is_absent(proc: Proc, family: str) -> None:
    """No connection tracking, or not the first network namespace, is no fault."""
    with pytest.raises(DriverError) as failed:
        if family == "conntrack":
            tables.conntrack(proc.arguments)
        else:
            tables.neighbours(proc.arguments, family)
    assert failed.value.kind is ErrorKind.ABSENT


@pytest.mark.parametrize("text", ["", "many\n", "entries table_fulls\n", "entries\nxyz\n"])
def test_garbage_is_invalid(proc: Proc, text: str) -> None:
    """A file in another form is said to be one."""
    proc.neighbours()
    proc.write("net/stat/arp_cache", text)
    proc.conntrack(text)
    for read in (lambda: tables.neighbours(proc.arguments, "ipv4"), lambda: tables.conntrack(proc.arguments)):
        with pytest.raises(DriverError) as failed:
            read()
        assert failed.value.kind is ErrorKind.INVALID
