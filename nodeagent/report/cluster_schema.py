"""The JSON of the connection to the API server, a part of the status report; v1 renames nothing."""

from __future__ import annotations

from msgspec import Struct


class VerbStatus(Struct, frozen=True, kw_only=True):
    """Requests of one verb."""

    verb: str
    """get | watch | patch | create | delete"""
    spent: int
    """Sent since the daemon started."""
    withheld: int
    """Not sent, because the budget was spent."""
    left: int
    """Could be sent at once now."""
    capacity: int
    refill_seconds: float
    """Seconds for one more."""


class ThrottleStatus(Struct, frozen=True, kw_only=True):
    """Answers 429 by one priority level of the API server."""

    priority_level: str
    """Its uid; "" when the answer did not say."""
    throttled: int


class OwnTaint(Struct, frozen=True, kw_only=True):
    """A taint of ours on the Node."""

    key: str
    value: str
    effect: str
    since: str


class WithheldTaint(Struct, frozen=True, kw_only=True):
    """A taint that is not set again while the faults stand for which it was set."""

    taint: str
    """key:effect"""
    by: str
    contested: bool
    """True: others kept removing it."""


class ApiReport(Struct, frozen=True, kw_only=True):
    """What stands between the agent and the API server."""

    state: str
    """off: not wanted, or no credentials. connecting: nothing heard yet. connected. failing."""
    server: str
    identity: str
    """node | account: as whom the Node is watched; "" before the first answer."""
    error: str
    """The newest failure, "" when the newest try was none."""
    node_uid: str | None
    """None: the Node object was not read."""
    node_age_seconds: float | None
    """Since the Node as known was last confirmed."""
    budget: list[VerbStatus]
    throttles: list[ThrottleStatus]
    priority_level: str
    """uid of the level that the newest answer was served at."""
    flow_schema: str
    held: str = ""
    """Why nothing is written now; "" when writes are free."""
    pending: list[str] = []
    """What is to be written, one op a line; while held what would be."""
    waiting: str = ""
    """Why what is pending is not tried just now."""
    taints_set: list[OwnTaint] = []
    """Taints of ours that the Node was seen to carry."""
    withheld: list[WithheldTaint] = []
    """Taints that the faults ask for and that somebody does not want."""
    released: bool = False
    """`nodeagent node release` was given: nothing of ours is put on the Node."""
