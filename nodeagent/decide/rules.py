"""A check's defaults with the operator's changes laid over them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from nodeagent.decide.check import Check
from nodeagent.model import NodeClass
from nodeagent.settings import Settings

HOST_POLL_SECONDS = 15.0
"""Period of the host's samplers."""
POLL_GAP_PART = 0.6
"""A poll that comes before this part of the period was asked for, by a person or by an event."""


class Rule(Struct, frozen=True, kw_only=True):
    """How one check raises and clears on this node."""

    node_class: NodeClass
    class_forced: bool
    """True when the operator chose the class: it then outranks what a finding says."""
    bad_polls: int
    of_polls: int
    good_polls: int
    minimum_seconds: float
    proof: str
    boot_grace_seconds: float
    poll_gap_seconds: float = 0.0
    """Least time between two polls that count: reading more often must not raise or clear sooner."""


def effective_rule(check: Check, settings: Settings) -> Rule:
    """The hold, clear and class rule of one check."""
    changed = settings.check(check.id)
    hold = check.hold
    bad_polls = hold.bad_polls if changed.bad_polls is None else changed.bad_polls
    of_polls = hold.of_polls if changed.of_polls is None else changed.of_polls
    return Rule(
        node_class=changed.node_class or check.node_class,
        class_forced=changed.node_class is not None,
        bad_polls=bad_polls,
        of_polls=max(bad_polls, of_polls),
        good_polls=hold.good_polls if changed.good_polls is None else changed.good_polls,
        minimum_seconds=(
            hold.minimum_seconds if changed.minimum_seconds is None else changed.minimum_seconds
        ),
        proof=hold.proof,
        boot_grace_seconds=check.boot_grace_seconds,
        poll_gap_seconds=POLL_GAP_PART * _poll_seconds(check, settings),
    )


def _poll_seconds(check: Check, settings: Settings) -> float:
    """The period at which this check's signals are read when nobody asks for more.

    0 for the agent's own parts: nobody can ask for a poll of these.
    """
    if check.family == "agent":
        return 0.0
    by_nvml = check.family in ("gpu", "driver")
    return min(settings.gpu.poll_seconds, HOST_POLL_SECONDS) if by_nvml else HOST_POLL_SECONDS


def effective_limits(check: Check, settings: Settings) -> dict[str, Any]:
    """Limit name -> value in force."""
    changed = settings.check(check.id).limits
    return {limit.name: changed.get(limit.name, limit.default) for limit in check.limits}
