"""The host worker: one read-all of PCI bus, driver, clock, kubelet, network and disks per request.

Each read is its own signal. What can hang comes last, so that a dead disk costs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from nodeagent import wire
from nodeagent.child import Channel, ReadAll, serve
from nodeagent.drivers.host import fabric, system
from nodeagent.drivers.host.disks import DiskReader
from nodeagent.drivers.host.network import NetworkReader
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.signals import Unread


def _reader(channel: Channel) -> ReadAll:
    network = NetworkReader(channel)

    def one(
        signal: str, call: str, read: Callable[[wire.HostArguments], Any], arguments: wire.HostArguments
    ) -> None:
        if call in arguments.skip:
            reason = "the last attempt did not return; it is tried again later"
            unread = Unread(kind=ErrorKind.TIMEOUT, reason=reason)
            channel.send(wire.Missing(signal=signal, target=NODE, unread=unread))
            return
        channel.mark(call)
        try:
            channel.send(wire.value(signal, NODE, read(arguments)))
        except DriverError as error:
            channel.send(wire.missing(signal, NODE, error))

    def read_all(request: wire.Request) -> wire.Done:
        arguments = msgspec.json.decode(request.arguments, type=wire.HostArguments)
        one("gpu.pci", "list the PCI bus", system.pci_gpus, arguments)
        one("gpu.kernel_driver", "read the driver version", system.kernel_driver, arguments)
        one("fabric.manager", "read the fabric manager's pid", fabric.manager, arguments)
        one("clock.sync", "adjtimex", system.clock_sync, arguments)
        one("kubelet.health", "kubelet healthz", system.kubelet_health, arguments)
        network.read(arguments)
        DiskReader(channel, arguments).read()
        return wire.Done(id=request.id)

    return read_all


if __name__ == "__main__":
    serve(_reader)
