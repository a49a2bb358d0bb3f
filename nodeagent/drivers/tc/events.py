"""Hears that a qdisc, class or filter changed, or a device; says no more than that."""

from __future__ import annotations

import socket
from collections.abc import Callable

from nodeagent.drivers.tc.kernel import TC_GROUP
from nodeagent.netlink_listener import NetlinkListener

_LINK_GROUP = 0x1


class TcEvents(NetlinkListener):
    """Calls `on_event` in the running loop, once for all events that wait; lost ones count as one.

    The agent's own writes are events too.
    """

    def __init__(self, on_event: Callable[[], None]) -> None:
        super().__init__(socket.NETLINK_ROUTE, "rtnetlink", on_event, groups=TC_GROUP | _LINK_GROUP)
