"""The NVML worker: it serves read-alls until the daemon closes its input."""

from __future__ import annotations

from nodeagent.child import Channel, ReadAll, serve
from nodeagent.drivers.nvml.events import EventThreads
from nodeagent.drivers.nvml.library import Library
from nodeagent.drivers.nvml.read import NvmlReader

_threads: list[EventThreads] = []


def _reader(channel: Channel) -> ReadAll:
    threads = EventThreads(channel.send)
    _threads.append(threads)
    return NvmlReader(channel, Library(channel.mark), threads.watch).read_all


def _settle() -> None:
    for threads in _threads:
        threads.settle()


if __name__ == "__main__":
    serve(_reader, _settle)
