"""Builders for Xid tests: one table, events and moments of one GPU as short lines."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from nodeagent.decide import xid, xid_clear
from nodeagent.decide.xid_line import parse_line
from nodeagent.decide.xid_table import XidTable
from nodeagent.memory import GpuMemory, Memory, XidRecord
from nodeagent.model import NODE, Instant, NodeClass, Notice, Now
from nodeagent.signals import (
    Event,
    GpuPresence,
    KernelLogStatus,
    Reading,
    RecoveryAction,
    SignalKey,
    SxidEvent,
    Unread,
    XidEvent,
)
from nodeagent.xid_data import load_xid_table
from tests.decide.build import BOOT, GPU, UPTIME_SECONDS, now

PREFIX = f"NVRM: Xid (PCI:{GPU[:-2]}): "
NO_OVERRIDES: Mapping[str, NodeClass] = {}
LOG = KernelLogStatus(sequence=1, records=1, lost_records=0, refused_records=0, reopened=0, backfilled=True)
LIMITS = {"xid": {"app_seconds": 600.0, "check_seconds": 86400.0}}


@functools.cache
def table() -> XidTable:
    """The table that ships."""
    return load_xid_table()


def line(rest: str, at_seconds: float = UPTIME_SECONDS, driver_version: str = "") -> XidEvent:
    """The event of a kernel line of the one GPU: `79, GPU has fallen off the bus.`"""
    event = parse_line(PREFIX + rest, at_seconds, table(), driver_version)
    assert isinstance(event, XidEvent)
    return event


def sxid(rest: str, at_seconds: float = UPTIME_SECONDS) -> SxidEvent:
    """The event of an NVSwitch line."""
    event = parse_line(f"nvidia-nvswitch0: SXid (PCI:0000:87:00.0): {rest}", at_seconds, table())
    assert isinstance(event, SxidEvent)
    return event


def nvml(number: int, at_seconds: float = UPTIME_SECONDS, **more: Any) -> XidEvent:
    """What NVML tells of an Xid: its number."""
    return XidEvent(source="nvml", pci_address=GPU, number=number, at_seconds=at_seconds, **more)


def fold(
    memory: Memory, *events: Event, at: Now | float = UPTIME_SECONDS,
    overrides: Mapping[str, NodeClass] = NO_OVERRIDES,
) -> Memory:
    """Memory after these events."""
    return told(memory, *events, at=at, overrides=overrides)[0]


def told(
    memory: Memory, *events: Event, at: Now | float = UPTIME_SECONDS,
    overrides: Mapping[str, NodeClass] = NO_OVERRIDES,
) -> tuple[Memory, tuple[Notice, ...]]:
    """Memory and notices after these events."""
    moment = at if isinstance(at, Now) else now(at)
    return xid.fold(memory, events, moment, table(), overrides)


def clear(
    memory: Memory, at: Now | float, readings: Mapping[str, Any] | None = None,
    overrides: Mapping[str, NodeClass] = NO_OVERRIDES, read_at_seconds: float | None = None,
    limits: Mapping[str, Mapping[str, float]] = LIMITS,
) -> Memory:
    """Memory after a cycle with these values by `signal` or `signal@target`."""
    moment = at if isinstance(at, Now) else now(at)
    read_at = moment.at.monotonic_seconds if read_at_seconds is None else read_at_seconds
    board = {
        SignalKey(name.partition("@")[0], name.partition("@")[2] or NODE):
            Reading(value=value, read_at_seconds=read_at, sequence=1)
        for name, value in (readings or {}).items()
    }
    return xid_clear.clear(memory, moment, table(), overrides, limits=limits, readings=board)


HEARD = {"kernel_log": LOG}
HEALTHY = {
    "kernel_log": LOG,
    f"gpu.presence@{GPU}": GpuPresence(reachable=True),
    f"gpu.recovery_action@{GPU}": RecoveryAction(value=0),
}


def presence(value: GpuPresence | Unread) -> dict[str, Any]:
    """A board on which only this says whether the GPU is reached."""
    return {"kernel_log": LOG, f"gpu.presence@{GPU}": value}


def record(memory: Memory, number: int, pci_address: str = GPU) -> XidRecord:
    """The record of a number."""
    return memory.xids[xid.record_key(pci_address, number)]


def standing(memory: Memory) -> dict[int, NodeClass]:
    """Class of every standing record by number."""
    return {r.number: r.node_class for r in memory.xids.values() if xid.standing(r)}


def worst(memory: Memory) -> NodeClass:
    """The worst standing class."""
    return max(standing(memory).values(), key=lambda c: c.rank, default=NodeClass.IGNORE)


def instant(monotonic_seconds: float, boot_id: str = BOOT) -> Instant:
    """A time of this boot, unless told otherwise."""
    return now(monotonic_seconds, boot_id=boot_id).at


def with_gpu(memory: Memory, pci_address: str = GPU, **facts: Any) -> Memory:
    """Memory that knows this of the GPU."""
    gpus = {**memory.gpus, pci_address: GpuMemory(uuid="GPU-1", **facts)}
    return Memory(xids=memory.xids, gpus=gpus, unmatched=memory.unmatched)


def numbers(text: str) -> Iterable[int]:
    """13 and 39, 40, 41 of "13, 39-41"."""
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        yield from range(int(first), int(last or first) + 1)
