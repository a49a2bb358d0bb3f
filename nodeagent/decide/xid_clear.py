"""Lets go of Xid records that are proven gone, each class by its own proof.

Silence proves nothing while nobody listens, and an unread GPU proves nothing at all. Nothing here ever
clears because the agent was restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.decide.holds import is_word_only
from nodeagent.decide.xid import standing
from nodeagent.decide.xid_class import REPEAT_SECONDS, effective_class, hold_window, is_after, reclassed
from nodeagent.decide.xid_table import SXID_FLOOR, XidTable
from nodeagent.memory import GpuMemory, Memory, XidRecord
from nodeagent.model import NODE, Instant, NodeClass, Now
from nodeagent.signals import (
    GpuPresence,
    KernelLogStatus,
    Reading,
    RecoveryAction,
    SignalKey,
)

APP_SECONDS = 600.0
CHECK_SECONDS = 86400.0
KEEP_CLEARED_SECONDS = 86400.0
"""How long a cleared record without a repeat rule is remembered."""


def clear(
    memory: Memory,
    now: Now,
    table: XidTable,
    overrides: Mapping[str, NodeClass],
    *,
    limits: Mapping[str, Mapping[str, Any]],
    readings: Mapping[SignalKey, Reading],
) -> Memory:
    """Memory without the waits that are over, the faults that are gone and the records past keeping.

    `limits` are those of the checks `xid` and `nvswitch.sxid`, by check, in seconds. The reason for each
    clearing is in the record.
    """
    facts = _Facts(
        now=now, gpus=memory.gpus, readings=readings,
        limits=limits,
    )
    records: dict[str, XidRecord] = {}
    for key, before in memory.xids.items():
        record = before
        if standing(record):
            record = reclassed(_hold_ended(record, table, facts), table, overrides)
            own_class = effective_class(record, table, {})
            reason = _proof(record, facts, ignored=record.node_class is NodeClass.IGNORE and own_class.taints)
            if reason:
                record = msgspec.structs.replace(record, cleared=now.at, cleared_by=reason)
        records[key] = record
    return prune(msgspec.structs.replace(memory, xids=records), now, table)


def prune(memory: Memory, now: Now, table: XidTable) -> Memory:
    """Memory without cleared records that no repeat rule and no reader needs any more."""
    kept = {
        key: record for key, record in memory.xids.items()
        if standing(record) or now.age_seconds(record.last) <= _keep_seconds(record, table)
    }
    return memory if len(kept) == len(memory.xids) else msgspec.structs.replace(memory, xids=kept)


class _Facts(Struct, frozen=True, kw_only=True):
    """What may prove a fault gone."""

    now: Now
    gpus: Mapping[str, GpuMemory]
    readings: Mapping[SignalKey, Reading]
    limits: Mapping[str, Mapping[str, Any]]

    def quiet_seconds(self, record: XidRecord) -> float:
        """Seconds without a repeat after which a record of class check, or below, ends."""
        own = self.limits.get("xid" if record.number < SXID_FLOOR else "nvswitch.sxid", {})
        if record.node_class is NodeClass.CHECK:
            return float(own.get("check_seconds", CHECK_SECONDS))
        return float(own.get("app_seconds", APP_SECONDS))


def _keep_seconds(record: XidRecord, table: XidTable) -> float:
    row = table.xids.get(record.number)
    return REPEAT_SECONDS if row is not None and row.repeat is not None else KEEP_CLEARED_SECONDS


def _hold_ended(record: XidRecord, table: XidTable, facts: _Facts) -> XidRecord:
    """When the window of a held number is over, the driver's own verdict decides: reachable, and no
    recovery action asked for since, makes it the application's affair; anything else lets it act."""
    start, seconds = hold_window(record, table)
    if not record.held or facts.now.age_seconds(start) < seconds:
        return record
    action = _value_since(facts, "gpu.recovery_action", record.pci_address, record.last)
    resolved = (
        isinstance(action, RecoveryAction) and action.value == 0
        and _reachable_since(facts, record.pci_address, record.last)
    )
    told = record.decoded_class if record.found is not None else None
    return msgspec.structs.replace(record, held=False, decoded_class=NodeClass.APP if resolved else told)


