"""Hears that links, addresses or routes changed; says no more than that."""

from __future__ import annotations

import socket
from collections.abc import Callable

from nodeagent.netlink_listener import NetlinkListener
from nodeagent.rtnetlink import GROUPS


class LinkEvents(NetlinkListener):
    """Calls `on_event` in the running loop, once for all events that wait; lost ones count as one."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        super().__init__(socket.NETLINK_ROUTE, "rtnetlink", on_event, groups=GROUPS)
