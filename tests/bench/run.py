"""Measures the budgets of docs/design.md on this machine: one row each, exit code 1 when one is over.

    make bench
    .venv/bin/python tests/bench/run.py --only memory cli      only these rows
    .venv/bin/python tests/bench/run.py --all --write          slow rows too, and docs/benchmarks.md from them
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

# The package stands beside the installed one.
from tests.bench import (  # noqa: E402
    kube_rows,
    measures,
    net_packets,
    net_page,
    net_rows,
    shape_beside,
    shape_page,
    shape_rates,
    shape_rows,
)
from tests.bench.budget import Budget, Row  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
PLOT = ROOT / "docs" / "benchmarks-packets.png"
SECTIONS = ("Packets", "Limits", "Shapers side by side")


BUDGETS = (
    Budget(
        name="cpu", what="steady CPU, 8 GPUs, 3,000 other processes", bound=0.5, unit="% of a core",
        measure=measures.cpu_percent, digits=2,
    ),
    Budget(
        name="memory", what="memory (sum of PSS) of daemon and workers after 2,000 cycles", bound=80,
        unit="MiB", measure=measures.memory_mib, digits=1,
    ),
    Budget(
        name="slope", what="growth of that memory in 1,000 cycles, over 5,000", bound=1, unit="MiB",
        measure=measures.slope_mib, digits=2, slow=True,
    ),
    Budget(
        name="cli", what="`nodeagent status` start to exit, above an idle python", bound=120, unit="ms",
        measure=measures.status_milliseconds,
    ),
    Budget(
        name="xid-kernel", what="Xid 79 in the kernel log to changed status, NVML blocked, p95 of 50",
        bound=1, unit="s", measure=lambda: measures.xid_seconds("kernel"), digits=2,
    ),
    Budget(
        name="xid-nvml", what="Xid 79 as NVML event to changed status, NVML blocked, p95 of 50", bound=1,
        unit="s", measure=lambda: measures.xid_seconds("nvml"), digits=2,
    ),
    *kube_rows.BUDGETS,
    *net_rows.BUDGETS,
    *shape_rows.BUDGETS,
)
GROUPS = ("net", "shape", "xid")
"""First parts of names: all rows that begin with one."""
HEAD = ("what", "measured", "bound", "")


def machine() -> str:
    """What a reader must know to judge the numbers; no name of the machine."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    kernel, python = platform.release().partition("-")[0], platform.python_version()
    return f"{os.cpu_count()} cores ({model}), kernel {kernel}, Python {python}"


def aligned(rows: Sequence[Row]) -> str:
    """The table for a terminal."""
    table = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(cells[i]) for cells in table) for i in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in table
    )


def page(rows: Sequence[Row]) -> str:
    """The text of docs/benchmarks.md; a row that was not measured now stays as the page has it."""
    old = PAGE.read_text() if PAGE.exists() else ""
    lines = {line.split("|")[1].strip(): line for line in old.splitlines() if line.startswith("| ")}
    for what, measured, bound, verdict in (row.cells() for row in rows):
        lines[what] = f"| {what} | {measured} | {bound} |{' over |' if verdict == 'over' else ' |'}"
    table = [lines[budget.what] for budget in BUDGETS if budget.what in lines]
    head = ["| what | measured | bound | |", "|---|---|---|---|"]
    table_text = "\n".join([*head, *table])
    text = PAGE_TEXT.format(machine=machine(), table=table_text, pairs=shape_rates.PAIRS)
    return text + "".join(sections(old).values())


def sections(old: str) -> dict[str, str]:
    """Tables and plot of this run, and the page's own of what was not measured now; in order."""
    held = shape_page.sections(old)
    fresh: dict[str, str] = {}
    if net_packets.measured.cache_info().currsize:
        found = {backend: net_packets.measured(backend) for backend in net_rows.BACKENDS}
        net_page.plot(found, PLOT)
        fresh["Packets"] = PACKETS_TEXT.format(table=net_page.table(found), rounds=net_packets.ROUNDS)
    if shape_rates.limits.cache_info().currsize:
        fresh["Limits"] = shape_page.limits_section(shape_rates.limits())
    if shape_beside.measured.cache_info().currsize and not shape_beside.missing():
        fresh["Shapers side by side"] = shape_page.beside_section(shape_beside.measured())
    return {title: fresh.get(title) or held[title] for title in SECTIONS if title in fresh or title in held}


PAGE_TEXT = """# Benchmarks

Written by `tests/bench/run.py --write`; `make bench` measures anew and fails when a bound is broken.
Measured on {machine}.

{table}

How: the real daemon and its workers, eight H100s of the scripted NVML library (`tests/fakenvml`), a packet
pipe as the kernel log.

- **Steady CPU**: user and system time of all three processes over 45 s at the daemon's own pace, with 3,000
  sleeping processes beside them.
- **Memory**: proportional set size of all three after 2,000 cycles, each with a read of everything; the pause
  between two cycles is shortened for this. The growth is the slope of a regression over 5,000 cycles after
  the first 1,000 (`make soak` checks it, too).
- **`nodeagent status`**: median of 21 pairs, each one run of `python -c pass` and one of the command.
- **Xid to status**: from the write of the record (or the event) to the first status answer that shows the
  fault, at random moments between two cycles. Every NVML call but the wait for events hangs meanwhile.
  The command's own time comes on top.
- **Pods' marks**: the real daemon at its own pace in a private network namespace, told of pods by a file. Its
  processor time includes workers and the commands it ran, less what it uses in the same time by itself. The
  end of each wait is the entry in `ipset save`. Writes are system calls seen by strace.
- **Shaped pods**: the same with an `internet_budget`, so that each pod has a class. The end of each wait is
  the entry, and the class that it names in `tc class show`. Writes to tc count.
- **Cluster TCP**: one connection of a pod limited to 20 Mbit/s to another node, while two pods fill an
  internet budget of 30 Mbit/s and while they are stopped; median of {pairs} pairs of 0.8 s in changing order.
"""
PACKETS_TEXT = """
## Packets

![ns per packet by number of pods](benchmarks-packets.png)

{table}

UDP in 64-byte frames from a pod through its node to another node, forwarded on one core; medians of {rounds}
rounds of a quarter of a second for each column, in slices of 20 ms that take turns. Processor time of the
core, softirqs included. "No marks" is a node without any table at all, so the cost of entering netfilter is
in the difference; the agent has made the marks and ended. A list has one rule a pod, and the pod that sends
is the last.
"""


def wanted(budget: Budget, only: list[str] | None, everything: bool) -> bool:
    """A slow row is measured when it is named itself, or with all."""
    if only:
        return budget.name in only or (budget.is_named(only) and (everything or not budget.slow))
    return everything or not budget.slow


def main() -> int:
    """Measure, print, and write the page when asked."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    names = [budget.name for budget in BUDGETS]
    listed = ", ".join([*GROUPS, *names])
    parser.add_argument("--only", nargs="+", choices=[*names, *GROUPS], metavar="ROW", help=listed)
    parser.add_argument("--all", action="store_true", help="slow rows too")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    began_seconds = time.monotonic()
    rows = []
    for budget in BUDGETS:
        if wanted(budget, args.only, args.all):
            sys.stderr.write(f"measuring: {budget.what} ...\n")
            rows.append(Row(budget=budget, measured=budget.measure()))
    taken_seconds = time.monotonic() - began_seconds
    sys.stdout.write(f"{machine()}, {taken_seconds:.0f} s\n\n{aligned(rows)}\n")
    if args.write:
        PAGE.write_text(page(rows))
    return 1 if any(row.over for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
