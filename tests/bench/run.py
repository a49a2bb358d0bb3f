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
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.bench import measures  # noqa: E402  the package stands beside the installed one

PAGE = ROOT / "docs" / "benchmarks.md"


class Budget(Struct, frozen=True, kw_only=True):
    """One row: what is measured, how, and what it may be at most."""

    name: str
    what: str
    bound: float
    unit: str
    measure: Callable[[], float]
    digits: int = 0
    slow: bool = False
    """Measured only when asked for, and by `make soak`."""


class Row(Struct, frozen=True, kw_only=True):
    """A budget and what was measured."""

    budget: Budget
    measured: float

    @property
    def over(self) -> bool:
        """True when the bound is broken."""
        return self.measured > self.budget.bound

    def cells(self) -> tuple[str, str, str, str]:
        """What, measured, bound, ok or over."""
        budget = self.budget
        measured = f"{self.measured:.{budget.digits}f} {budget.unit}"
        return budget.what, measured, f"<= {budget.bound:g} {budget.unit}", "over" if self.over else "ok"


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
)
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


def page(rows: Sequence[Row], taken_seconds: float) -> str:
    """The text of docs/benchmarks.md."""
    lines = ["| what | measured | bound |", "|---|---|---|"]
    lines += [f"| {what} | {measured} | {bound} |" for what, measured, bound, _ in (r.cells() for r in rows)]
    return PAGE_TEXT.format(machine=machine(), table="\n".join(lines), minutes=taken_seconds / 60)


PAGE_TEXT = """# Benchmarks

Written by `tests/bench/run.py --write`; `make bench` measures anew and fails when a bound is broken.
Measured on {machine}, in {minutes:.1f} minutes.

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
"""


def main() -> int:
    """Measure, print, and write the page when asked."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    names = [budget.name for budget in BUDGETS]
    listed = ", ".join(names)
    parser.add_argument("--only", nargs="+", choices=names, metavar="ROW", help=listed)
    parser.add_argument("--all", action="store_true", help="slow rows too")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    began_seconds = time.monotonic()
    rows = []
    for budget in BUDGETS:
        if budget.name in args.only if args.only else args.all or not budget.slow:
            sys.stderr.write(f"measuring: {budget.what} ...\n")
            rows.append(Row(budget=budget, measured=budget.measure()))
    taken_seconds = time.monotonic() - began_seconds
    sys.stdout.write(f"{machine()}, {taken_seconds:.0f} s\n\n{aligned(rows)}\n")
    if args.write:
        PAGE.write_text(page(rows, taken_seconds))
    return 1 if any(row.over for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
