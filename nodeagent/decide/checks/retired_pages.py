"""`retired_pages`: memory pages out of use, on GPUs older than row remapping.

A few retired pages are a repair, not a fault; many, or one that waits for a reset, are.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good
from nodeagent.model import Finding, NodeClass


def judge(given: CheckInput) -> Iterator[Finding]:
    """More pages than the limit, or a pending one, are bad; number is pages."""
    limit = given.limits["pages"]
    for target, retired, reading in given.values("gpu.retired_pages"):
        pages = retired.single_bit_pages + retired.double_bit_pages
        waits = ", one pending" if retired.pending else ""
        shown = {"value": f"{pages} pages{waits}", "limit": f"{limit} pages", "number": float(pages)}
        if pages > limit:
            yield bad(target, reading, f"{pages} memory pages are retired", cause="many", **shown)
        elif retired.pending:
            sentence = "a memory page waits for a GPU reset to be retired"
            yield bad(target, reading, sentence, node_class=NodeClass.RESET, cause="pending", **shown)
        else:
            yield good(target, reading, **shown)


CHECKS = (
    Check(
        id="retired_pages",
        title="Retired memory pages",
        family="gpu",
        signals=("gpu.retired_pages",),
        source="NVML fields 29 to 31, retired pages",
        node_class=NodeClass.VENDOR,
        judge=judge,
        limits=(Limit(name="pages", unit="pages", default=62, meaning="Pages that are still tolerated."),),
        hold=HoldRule(bad_polls=2, of_polls=3, proof="reset"),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
)
