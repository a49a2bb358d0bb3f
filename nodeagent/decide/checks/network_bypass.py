"""`network.bypass`: does traffic leave or reach this node without passing iptables?

eBPF host routing, SR-IOV and RDMA do. Then marks and counts show a part only, and that must be said. Headers
that only the wire has, and reads that are a moment apart, are why the uplink may carry somewhat more.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, not_applicable
from nodeagent.model import NODE, Finding, NodeClass, State
from nodeagent.signals import Unread
from nodeagent.traffic import LinkState, MarkReading

MIB_BYTES = 1 << 20


def judge(given: CheckInput) -> Iterator[Finding]:
    """The last complete stretch of at least 30 s; number is bytes that no rule counted."""
    links, marks = given.value("net.links", NODE), given.value("net.marks", NODE)
    if isinstance(links, Unread) or isinstance(marks, Unread):
        return
    if not isinstance(links, LinkState) or not isinstance(marks, MarkReading):
        return
    if not links.host_namespace or not given.memory.marks.listed:
        sentence = "nothing is counted: no pod list, or not the host's network namespace"
        yield not_applicable(NODE, sentence)
        return
    window = given.memory.traffic.window
    if window is None:
        yield Finding(target=NODE, state=State.UNKNOWN, sentence="no 30 s have been compared yet")
        return
    yield max(
        (
            _judge_one(given, "out", window.uplink_out_bytes, window.counted_out_bytes, window.ended_seconds),
            _judge_one(given, "in", window.uplink_in_bytes, window.counted_in_bytes, window.ended_seconds),
        ),
        key=lambda finding: (finding.state is State.WARNING, finding.number or 0.0),
    )


def _judge_one(
    given: CheckInput, side: str, uplink_bytes: int, counted_bytes: int, read_at_seconds: float, /
) -> Finding:
    missing_bytes = max(0, uplink_bytes - counted_bytes)
    ratio, least_bytes = given.limits["ratio"], given.limits["uncounted_bytes"]
    is_bad = uplink_bytes > ratio * counted_bytes and missing_bytes > least_bytes
    carried, counted = (f"{number / MIB_BYTES:.1f} MiB" for number in (uplink_bytes, counted_bytes))
    sentence = f"{carried} {side} on the uplinks, but only {counted} passed our rules"
    return Finding(
        target=NODE,
        state=State.WARNING if is_bad else State.OK,
        value=f"{side} {missing_bytes / MIB_BYTES:.1f} MiB uncounted",
        limit=f"{ratio:g} times and {least_bytes / MIB_BYTES:.1f} MiB",
        number=float(missing_bytes),
        sentence=sentence if is_bad else "",
        read_at_seconds=read_at_seconds,
        cause=side if is_bad else "",
    )


CHECKS = (
    Check(
        id="network.bypass",
        title="Traffic passes iptables",
        family="node",
        signals=("net.links", "net.marks"),
        source="byte counters of the uplinks, against those of our rules over the same time",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(
                name="ratio", unit="times", default=2.0,
                meaning="More uplink bytes than this many times the counted ones are bad, if "
                "uncounted_bytes is broken too.",
            ),
            Limit(
                name="uncounted_bytes", unit="bytes", default=64 * MIB_BYTES,
                meaning="More uncounted bytes in one stretch are bad, if ratio is broken too.",
            ),
        ),
        hold=HoldRule(bad_polls=3, of_polls=5),
    ),
)
