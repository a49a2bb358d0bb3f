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