def _proof(record: XidRecord, facts: _Facts, *, ignored: bool) -> str:
    """Why the fault is gone; empty while it is not proven.

    `ignored`: only the operator's word makes it harmless. It is kept, unseen, until it is cured: should
    the word be taken back, the fault is there again.
    """
    node_class = record.node_class
    if node_class.taints and _taken_out(record, facts):
        return "the device was taken out, and is reported repaired"
    if node_class is NodeClass.VENDOR:
        return _if_reachable(record, facts, *_replaced(record, facts))
    if node_class.taints:
        return _if_reachable(record, facts, *(_replaced(record, facts) or _restarted(record, facts)))
    if ignored:
        return _if_reachable(record, facts, *(_replaced(record, facts) or _restarted(record, facts)))
    if not _heard(record, facts):
        return ""
    _, reason = _replaced(record, facts) or _restarted(record, facts) or (None, "")
    if reason:
        return reason
    limit_seconds = facts.quiet_seconds(record)
    quiet = not record.held and facts.now.age_seconds(record.last) >= limit_seconds
    return f"no repeat for {limit_seconds:.0f} s" if quiet else ""


def _replaced(record: XidRecord, facts: _Facts) -> tuple[()] | tuple[Instant, str]:
    gpu = facts.gpus.get(record.pci_address)
    if gpu is None or gpu.replaced is None or not is_after(gpu.replaced, record.last, facts.now):
        return ()
    return gpu.replaced, "device replaced, or reported repaired"


def _taken_out(record: XidRecord, facts: _Facts) -> bool:
    """True when a GPU that somebody reported repaired is not enumerated since, not even as lost."""
    replaced = _replaced(record, facts)
    if not replaced or record.number >= SXID_FLOOR:
        return False
    devices = _value_since(facts, "gpu.devices", NODE, replaced[0])
    return isinstance(devices, tuple) and all(d.pci_address != record.pci_address for d in devices)


def _restarted(record: XidRecord, facts: _Facts) -> tuple[()] | tuple[Instant, str]:
    """A new boot, or a reset seen after the last occurrence; of a switch, when every GPU was reset."""
    if record.last.boot_id != facts.now.at.boot_id:
        start = Instant(boot_id=facts.now.at.boot_id, monotonic_seconds=0.0, wall_seconds=0.0)
        return start, "new boot"
    concerned = [facts.gpus[record.pci_address]] if record.pci_address in facts.gpus else []
    if record.number >= SXID_FLOOR:
        concerned = [gpu for gpu in facts.gpus.values() if not is_word_only(gpu)]
    resets = [gpu.reset_seen for gpu in concerned if gpu.reset_seen is not None]
    if not resets or len(resets) < len(concerned):
        return ()
    # The reset was seen later than it happened: what came between the two reads may have come after it.
    earliest = [gpu.reset_after or gpu.reset_seen for gpu in concerned]
    if not all(since is not None and is_after(since, record.last, facts.now) for since in earliest):
        return ()
    newest = max(resets, key=lambda reset: reset.monotonic_seconds)
    return newest, f"reset seen: {concerned[0].reset_evidence or 'no detail'}"


def _if_reachable(record: XidRecord, facts: _Facts, since: Instant | None = None, reason: str = "") -> str:
    """The reason, when the device was read as reachable after it; an unread device proves nothing."""
    if since is None:
        return ""
    if record.number < SXID_FLOOR:
        return reason if _reachable_since(facts, record.pci_address, since) else ""
    gpus = [key.target for key in facts.readings if key.signal == "gpu.presence"]
    return reason if gpus and all(_reachable_since(facts, gpu, since) for gpu in gpus) else ""


def _reachable_since(facts: _Facts, target: str, since: Instant) -> bool:
    presence = _value_since(facts, "gpu.presence", target, since)
    return isinstance(presence, GpuPresence) and presence.reachable


def _value_since(facts: _Facts, signal: str, target: str, since: Instant) -> Any:
    """The value, when it was read after `since`; readings are always of this boot."""
    reading = facts.readings.get(SignalKey(signal, target))
    if reading is None:
        return None
    if since.boot_id == facts.now.at.boot_id and reading.read_at_seconds <= since.monotonic_seconds:
        return None
    return reading.value


def _heard(record: XidRecord, facts: _Facts) -> bool:
    """True when a repeat would have been noticed: one of the two sources is read."""
    log = facts.readings.get(SignalKey("kernel_log", NODE))
    by_log = log is not None and isinstance(log.value, KernelLogStatus) and log.value.backfilled
    return by_log or _reachable_since(facts, record.pci_address, record.last)
