"""Which class a standing Xid or SXid record has, and when two occurrences are one fault.

Order of authority: the operator's word, then the repeat rule, then the driver's own recovery text and
the decode rows, then the number. The repeat rule stands above the driver because the driver does not
remember; class vendor stands below nothing but the operator, because the driver has no word for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nodeagent.decide.xid_table import (
    DECODE,
    RECOVERY_ACTION_XID,
    SXID_FLOOR,
    XidTable,
)
from nodeagent.memory import GpuMemory, XidRecord
from nodeagent.model import Instant, NodeClass, Now
from nodeagent.signals import SxidEvent, XidEvent

JOIN_SECONDS = 5.0
"""The kernel's line and NVML's event of one occurrence are not further apart."""
EPISODE_SECONDS = 60.0
"""Occurrences further apart than this are distinct."""
REPEAT_SECONDS = 30 * 86400.0
"""Two distinct occurrences within this time are a repeat."""
MAX_EPISODES = 8
LATE_SECONDS = 600.0
"""A line read so long after it was printed was printed while nobody watched, and so may its cure be."""
LATE_HOLD_SECONDS = 60.0
"""Time for NVML to be read, before the driver's word on such a line is asked."""


def worse(left: NodeClass, right: NodeClass) -> NodeClass:
    """The one that asks for more."""
    return left if left.rank >= right.rank else right


def number_class(number: int, table: XidTable) -> NodeClass:
    """Class by the number alone; check for a number that the table lacks or that must be decoded."""
    if number >= SXID_FLOOR:
        sxid = table.sxids.get(number)
        return sxid.node_class if sxid else NodeClass.CHECK
    row = table.xids.get(number)
    if row is None or row.node_class == DECODE:
        return NodeClass.CHECK
    return NodeClass(row.node_class)


def sxid_class(event: SxidEvent, table: XidTable) -> NodeClass:
    """Class of an SXid line: its severity word outranks the table, which is right about the rest."""
    row = table.sxids.get(event.number)
    if row is None:
        return NodeClass.CHECK
    if event.fatal and not row.fatal:
        return worse(row.node_class, NodeClass.RESET)
    if event.fatal is False and row.fatal and row.node_class.taints:
        return NodeClass.CHECK
    return row.node_class


def effective_class(record: XidRecord, table: XidTable, overrides: Mapping[str, NodeClass]) -> NodeClass:
    """The class in force; `overrides` are the operator's, by number as text."""
    if record.injected:
        return NodeClass.IGNORE
    by_operator = overrides.get(str(record.number))
    if by_operator is not None:
        return by_operator
    if record.number == RECOVERY_ACTION_XID and record.decoded_class is None:
        return NodeClass.IGNORE  # NVML names no action; the check of field 230 reads it itself
    by_number = number_class(record.number, table)
    node_class = by_number if record.decoded_class is None else record.decoded_class
    if by_number is NodeClass.VENDOR:
        node_class = by_number
    row = table.xids.get(record.number)
    if row is not None and row.repeat is not None and len(record.episodes) >= 2:
        node_class = worse(node_class, row.repeat)
    return NodeClass.APP if record.held else node_class


def reclassed(record: XidRecord, table: XidTable, overrides: Mapping[str, NodeClass]) -> XidRecord:
    """The record with the class now in force; a cleared one keeps the class it was cleared with."""
    if record.cleared is not None:
        return record
    node_class = effective_class(record, table, overrides)
    if node_class is record.node_class:
        return record
    return msgspec.structs.replace(record, node_class=node_class)


def distance_seconds(left: Instant, right: Instant, now: Now) -> float:
    """Seconds between two instants, of whichever boots."""
    if left.boot_id == right.boot_id:
        return abs(left.monotonic_seconds - right.monotonic_seconds)
    return max(abs(now.age_seconds(left) - now.age_seconds(right)), EPISODE_SECONDS * 2)


def is_after(left: Instant, right: Instant, now: Now) -> bool:
    """True when `left` is later: by the monotonic clock inside a boot, else by which boot is this one."""
    if left.boot_id == right.boot_id:
        return left.monotonic_seconds > right.monotonic_seconds
    if left.boot_id == now.at.boot_id:
        return True
    return right.boot_id != now.at.boot_id and left.wall_seconds > right.wall_seconds


def later(left: Instant, right: Instant, now: Now) -> Instant:
    """The later of two."""
    return left if is_after(left, right, now) else right


def with_episode(episodes: tuple[Instant, ...], start: Instant, now: Now) -> tuple[Instant, ...]:
    """Episodes with one more, without those that are out of the repeat window before it."""
    kept = [e for e in episodes if distance_seconds(e, start, now) <= REPEAT_SECONDS]
    return (*kept, start)[-MAX_EPISODES:]


def of_this_device(
    episodes: tuple[Instant, ...], gpu: GpuMemory | None, now: Now
) -> tuple[Instant, ...]:
    """Episodes since the device was replaced or repaired: a new one does not answer for the old."""
    replaced = gpu.replaced if gpu is not None else None
    return episodes if replaced is None else tuple(e for e in episodes if is_after(e, replaced, now))


def is_late(event: XidEvent, at: Instant, table: XidTable, now: Now) -> bool:
    """True for a line of long ago whose fault the driver would still ask to cure: its word is heard first."""
    if now.age_seconds(at) < LATE_SECONDS:
        return False
    asked = event.number in table.with_recovery_text or event.number == RECOVERY_ACTION_XID
    node_class = event.node_class or number_class(event.number, table)
    return asked and node_class.taints and node_class is not NodeClass.VENDOR


def hold_window(record: XidRecord, table: XidTable) -> tuple[Instant, float]:
    """Start and seconds of the time in which a held record is shown as class app."""
    if record.found is not None:
        return record.found, LATE_HOLD_SECONDS
    row = table.xids.get(record.number)
    return record.first, row.hold_seconds if row is not None else 0.0


def as_xid(event: SxidEvent, table: XidTable) -> XidEvent:
    """An SXid in the shape that records are made of."""
    meaning = table.meaning(event.number)
    return XidEvent(
        source="kernel", pci_address=event.pci_address, number=event.number, at_seconds=event.at_seconds,
        text=event.text, count=event.count, node_class=sxid_class(event, table),
        detail=meaning if event.link is None else f"link {event.link}: {meaning}",
        kernel_sequence=event.kernel_sequence,
    )
