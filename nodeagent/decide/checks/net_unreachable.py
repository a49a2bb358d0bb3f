"""`net.unreachable`: does the way out of the node answer?

By the targets that the operator named, else by what the kernel knows of its default gateways. An entry that
nobody has used lately says nothing of now: a stale one is as it should be, an old failure is old.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable
from nodeagent.model import Finding, NodeClass
from nodeagent.net_signals import Gateway
from nodeagent.signals import Reading

SILENT_STATES = ("failed", "incomplete")


def judge(given: CheckInput) -> Iterator[Finding]:
    """A target that does not accept, or a gateway that is asked and does not answer, is bad."""
    deadline = f"accepts in {given.limits['deadline_seconds']:g} s"
    for target, answer, reading in given.values("net.target"):
        shown = {"limit": deadline, "value": answer.outcome, "cause": answer.outcome}
        if answer.outcome == "accepted":
            milliseconds = 1000 * (answer.answered_seconds or 0.0)
            yield good(target, reading, limit=deadline, value=f"accepts in {milliseconds:.1f} ms")
        elif answer.outcome == "refused":
            sentence = f"{target} answers, but nothing listens there: {answer.detail}"
            yield bad(target, reading, sentence, **shown)
        elif answer.outcome == "unnamed":
            yield bad(target, reading, f"the name in {target} does not resolve: {answer.detail}", **shown)
        else:
            yield bad(target, reading, f"{target} does not answer: {answer.detail}", **shown)
    for target, gateway, reading in given.values("net.gateway"):
        yield _judge_gateway(given, target, gateway, reading)


def _judge_gateway(given: CheckInput, target: str, gateway: Gateway, reading: Reading) -> Finding:
    shown = {"value": gateway.state, "limit": "answers"}
    address, _, device = target.partition("%")
    used_seconds = gateway.used_seconds
    if gateway.state == "none":
        return not_applicable(target, "nothing uses this gateway now")
    if gateway.state not in SILENT_STATES:
        return good(target, reading, **shown)
    if used_seconds is not None and used_seconds > given.limits["asked_seconds"]:
        return not_applicable(target, f"nothing has used this gateway for {used_seconds / 60:.0f} min")
    sentence = f"the gateway {address} on {device} does not answer ({gateway.state.upper()})"
    return bad(target, reading, sentence, cause="gateway", **shown)


CHECKS = (
    Check(
        id="net.unreachable",
        title="Way out answers",
        family="node",
        signals=("net.target", "net.gateway"),
        source="a TCP connection to each configured target, else the kernel's entries of the gateways",
        node_class=NodeClass.CHECK,
        judge=judge,
        limits=(
            Limit(name="deadline_seconds", unit="s", default=2.0,
                  meaning="A configured target must accept a connection in that time."),
            Limit(name="targets", unit="HOST:PORT", default=(),
                  meaning="These must accept a TCP connection, which is closed at once; empty: the default "
                          "gateways must answer, and nothing is sent to them. The systemd unit needs an "
                          "IPAddressAllow= for each."),
            Limit(name="asked_seconds", unit="s", default=120.0,
                  meaning="A gateway that nothing was sent to for so long is not judged."),
        ),
        hold=HoldRule(bad_polls=4, of_polls=4),
        common_cause="links",
        boot_grace_seconds=300.0,
    ),
)
