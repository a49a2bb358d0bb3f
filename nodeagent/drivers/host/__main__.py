"""The host worker: one read-all of bus, driver, kernel, kubelet, runtime, network and disks per request.

Each read is its own signal. What can hang comes last, so that a dead disk costs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from nodeagent import wire
from nodeagent.child import Channel, ReadAll, serve
from nodeagent.drivers.host import block, fabric, kernel, runtime, system
from nodeagent.drivers.host.disks import DiskReader
from nodeagent.drivers.host.network import NetworkReader
from nodeagent.drivers.host.processes import Processes
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.signals import Unread


def _reader(channel: Channel) -> ReadAll:
    network = NetworkReader(channel)
    processes = Processes()

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
            value = read(arguments)
        except DriverError as error:
            channel.send(wire.missing(signal, NODE, error))
            return
        for target, one_value in value.items() if isinstance(value, dict) else ((NODE, value),):
            channel.send(wire.value(signal, target, one_value))

    def read_all(request: wire.Request) -> wire.Done:
        arguments = msgspec.json.decode(request.arguments, type=wire.HostArguments)
        one("gpu.pci", "list the PCI bus", system.pci_gpus, arguments)
        one("gpu.kernel_driver", "read the driver version", system.kernel_driver, arguments)
        one("fabric.manager", "read the fabric manager's pid", fabric.manager, arguments)
        one("clock.sync", "adjtimex", system.clock_sync, arguments)
        one("kubelet.health", "kubelet healthz", system.kubelet_health, arguments)
        network.read(arguments)
        one("memory.pressure", "read the memory pressure", kernel.memory_pressure, arguments)
        one("memory.oom_kills", "read vmstat", kernel.oom_kills, arguments)
        one("kernel.hung_tasks", "read the count of hung tasks", kernel.hung_tasks, arguments)
        one("runtime.health", "greet the container runtime", runtime.runtime_health, arguments)
        one("process.gpu_holders", "scan processes", processes.read, arguments)
        one("disk.errors", "read the errors of disks", block.disk_errors, arguments)
        DiskReader(channel, arguments).read()
        return wire.Done(id=request.id)

    return read_all


if __name__ == "__main__":
    serve(_reader)
