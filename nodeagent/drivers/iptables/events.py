"""Hears that somebody changed a mangle table of nftables; says no more than that.

Legacy tables and ipsets tell nobody of a change: only comparing finds those.
"""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.netlink_listener import NetlinkListener

_NETFILTER, _NFTABLES_GROUP = 12, 7
_TABLE = b"mangle\0"
"""Name of the table, in every message on one of its rules or chains, or on itself."""


class RuleEvents(NetlinkListener):
    """Calls `on_event` in the running loop, once for all events that wait; lost ones count as one."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        super().__init__(
            _NETFILTER, "nftables", on_event, membership=_NFTABLES_GROUP,
            concerns=lambda message: _TABLE in message,
        )
