"""Lines of the kernel log that report trouble of the node, and those that only look like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.decide.kernel_line import parse_fault

LINES: tuple[tuple[str, tuple[str, str] | None], ...] = (
    # line, (kind, target)
    ("I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0", ("disk", "sda")),
    ("blk_update_request: I/O error, dev nvme0n1, sector 7 op 0x1:(WRITE)", ("disk", "nvme0n1")),
    ("critical medium error, dev sdb, sector 99 op 0x0:(READ)", ("disk", "sdb")),
    ("device offline error, dev sdc, sector 1", ("disk", "sdc")),
    ("XFS (dm-3): Metadata corruption detected at xfs_agf_read_verify", ("disk", "dm-3")),
    ("XFS (dm-3): Filesystem has been shut down due to log error", ("disk", "dm-3")),
    ("I/O error, dev cciss!c0d0, sector 1", ("disk", "cciss/c0d0")),
    ("INFO: task python3:4711 blocked for more than 120 seconds.", ("hung", "node")),
    ("Out of memory: Killed process 4711 (trainer) total-vm:1kB", ("oom", "node")),
    ("Memory cgroup out of memory: Killed process 4711 (trainer)", None),
    ("critical nexus error, dev sda, sector 1", None),
    ("critical target error, dev sda, sector 1", None),
    ("critical space allocation error, dev dm-1, sector 1", None),
    ("I/O error, dev sr0, sector 0", None),
    ("I/O error, dev nvme0n1, sector 0 op 0x3:(DISCARD) flags 0x800", None),
    ("XFS (dm-3): Mounting V5 Filesystem", None),
    ("systemd[1]: I/O error, dev sda, sector 1", None),
    ("python3: INFO: task x:1 blocked for more than 120 seconds", None),
    ("INFO: task python3:4711 is waiting", None),
)


@pytest.mark.parametrize(("line", "wanted"), LINES, ids=[row[0][:50] for row in LINES])
def test_a_line_is_the_fault_it_begins_with(line: str, wanted: tuple[str, str] | None) -> None:
    """What the kernel says of a failing disk, a hung task, a node without memory; refusals are no fault."""
    fault = parse_fault(line, 12.5)

    assert (None if fault is None else (fault.kind, fault.target)) == wanted
    if fault is not None:
        assert (fault.at_seconds, fault.text) == (12.5, line)


BEGINNINGS = ["", "I/O error, dev ", "XFS (", "INFO: task ", "Out of memory: "]


@given(st.text(max_size=300), st.sampled_from(BEGINNINGS))
def test_no_line_stops_the_reader(text: str, beginning: str) -> None:
    """Whatever the bytes were; what is kept of one is short and on one line."""
    fault = parse_fault(beginning + text, 0.0)

    assert fault is None or (len(fault.text) <= 200 and "\n" not in fault.text)
