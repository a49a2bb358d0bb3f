"""The taints this node should carry: derived from raised faults, never from readings."""

from __future__ import annotations

from collections.abc import Mapping

from nodeagent.decide import holds, silences
from nodeagent.decide.check import Check
from nodeagent.memory import Hold, Memory
from nodeagent.model import HeldTaint, Taint

EFFECT = "NoSchedule"
HARDWARE_FAMILIES = frozenset({"gpu", "driver"})


def wanted_taints(memory: Memory, checks: Mapping[str, Check], prefix: str) -> tuple[Taint, ...]:
    """One taint per kind of trouble; its value names the worst fault's check, then the oldest.

    Keys: `<prefix>/gpu-unhealthy` and `<prefix>/node-unhealthy`, effect NoSchedule. A fault that is
    silenced asks for none.
    """
    return _worst(_unsilenced(memory, checks, prefix))


def held_taints(memory: Memory, checks: Mapping[str, Check], prefix: str) -> tuple[HeldTaint, ...]:
    """The taints that are not wanted for no other reason than silences."""
    wanted = {taint.key for taint in wanted_taints(memory, checks, prefix)}
    asking = _asking(memory, checks, prefix)
    held = []
    for taint in _worst(asking):
        if taint.key not in wanted:
            keys = [key for key, (taint_key, _) in asking.items() if taint_key == taint.key]
            numbers = {one.number for key in keys for one in silences.of_key(memory.silences, key)}
            held.append(HeldTaint(taint=taint, silences=tuple(sorted(numbers))))
    return tuple(held)


def _asking(memory: Memory, checks: Mapping[str, Check], prefix: str) -> dict[str, tuple[str, Hold]]:
    """Key of each raised fault that asks for a taint -> the taint's key, and the hold."""
    found: dict[str, tuple[str, Hold]] = {}
    for key, hold in sorted(memory.holds.items()):
        check_id = key.partition("|")[0]
        if check_id not in checks or not holds.is_raised(hold) or not hold.node_class.taints:
            continue
        found[key] = (_key_of(checks[check_id], prefix), hold)
    return found


def _worst(asking: Mapping[str, tuple[str, Hold]]) -> tuple[Taint, ...]:
    worst: dict[str, tuple[str, Hold]] = {}
    for key, (taint_key, hold) in asking.items():
        if taint_key not in worst or _outranks(hold, worst[taint_key][1]):
            worst[taint_key] = (key.partition("|")[0], hold)
    return tuple(
        Taint(key=taint_key, value=check_id, effect=EFFECT)
        for taint_key, (check_id, _) in sorted(worst.items())
    )


def faults_by_key(
    memory: Memory, checks: Mapping[str, Check], prefix: str
) -> dict[str, tuple[str, ...]]:
    """Taint key -> "check|target" of every raised fault that asks for it; a silenced one does not."""
    found: dict[str, tuple[str, ...]] = {}
    for key, (taint_key, _) in _unsilenced(memory, checks, prefix).items():
        found[taint_key] = (*found.get(taint_key, ()), key)
    return found


def _unsilenced(memory: Memory, checks: Mapping[str, Check], prefix: str) -> dict[str, tuple[str, Hold]]:
    asking = _asking(memory, checks, prefix)
    return {key: hold for key, hold in asking.items() if not silences.of_key(memory.silences, key)}


def _key_of(check: Check, prefix: str) -> str:
    return f"{prefix}/{'gpu' if check.family in HARDWARE_FAMILIES else 'node'}-unhealthy"


def _outranks(hold: Hold, other: Hold) -> bool:
    if hold.node_class is not other.node_class:
        return hold.node_class.rank > other.node_class.rank
    return holds.is_later(other.since, hold.since)
