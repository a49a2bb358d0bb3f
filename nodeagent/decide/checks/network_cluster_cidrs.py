"""`network.cluster_cidrs`: are the cluster's own addresses known as such?

A pod or node address that no cluster prefix covers means that its neighbours are not covered either:
their traffic counts as internet, and would be slowed down as such.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good, not_applicable
from nodeagent.model import Finding, NodeClass

SHOWN_PREFIXES = 4


def judge(given: CheckInput) -> Iterator[Finding]:
    """Own and pod addresses outside the cluster set; number is such addresses."""
    for target, links, reading in given.values("net.links"):
        if not links.host_namespace:
            sentence = "the agent is not in the host's network namespace"
            yield not_applicable(target, sentence)
            continue
        missing = given.memory.marks.uncovered
        shown = {
            "value": f"{len(missing)} addresses", "limit": "0 addresses", "number": float(len(missing)),
        }  # fmt: skip
        if not missing:
            yield good(target, reading, **shown)
            continue
        prefixes = sorted({one.prefix for one in missing})
        more = f" and {len(prefixes) - SHOWN_PREFIXES} more" if len(prefixes) > SHOWN_PREFIXES else ""
        first = missing[0]
        sentence = (
            f"extra_cluster_cidrs lacks {', '.join(prefixes[:SHOWN_PREFIXES])}{more}: "
            f"{first.address} of {first.owner} is in no cluster prefix"
        )
        yield bad(target, reading, sentence, cause="prefix", **shown)


CHECKS = (
    Check(
        id="network.cluster_cidrs",
        title="Cluster prefixes complete",
        family="node",
        signals=("net.links",),
        source="addresses of pods and node, against fixed, attached and configured prefixes",
        node_class=NodeClass.CHECK,
        judge=judge,
        hold=HoldRule(bad_polls=2, of_polls=3),
    ),
)
