"""The nouns that every stage shares: frozen, typed, JSON-able by msgspec, free of any I/O.

Times: `Instant` carries the monotonic clock of one boot together with the wall clock, because
wall clocks step and monotonic clocks end with the boot. Ages are asked of `Now`, never computed
from wall clocks by hand. What is observed has its own nouns in `signals.py`.
"""

from __future__ import annotations

import enum
from typing import Any

from msgspec import Struct

from nodeagent.cluster import NodeWrites

NODE = "node"
"""The target of everything that concerns the whole node. GPUs are targeted by PCI address."""


class NodeClass(enum.StrEnum):
    """What a fault asks of the node; `rank` orders them from harmless to final."""

    IGNORE = "ignore"
    APP = "app"
    CHECK = "check"
    RESET = "reset"
    REBOOT = "reboot"
    VENDOR = "vendor"

    @property
    def rank(self) -> int:
        """0 (ignore) to 5 (vendor)."""
        return list(NodeClass).index(self)

    @property
    def taints(self) -> bool:
        """True for the classes that ask for a taint: reset, reboot, vendor."""
        return self.rank >= NodeClass.RESET.rank


class State(enum.StrEnum):
    """What a check says of one target, as shown to people."""

    OK = "ok"
    PENDING = "pending"
    """Bad, but not often enough yet (hold n of m)."""
    WARNING = "warning"
    """Raised, class app or check."""
    CRITICAL = "critical"
    """Raised, class reset, reboot or vendor."""
    UNKNOWN = "unknown"
    """Not read; neither good nor bad."""
    NOT_APPLICABLE = "not_applicable"
    MUTED = "muted"
    """Not judged, because a check that it depends on is raised."""


# --------------------------------------------------------------------------- time


class Instant(Struct, frozen=True, kw_only=True):
    """A point in time that survives clock steps inside a boot and reboots outside it."""

    boot_id: str
    monotonic_seconds: float
    """CLOCK_MONOTONIC, seconds since that boot."""
    wall_seconds: float
    """CLOCK_REALTIME, seconds since the epoch; display, and windows longer than a boot."""


class Now(Struct, frozen=True, kw_only=True):
    """The moment a snapshot was frozen."""

    at: Instant
    clock_synchronized: bool = True
    """False while the kernel says the wall clock is not disciplined, or that could not be read."""

    def age_seconds(self, then: Instant) -> float:
        """Seconds since `then`, never negative.

        Inside a boot by the monotonic clock. Over a reboot by the wall clock, and never more than
        this boot's uptime while the wall clock is unsynchronised, so that no window ends early.
        """
        if then.boot_id == self.at.boot_id:
            return max(0.0, self.at.monotonic_seconds - then.monotonic_seconds)
        uptime_seconds = self.at.monotonic_seconds
        if not self.clock_synchronized:
            return uptime_seconds
        return max(uptime_seconds, self.at.wall_seconds - then.wall_seconds)


# --------------------------------------------------------------------------- judgement


class Finding(Struct, frozen=True, kw_only=True):
    """What one check says of one target from one snapshot, before holds."""

    target: str
    state: State
    """ok, warning (bad), unknown or not_applicable; the class decides warning or critical."""
    value: str = ""
    """Measured, with unit: "2 errors"."""
    limit: str = ""
    """Limit with unit: "0 errors"."""
    sentence: str = ""
    """One readable sentence; for unknown the reason."""
    number: float | None = None
    """The measured number for the metric, in the unit of the check's first limit."""
    node_class: NodeClass | None = None
    """Overrides the check's class (an Xid carries its own)."""
    read_at_seconds: float = 0.0
    cause: str = ""
    """Named cause for incidents and metrics: "xid 79", "mismatch"."""
    immediate: bool = False
    """An event that needs no hold and no polls: it happened."""


class Transition(Struct, frozen=True, kw_only=True):
    """One line of `nodeagent history`."""

    at: Instant
    check: str
    target: str
    previous: State
    state: State
    sentence: str
    event: str = ""
    """silenced | unsilenced: what happened where the state stayed as it was."""


class Incident(Struct, frozen=True, kw_only=True):
    """Faults that share a cause: one message, one wanted action."""

    id: str
    target: str
    root: str
    """`check_id` or `xid 79`: the member that explains the others."""
    opened: Instant
    members: tuple[str, ...]


class Taint(Struct, frozen=True, kw_only=True):
    """A taint on the own node; identity is key and effect."""

    key: str
    value: str
    effect: str


class HeldTaint(Struct, frozen=True, kw_only=True):
    """A taint that the faults ask for, and silences hold back."""

    taint: Taint
    silences: tuple[int, ...]
    """Numbers of the silences that cover the faults behind it."""


class CheckRow(Struct, frozen=True, kw_only=True):
    """One check on one target as the surface shows it."""

    id: str
    target: str
    state: State
    value: str
    limit: str
    sentence: str
    node_class: NodeClass
    held: str
    """"2/3" while pending or clearing, else ""."""
    since: Instant | None
    """When this state began."""
    read_at_seconds: float | None
    """CLOCK_MONOTONIC of the newest reading used, None when never read."""
    source: str
    cause: str = ""
    stale_state: State | None = None
    """For unknown: the last state that was known (a raised fault stays in force)."""
    number: float | None = None
    silence: int | None = None
    """Number of the silence that covers it; of several the one that ends last."""


class Notice(Struct, frozen=True, kw_only=True):
    """Something worth one journal line: event name from report/events.py and its fields."""

    event: str
    fields: dict[str, Any] = {}


class Op(Struct, frozen=True, kw_only=True):
    """One attempt against one outside world, with a deadline in seconds."""

    kind: str
    """nvml.release | nvml.resume, those of the kernel executor, node.*, event.*"""
    target: str
    deadline_seconds: float
    arguments: dict[str, Any] = {}


class Plan(Struct, frozen=True, kw_only=True):
    """Ops for one executor, in order; a newer plan replaces the rest of an older one."""

    executor: str
    ops: tuple[Op, ...]


class Verdict(Struct, frozen=True, kw_only=True):
    """The node in one word."""

    state: State
    """ok, warning, critical or unknown"""
    since: Instant
    """When the node left ok (stable while any fault stands), or came back to it."""
    node_class: NodeClass
    """Highest class among raised findings; ignore when none."""


class Decision(Struct, frozen=True, kw_only=True):
    """What decide concluded in one cycle; the surface is derived from it."""

    verdict: Verdict
    rows: tuple[CheckRow, ...]
    incidents: tuple[Incident, ...]
    wanted_taints: tuple[Taint, ...]
    """What the node should carry: no fault that is silenced asks for any."""
    held_taints: tuple[HeldTaint, ...] = ()
    """What it would carry without silences, besides those."""
    notices: tuple[Notice, ...] = ()
    next_due_seconds: float | None = None
    """CLOCK_MONOTONIC of the earliest due time in Memory, None when nothing waits."""
    released: bool = False
    """NVML is, or is about to be, released."""
    node_writes: NodeWrites = NodeWrites()
    """What is written to the API server, or why not."""
