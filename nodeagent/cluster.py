"""The nouns of the cluster's API: the own Node object, the state of our connection, and what it has cost.

Pure, like all nouns.
"""

from __future__ import annotations

from msgspec import Struct

from nodeagent.errors import ErrorKind


class NodeTaint(Struct, frozen=True, kw_only=True):
    """One taint of the Node as the server gave it; identity is key and effect."""

    key: str
    effect: str
    value: str = ""


class NodeCondition(Struct, frozen=True, kw_only=True):
    """One condition of the Node."""

    type: str
    status: str
    """True, False or Unknown; the server takes any text."""
    reason: str = ""
    message: str = ""
    """Of our own conditions only."""


class NodeObject(Struct, frozen=True, kw_only=True):
    """Signal `cluster.node` (node): the own Node object."""

    uid: str
    name: str
    resource_version: str
    taints: tuple[NodeTaint, ...] = ()
    taints_json: str = "null"
    """`spec.taints` as the server wrote it, `null` when absent: what a patch has to test."""
    unschedulable: bool = False
    conditions: tuple[NodeCondition, ...] = ()
    has_annotations: bool = False
    """False when the map is absent: then a patch has to add the map."""
    annotations: dict[str, str] = {}
    """Only those under our own prefix."""
    addresses: tuple[str, ...] = ()
    """IP addresses of status.addresses."""
    pod_cidrs: tuple[str, ...] = ()
    taints_manager: str = ""
    """Who changed `spec.taints` last by metadata.managedFields; "" when not said."""


class VerbBudget(Struct, frozen=True, kw_only=True):
    """The token bucket of one verb."""

    verb: str
    """get, watch, patch, create or delete"""
    spent_count: int
    """Requests sent since the daemon started."""
    withheld_count: int
    """Requests that were not sent, because the bucket was empty."""
    left_count: int
    """Requests that could be sent at once now."""
    capacity_count: int
    refill_seconds: float
    """Seconds for one more request."""


class Throttle(Struct, frozen=True, kw_only=True):
    """Answers 429 by one priority level of the API server."""

    priority_level: str
    """The level's uid, as the answer's header says it; "" when it does not."""
    throttled_count: int


class ApiBudget(Struct, frozen=True, kw_only=True):
    """What the agent's requests have cost, and what is left."""

    verbs: tuple[VerbBudget, ...]
    throttles: tuple[Throttle, ...] = ()
    priority_level: str = ""
    """uid of the level that the newest answer was served at."""
    flow_schema: str = ""


class ApiStatus(Struct, frozen=True, kw_only=True):
    """Signal `cluster.api` (node): our connection to the API server."""

    server: str
    """URL."""
    budget: ApiBudget
    identity: str = ""
    """node | account: as whom pods and Node are read; "" before the first answer."""
    error_kind: ErrorKind | None = None
    """How the newest request or watch failed, None when it did not."""
    error: str = ""
    server_version: str = ""


NO_SERVER = "there is no API server to write to"


class NodeWrites(Struct, frozen=True, kw_only=True):
    """What one cycle says of writes to the API server."""

    held: str = NO_SERVER
    """Why nothing is written now; "" when writes are free."""
    pending: tuple[str, ...] = ()
    """What is to be written, one op a line; while held what would be."""
    waiting: str = ""
    """Why what is pending is not tried just now: what failed, and how long it waits."""
