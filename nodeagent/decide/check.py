"""The shape of a check, and the one wrapper that runs every check.

A check is a record plus a function that yields findings from good values only. The wrapper deals
once with everything that goes wrong elsewhere: a signal that was not read becomes `unknown`, a
feature the device lacks becomes `not_applicable`, a raised parent mutes its children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from nodeagent.errors import ErrorKind
from nodeagent.memory import Memory
from nodeagent.model import (
    Finding,
    NodeClass,
    State,
)
from nodeagent.signals import Reading, SignalKey, Snapshot, Unread


class Limit(Struct, frozen=True, kw_only=True):
    """A number the operator can set, as `[checks."ID"] name = value`."""

    name: str
    """With its unit: `available_percent`, `seconds`."""
    unit: str
    default: Any
    """int, float, bool, str or tuple of str; the configured value must have this type."""
    meaning: str


class HoldRule(Struct, frozen=True, kw_only=True):
    """When a bad poll becomes a raised fault, and when a raised fault is let go."""

    bad_polls: int = 1
    of_polls: int = 1
    good_polls: int = 3
    """Good polls in a row before it may clear."""
    minimum_seconds: float = 300.0
    """A raised fault stands at least this long after its last bad poll."""
    proof: str = "reads"
    """reads: good polls suffice. reset: also a seen reset or a new boot. By class when raised."""
    raised_words: str = ""
    """When it is raised, where "n of m polls" would not tell."""
    cleared_words: str = ""
    """When it clears, where the good polls would not tell."""


class Check(Struct, frozen=True, kw_only=True):
    """Everything that is to be known about one check; the surface derives from it."""

    id: str
    title: str
    family: str
    """gpu, driver, node or agent"""
    signals: tuple[str, ...]
    source: str
    """Where the value comes from, in the operator's words."""
    node_class: NodeClass
    judge: Callable[[CheckInput], Iterator[Finding]]
    limits: tuple[Limit, ...] = ()
    hold: HoldRule = HoldRule()
    depends_on: tuple[str, ...] = ()
    """Checks whose raised state mutes this one on the same target or node-wide."""
    common_cause: str = ""
    """fabric, links, driver, clock, disk, runtime, maintenance: faults that strike many nodes at once."""
    boot_grace_seconds: float = 0.0
    """Bad polls do not count while the node is up for less than this."""


class CheckInput(Struct, frozen=True, kw_only=True):
    """What a judge function may look at."""

    snapshot: Snapshot
    memory: Memory
    limits: Mapping[str, Any]
    """Limit name -> effective value."""
    gpu_wanted: bool
    """False when GPU checks do not apply here (no NVIDIA device, or gpu.enabled = "false")."""
    gpu_expected_count: int
    """[gpu] expected_count; 0 = what was seen first after boot."""

    def values(self, signal: str) -> Iterator[tuple[str, Any, Reading]]:
        """(target, value, reading) of every good reading of `signal`, in target order."""
        for key in sorted(k for k in self.snapshot.readings if k.signal == signal):
            reading = self.snapshot.readings[key]
            if not isinstance(reading.value, Unread):
                yield key.target, reading.value, reading

    def value(self, signal: str, target: str) -> Any | Unread | None:
        """Value of one signal, `Unread`, or None when nothing was ever put on the board."""
        return self.snapshot.value(signal, target)


def bad(target: str, reading: Reading, sentence: str, **more: Any) -> Finding:
    """A finding over its limit; the wrapper turns it into pending, warning or critical."""
    return Finding(
        target=target, state=State.WARNING, sentence=sentence,
        read_at_seconds=reading.read_at_seconds, **more,
    )


def good(target: str, reading: Reading, **more: Any) -> Finding:
    """A finding within its limit."""
    return Finding(
        target=target, state=State.OK, read_at_seconds=reading.read_at_seconds, **more
    )


def unknown(target: str, reading: Reading, sentence: str, **more: Any) -> Finding:
    """A finding that cannot be judged although its own signal was read."""
    return Finding(
        target=target, state=State.UNKNOWN, sentence=sentence,
        read_at_seconds=reading.read_at_seconds, **more,
    )


def not_applicable(target: str, sentence: str) -> Finding:
    """A finding that says why there is nothing to judge; shown with -v and in JSON."""
    return Finding(target=target, state=State.NOT_APPLICABLE, sentence=sentence)


def run_check(check: Check, given: CheckInput) -> list[Finding]:
    """Findings of one check: judged ones, plus one for each target whose signals were not read."""
    if check.family in ("gpu", "driver") and not given.gpu_wanted:
        return [not_applicable("node", "no NVIDIA GPU on this node")]
    judged = {finding.target: finding for finding in check.judge(given)}
    for key in sorted(k for k in given.snapshot.readings if k.signal in check.signals):
        reading = given.snapshot.readings[key]
        if isinstance(reading.value, Unread) and key.target not in judged:
            judged[key.target] = _unread(key, reading.value, reading)
    if not judged:
        waiting = f"{', '.join(check.signals)} not read yet"
        return [Finding(target="node", state=State.UNKNOWN, sentence=waiting)]
    return [judged[target] for target in sorted(judged)]


def _unread(key: SignalKey, value: Unread, reading: Reading) -> Finding:
    if value.kind is ErrorKind.ABSENT:
        return not_applicable(key.target, value.reason)
    return Finding(
        target=key.target, state=State.UNKNOWN, sentence=f"not read: {value.reason}",
        read_at_seconds=reading.read_at_seconds,
    )
