"""The taints this node should carry: derived from raised faults, never from readings."""

from __future__ import annotations

from collections.abc import Mapping

from nodeagent.decide import holds
from nodeagent.decide.check import Check
from nodeagent.memory import Hold, Memory
from nodeagent.model import Taint

EFFECT = "NoSchedule"
HARDWARE_FAMILIES = frozenset({"gpu", "driver"})


def wanted_taints(memory: Memory, checks: Mapping[str, Check], prefix: str) -> tuple[Taint, ...]:
    """One taint per kind of trouble; its value names the worst fault's check, then the oldest.

    Keys: `<prefix>/gpu-unhealthy` and `<prefix>/node-unhealthy`, effect NoSchedule.
    """
    worst: dict[str, tuple[str, Hold]] = {}
    for key, hold in sorted(memory.holds.items()):
        check_id = key.partition("|")[0]
        if check_id not in checks or not holds.is_raised(hold) or not hold.node_class.taints:
            continue
        taint_key = _key_of(checks[check_id], prefix)
        if taint_key not in worst or _outranks(hold, worst[taint_key][1]):
            worst[taint_key] = (check_id, hold)
    return tuple(
        Taint(key=taint_key, value=check_id, effect=EFFECT)
        for taint_key, (check_id, _) in sorted(worst.items())
    )


def faults_by_key(
    memory: Memory, checks: Mapping[str, Check], prefix: str
) -> dict[str, tuple[str, ...]]:
    """Taint key -> "check|target" of every raised fault that asks for it."""
    found: dict[str, tuple[str, ...]] = {}
    for key, hold in sorted(memory.holds.items()):
        check = checks.get(key.partition("|")[0])
        if check is None or not holds.is_raised(hold) or not hold.node_class.taints:
            continue
        taint_key = _key_of(check, prefix)
        found[taint_key] = (*found.get(taint_key, ()), key)
    return found


def _key_of(check: Check, prefix: str) -> str:
    return f"{prefix}/{'gpu' if check.family in HARDWARE_FAMILIES else 'node'}-unhealthy"


def _outranks(hold: Hold, other: Hold) -> bool:
    if hold.node_class is not other.node_class:
        return hold.node_class.rank > other.node_class.rank
    return holds.is_later(other.since, hold.since)
