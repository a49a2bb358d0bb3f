"""What the agent remembers of what it writes to the API server: intents before each write, and what became
of them.

Nouns only. `decide` alone writes it, with bounds; no field changes in a cycle in which nothing happened.
"""

from __future__ import annotations

from msgspec import Struct

from nodeagent.model import Instant


class TaintClaim(Struct, frozen=True, kw_only=True):
    """A taint that is ours, or is about to be; by "key:effect"."""

    key: str
    effect: str
    value: str
    since: str
    """RFC 3339, as it stands in the ledger."""
    begun: Instant | None = None
    """When the fault was first to be written."""
    wait_seconds: float = 0.0
    """How long after `begun` the first write has to wait: the fault may strike many nodes at once."""
    written: bool = False
    """The Node has shown both the taint and its entry in the ledger."""
    removing: bool = False
    """It is to go, by our own will: when it has gone nobody else took it."""
    adopted: Instant | None = None
    """Found in the ledger while nothing was remembered of it: what it stands for is not known."""


class TaintLoss(Struct, frozen=True, kw_only=True):
    """A taint of ours is gone and we did not take it."""

    since: Instant
    wait_seconds: float
    """How long after `since` the Node has to be read again before it is put back."""


class TaintOverride(Struct, frozen=True, kw_only=True):
    """Somebody does not want a taint of ours; obeyed while the faults stand for which it was set."""

    by: str
    """Who removed it, as metadata.managedFields names it."""
    contested: bool
    """True: not a person's tool; it was put back once and is gone again."""
    since: Instant
    faults: tuple[str, ...] | None
    """"check|target" of the faults that stood then: a new one ends it. None: those of the next cycle."""


class ConditionClaim(Struct, frozen=True, kw_only=True):
    """A condition of ours as it should stand; by type."""

    status: str
    reason: str
    message: str
    since: Instant
    """When `status` became what it is."""
    asked: Instant | None = None
    """When it was last sent, by the plan; a foreign change of it is not answered at once."""


class EventRecord(Struct, frozen=True, kw_only=True):
    """One event on the own Node, with how often it happened."""

    name: str
    """Name of the object; the same event always has the same, so that it is created once."""
    type: str
    """Normal | Warning"""
    reason: str
    note: str
    first: Instant
    last: Instant
    count: int = 1
    told_count: int = 0
    """Of `count`, what the API server knows."""


class Retry(Struct, frozen=True, kw_only=True):
    """One kind of op failed: when it may be tried again."""

    failures_count: int
    since: Instant
    wait_seconds: float
    refused: str = ""
    """Digest of what the server called invalid: the same is never sent again."""
    reason: str = ""


class Pause(Struct, frozen=True, kw_only=True):
    """An operator stopped all writes to the API server."""

    since: Instant
    for_seconds: float
    reason: str
    user_id: int | None = None


class NodeRelease(Struct, frozen=True, kw_only=True):
    """An operator had everything of ours taken off the Node; nothing is put there until told."""

    since: Instant
    user_id: int | None = None


class ClusterMemory(Struct, frozen=True, kw_only=True):
    """The whole of it."""

    uid: str = ""
    """Of the Node object that all this is about; "" before one was read."""
    claims: dict[str, TaintClaim] = {}
    losses: dict[str, TaintLoss] = {}
    put_backs: dict[str, Instant] = {}
    """When a lost taint was last put back."""
    overrides: dict[str, TaintOverride] = {}
    conditions: dict[str, ConditionClaim] = {}
    events: tuple[EventRecord, ...] = ()
    """Oldest first, bounded."""
    retries: dict[str, Retry] = {}
    """By kind of op."""
    asked: dict[str, str] = {}
    """Kind of op -> digest of what was planned last."""
    reread: bool = False
    """The server said that what was known of the Node is old: read it before the next write."""
    pause: Pause | None = None
    release: NodeRelease | None = None
