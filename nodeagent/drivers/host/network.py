"""One read-all of the node's own network: devices, RDMA ports, tables, gateways or targets.

Each call is named before it is made, and one that did not return the last time is left out. Nothing is
judged here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nodeagent import wire
from nodeagent.child import Channel
from nodeagent.drivers.host import devices, infiniband, netlink, reach, tables
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE

ROUTES_CALL, DEVICES_CALL, GATEWAY_CALL = "list the default routes", "read network device", "get neighbour"
GATEWAY_LIMIT = 32
_T = TypeVar("_T")


class NetworkReader:
    """Lives as long as the worker."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._ports = infiniband.PortReader(channel)
        self._targets = reach.TargetReader()
        self._skip: tuple[str, ...] = ()

    def read(self, arguments: wire.HostArguments) -> None:
        """Send every signal of the node's own network."""
        self._skip = arguments.skip
        hops = self._routes()
        ways = () if isinstance(hops, DriverError) else hops
        uplinks = frozenset(devices.name_of(hop.device) for hop in ways)
        self._one("net.adapters", NODE, "list network adapters", lambda: devices.adapters(arguments))
        self._one("conntrack", NODE, "read conntrack", lambda: tables.conntrack(arguments))
        for family in netlink.FAMILIES:
            self._one("neighbour.table", family, "read the neighbour table", _table(arguments, family))
        self._devices(arguments, uplinks)
        self._ports.read(arguments)
        if arguments.tcp_targets:
            self._reach(arguments)
        else:
            self._gateways(hops)

    def _routes(self) -> list[netlink.Hop] | DriverError:
        try:
            return self._called(ROUTES_CALL, "", netlink.default_hops)
        except DriverError as error:
            return error

    def _devices(self, arguments: wire.HostArguments, uplinks: frozenset[str]) -> None:
        def may_read(name: str) -> bool:
            if f"{DEVICES_CALL} {name}" in arguments.skip:
                return False
            self._channel.mark(DEVICES_CALL, name)
            return True

        try:
            found = devices.net_devices(arguments, uplinks, may_read)
            self._channel.send(wire.value("link.devices", NODE, found))
        except DriverError as error:
            self._channel.send(wire.missing("link.devices", NODE, error))

    def _gateways(self, hops: list[netlink.Hop] | DriverError) -> None:
        try:
            if isinstance(hops, DriverError):
                raise hops
            gateways = [hop for hop in hops if hop.address][:GATEWAY_LIMIT]
            if not gateways:
                detail = "no default route with a gateway, and no targets configured"
                raise DriverError(ErrorKind.ABSENT, NODE, ROUTES_CALL, detail)
        except DriverError as error:
            self._channel.send(wire.missing("net.gateway", NODE, error))
            return
        for hop in gateways:
            target = f"{hop.address}%{devices.name_of(hop.device)}"
            self._one("net.gateway", target, GATEWAY_CALL, _neighbour(hop))

    def _reach(self, arguments: wire.HostArguments) -> None:
        self._channel.mark("connect to the configured targets")
        answers = self._targets.read(arguments.tcp_targets, arguments.tcp_deadline_seconds)
        for target, answer in answers.items():
            if isinstance(answer, DriverError):
                self._channel.send(wire.missing("net.target", target, answer))
            else:
                self._channel.send(wire.value("net.target", target, answer))

    def _one(self, signal: str, target: str, call: str, read: Callable[[], Any]) -> None:
        try:
            value = self._called(call, "" if target == NODE else target, read)
            self._channel.send(wire.value(signal, target, value))
        except DriverError as error:
            self._channel.send(wire.missing(signal, target, error))

    def _called(self, call: str, target: str, read: Callable[[], _T]) -> _T:
        """What `read` gives, named before. Raises DriverError: timeout when it is left out."""
        if f"{call} {target}".rstrip() in self._skip:
            detail = "the last attempt did not return; it is tried again later"
            raise DriverError(ErrorKind.TIMEOUT, target or NODE, call, detail)
        self._channel.mark(call, target)
        return read()


def _table(arguments: wire.HostArguments, family: str) -> Callable[[], Any]:
    return lambda: tables.neighbours(arguments, family)


def _neighbour(hop: netlink.Hop) -> Callable[[], Any]:
    return lambda: netlink.gateway(hop)
