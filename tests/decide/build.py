"""Builders for tables of cases: a snapshot from a few values, a case as one line.

Times are chosen so that nothing is special: an hour after boot, read one second before the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeagent.decide.check import Check, CheckInput
from nodeagent.memory import Memory
from nodeagent.model import NODE, Instant, NodeClass, Now, State
from nodeagent.signals import Event, Reading, SignalKey, Snapshot

BOOT = "boot-1"
GPU = "0000:4e:00.0"
UPTIME_SECONDS = 3600.0
WALL_SECONDS = 1_800_000_000.0


def now(
    monotonic_seconds: float = UPTIME_SECONDS,
    *,
    boot_id: str = BOOT,
    wall_seconds: float | None = None,
    clock_synchronized: bool = True,
) -> Now:
    """A moment; the wall clock follows the monotonic one unless told otherwise."""
    wall = WALL_SECONDS + monotonic_seconds if wall_seconds is None else wall_seconds
    at = Instant(boot_id=boot_id, monotonic_seconds=monotonic_seconds, wall_seconds=wall)
    return Now(at=at, clock_synchronized=clock_synchronized)


def key(name: str) -> SignalKey:
    """`gpu.ecc` is the node's, `gpu.ecc@0000:4e:00.0` that target's."""
    signal, _, target = name.partition("@")
    return SignalKey(signal, target or NODE)


def snapshot(
    values: Mapping[str, Any],
    *,
    at: Now | None = None,
    read_at_seconds: float | None = None,
    events: tuple[Event, ...] = (),
) -> Snapshot:
    """A snapshot of values by `signal@target`."""
    moment = at or now()
    read_at = moment.at.monotonic_seconds - 1.0 if read_at_seconds is None else read_at_seconds
    readings = {
        key(name): Reading(value=value, read_at_seconds=read_at, sequence=1) for name, value in values.items()
    }
    return Snapshot(now=moment, node_name="gpu-a17", readings=readings, events=events)


@dataclass(frozen=True, kw_only=True)
class Want:
    """What a case expects of one target; empty fields are not compared."""

    state: State
    target: str = NODE
    node_class: NodeClass | None = None
    value: str | None = None
    limit: str | None = None
    says: str = ""
    cause: str | None = None
    immediate: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of a check's table."""

    name: str
    readings: Mapping[str, Any]
    want: tuple[Want, ...]
    limits: Mapping[str, Any] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    gpu_wanted: bool = True
    gpu_expected_count: int = 0

    def given(self, check: Check) -> CheckInput:
        """The input of `run_check` with the check's default limits under the case's own."""
        limits = {limit.name: limit.default for limit in check.limits} | dict(self.limits)
        return CheckInput(
            snapshot=snapshot(self.readings),
            memory=self.memory,
            limits=limits,
            gpu_wanted=self.gpu_wanted,
            gpu_expected_count=self.gpu_expected_count,
        )


OK, BAD, UNKNOWN = State.OK, State.WARNING, State.UNKNOWN
NOT_APPLICABLE = State.NOT_APPLICABLE


def ok(target: str = NODE, **more: Any) -> tuple[Want, ...]:
    """One good finding."""
    return (Want(state=OK, target=target, **more),)


def bad(target: str = NODE, **more: Any) -> tuple[Want, ...]:
    """One bad finding."""
    return (Want(state=BAD, target=target, **more),)


def unknown(target: str = NODE, **more: Any) -> tuple[Want, ...]:
    """One finding that could not be judged."""
    return (Want(state=UNKNOWN, target=target, **more),)


def not_applicable(target: str = NODE, **more: Any) -> tuple[Want, ...]:
    """One finding that does not apply."""
    return (Want(state=NOT_APPLICABLE, target=target, **more),)
