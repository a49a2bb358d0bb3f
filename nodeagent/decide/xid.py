"""Folds what the kernel log and NVML report into one record per GPU and number.

Both sources see the same fault: an occurrence that both report counts once. An NVML event that does not
say enough (999, or a number whose line must be decoded) waits a few seconds for the kernel's line. Nothing
here ever lowers a fault because time passed; that is for `xid_clear.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from nodeagent.decide.xid_class import (
    EPISODE_SECONDS,
    JOIN_SECONDS,
    as_xid,
    distance_seconds,
    hold_window,
    is_after,
    is_late,
    later,
    of_this_device,
    reclassed,
    with_episode,
)
from nodeagent.decide.xid_table import (
    DECODE,
    RECOVERY_ACTION_XID,
    SXID_FLOOR,
    UNKNOWN_TO_NVML,
    XidTable,
)
from nodeagent.memory import KernelLogCursor, Memory, XidRecord
from nodeagent.model import NODE, Instant, NodeClass, Notice, Now
from nodeagent.signals import Event, KernelLogStatus, Reading, SignalKey, SxidEvent, XidEvent, read_as

MAX_RECORDS = 256
MAX_UNMATCHED = 64


def record_key(pci_address: str, number: int) -> str:
    """Key of a record in `Memory.xids`."""
    return f"{pci_address}|{'sxid ' if number >= SXID_FLOOR else ''}{number}"


def standing(record: XidRecord) -> bool:
    """True for a fault that has not been proven gone."""
    return record.cleared is None and not record.injected


def linked_numbers(table: XidTable, number: int) -> frozenset[int]:
    """Numbers that accompany this one or cause it, whichever of the two the table has it from."""
    return table.links.get(number, frozenset())


def due_seconds(memory: Memory, table: XidTable) -> float | None:
    """CLOCK_MONOTONIC when the next wait ends (an unmatched NVML event, a held 109), None without one."""
    waits = [(record.last, JOIN_SECONDS) for record in memory.unmatched]
    held = [record for record in memory.xids.values() if record.held and standing(record)]
    waits += [hold_window(record, table) for record in held]
    ends = [at.monotonic_seconds + wait for at, wait in waits if at.boot_id == memory.boot_id]
    return min(ends, default=None)


def fold(
    memory: Memory,
    events: Iterable[Event],
    now: Now,
    table: XidTable,
    overrides: Mapping[str, NodeClass],
) -> tuple[Memory, tuple[Notice, ...]]:
    """Memory after these events, and a notice for each new occurrence.

    To be called in every cycle, with or without events: waits end here, and a changed `overrides`
    (`[gpu.xid]`, number as text -> class) takes hold of standing records here.
    """
    work = _Work(memory, now, table)
    reports = [event for event in events if isinstance(event, XidEvent | SxidEvent)]
    for event in sorted(reports, key=lambda event: event.at_seconds):
        work.take(event)
    work.end_waits()
    records = {key: reclassed(record, table, overrides) for key, record in work.records.items()}
    records, forgotten = _bounded(records, now)
    notices = [_seen(records[key]) for key in sorted(work.fresh) if key in records]
    notices = [notice for notice in notices if notice.fields["class"] != NodeClass.IGNORE.value]
    if forgotten:
        notices.append(Notice(event="xid_forgotten", fields={"count": forgotten}))
    sequences = [event.kernel_sequence for event in reports if event.kernel_sequence is not None]
    after = msgspec.structs.replace(
        memory, xids=records, unmatched=tuple(work.unmatched), kernel_log=_cursor(memory, sequences, now)
    )
    return after, tuple(notices)


def read_to(memory: Memory, now: Now, readings: Mapping[SignalKey, Reading]) -> Memory:
    """Memory that knows how far the kernel log was read, Xids or not, so that records which the ring
    drops after that are not called lost by the next start."""
    status = read_as(readings.get(SignalKey("kernel_log", NODE)), KernelLogStatus)
    if status is None:
        return memory
    return msgspec.structs.replace(memory, kernel_log=_cursor(memory, [status.sequence], now))


def _cursor(memory: Memory, sequences: list[int], now: Now) -> KernelLogCursor | None:
    known = memory.kernel_log
    if known is not None and known.boot_id == now.at.boot_id:
        sequences = [*sequences, known.sequence]
    newest = max(sequences, default=-1)
    return KernelLogCursor(boot_id=now.at.boot_id, sequence=newest) if newest >= 0 else known


def _bounded(records: dict[str, XidRecord], now: Now) -> tuple[dict[str, XidRecord], int]:
    """At most MAX_RECORDS: the oldest of the harmless go first, then of the cleared, then of the rest."""
    surplus = len(records) - MAX_RECORDS
    if surplus <= 0:
        return records, 0

    def worth(key: str) -> tuple[int, float]:
        record = records[key]
        harmless = record.node_class.rank <= NodeClass.APP.rank
        return (0 if harmless else 1 if record.cleared else 2, -now.age_seconds(record.last))

    dropped = set(sorted(records, key=worth)[:surplus])
    return {key: record for key, record in records.items() if key not in dropped}, surplus


def _seen(record: XidRecord) -> Notice:
    source = "kernel" if record.kernel_count else "nvml"
    fields: dict[str, Any] = {
        "xid": record.number,
        "target": record.pci_address,
        "class": record.node_class.value,
        "reason": record.detail,
        "source": "kernel and nvml" if record.kernel_count and record.nvml_count else source,
        "count": record.count,
        "caused_by": record.caused_by,
    }
    return Notice(event="xid_seen", fields=fields)


class _Work:
    """The records while events are folded into them; lives for one call of `fold`."""

    def __init__(self, memory: Memory, now: Now, table: XidTable) -> None:
        self._now = now
        self._table = table
        self._gpus = memory.gpus
        self.records = dict(memory.xids)
        self.unmatched = list(memory.unmatched)
        self.fresh: set[str] = set()
        """Keys of records with an occurrence that was not known before."""

    def take(self, event: XidEvent | SxidEvent) -> None:
        """Fold in one event."""
        if isinstance(event, SxidEvent):
            self._put(as_xid(event, self._table))
        elif event.injected:
            self._put_injected(event)
        elif event.source == "nvml" and self._says_too_little(event.number):
            self._match_or_wait(event)
        else:
            self._put(event)
            if event.source == "kernel":
                self._claim_waiting(event)
            self._follow_driver(event)
            self._clear_counterpart(event)

    def end_waits(self) -> None:
        """What NVML reported and no kernel line explained in time becomes a record of its own."""
        waiting, self.unmatched = self.unmatched, []
        for record in waiting:
            if self._now.age_seconds(record.last) <= JOIN_SECONDS:
                self.unmatched.append(record)
                continue
            self._put(XidEvent(
                source="nvml", pci_address=record.pci_address, number=record.number,
                at_seconds=self._seconds(record.last), count=record.nvml_count, node_class=NodeClass.CHECK,
                detail=f"{self._table.meaning(record.number)}; no kernel line was read beside it",
            ))

    def _seconds(self, at: Instant) -> float:
        """An instant of an earlier boot is as old as this boot, at least."""
        return at.monotonic_seconds if at.boot_id == self._now.at.boot_id else 0.0

    def _instant(self, at_seconds: float) -> Instant:
        """A record of this boot by its own clock; never in the future, where nothing could follow it."""
        now = self._now.at
        then_seconds = min(at_seconds, now.monotonic_seconds)
        wall_seconds = now.wall_seconds - (now.monotonic_seconds - then_seconds)
        return Instant(boot_id=now.boot_id, monotonic_seconds=then_seconds, wall_seconds=wall_seconds)

    def _says_too_little(self, number: int) -> bool:
        row = self._table.xids.get(number)
        decoded = row is not None and row.node_class == DECODE and number != RECOVERY_ACTION_XID
        return number == UNKNOWN_TO_NVML or decoded

    def _near(self, left: Instant, right: Instant) -> bool:
        return distance_seconds(left, right, self._now) <= JOIN_SECONDS

    # ------------------------------------------------------------------ waiting NVML events

    def _match_or_wait(self, event: XidEvent) -> None:
        at = self._instant(event.at_seconds)
        for key, record in self.records.items():
            same = event.number in (UNKNOWN_TO_NVML, record.number)
            heard = record.pci_address == event.pci_address and record.kernel_count > 0 and standing(record)
            if same and heard and self._near(record.last, at):
                count = record.nvml_count + event.count
                self.records[key] = msgspec.structs.replace(record, nvml_count=count)
                return
        for index, waiting in enumerate(self.unmatched):
            if (waiting.pci_address, waiting.number) == (event.pci_address, event.number):
                self.unmatched[index] = msgspec.structs.replace(
                    waiting, nvml_count=waiting.nvml_count + event.count
                )
                return
        if len(self.unmatched) < MAX_UNMATCHED:
            self.unmatched.append(XidRecord(
                pci_address=event.pci_address, number=event.number, node_class=NodeClass.CHECK,
                first=at, last=at, nvml_count=event.count,
            ))

    def _claim_waiting(self, event: XidEvent) -> None:
        at = self._instant(event.at_seconds)
        key = record_key(event.pci_address, event.number)
        for waiting in list(self.unmatched):
            same = waiting.pci_address == event.pci_address and self._near(waiting.last, at)
            if same and waiting.number in (UNKNOWN_TO_NVML, event.number):
                self.unmatched.remove(waiting)
                record = self.records[key]
                count = record.nvml_count + waiting.nvml_count
                self.records[key] = msgspec.structs.replace(record, nvml_count=count)

    # ------------------------------------------------------------------ records

    def _put(self, event: XidEvent) -> None:
        key = record_key(event.pci_address, event.number)
        at = self._instant(event.at_seconds)
        record = self.records.get(key)
        if record is not None and record.cleared is not None and not is_after(at, record.last, self._now):
            return  # a line from before the cure, delivered again
        if record is None or not standing(record):
            record = self._opened(event, at, record)
        elif _is_lesser(event, record):
            self.records[key] = _counted(record, event)
            return
        elif self._is_new_episode(record, at):
            self.fresh.add(key)
            record = self._another(record, event, at)
        elif self._is_repeat_of_held(record, at):
            record = msgspec.structs.replace(record, held=False, decoded_class=None)
        self.records[key] = self._merged(record, event, at)

    def _opened(self, event: XidEvent, at: Instant, before: XidRecord | None) -> XidRecord:
        """A new record, or a cleared one that has come back with its past occurrences."""
        self.fresh.add(record_key(event.pci_address, event.number))
        late = is_late(event, at, self._table, self._now)
        episodes = before.episodes if before is not None and not before.injected else ()
        episodes = of_this_device(episodes, self._gpus.get(event.pci_address), self._now)
        if before is not None and self._restarts_repeat(before, event):
            episodes = ()
        if before is None or not episodes or self._is_new_episode(before, at):
            episodes = with_episode(episodes, at, self._now)
        return XidRecord(
            pci_address=event.pci_address, number=event.number, node_class=NodeClass.CHECK,
            first=at, last=at, episodes=episodes,
            held=late or self._holds(event.number), found=self._now.at if late else None,
        )

    def _another(self, record: XidRecord, event: XidEvent, at: Instant) -> XidRecord:
        past = () if self._restarts_repeat(record, event) else record.episodes
        past = of_this_device(past, self._gpus.get(record.pci_address), self._now)
        found = record.found if is_late(event, at, self._table, self._now) else None
        asks_anew = self._holds(record.number) or found is not record.found
        return msgspec.structs.replace(
            record, episodes=with_episode(past, at, self._now), found=found,
            held=record.held and found is not None,
            decoded_class=None if asks_anew else record.decoded_class,
            detail="" if not past else record.detail,
        )

    def _restarts_repeat(self, record: XidRecord, event: XidEvent) -> bool:
        """True when an earlier occurrence was of another unit, so that the number alone is no repeat."""
        row = self._table.xids.get(event.number)
        by_unit = row is not None and row.repeat_by == "unit"
        return by_unit and (not event.detail or event.detail != record.detail)

    def _holds(self, number: int) -> bool:
        row = self._table.xids.get(number)
        return row is not None and row.hold_seconds > 0

    def _is_new_episode(self, record: XidRecord, at: Instant) -> bool:
        known = (record.last, *record.episodes)
        if all(distance_seconds(at, other, self._now) > EPISODE_SECONDS for other in known):
            return True
        gpu = self._gpus.get(record.pci_address)
        if gpu is None or gpu.reset_seen is None:
            return False
        reset = gpu.reset_seen
        return is_after(reset, record.last, self._now) and is_after(at, reset, self._now)

    def _is_repeat_of_held(self, record: XidRecord, at: Instant) -> bool:
        """A held number that comes again, and not as part of the same burst."""
        return self._holds(record.number) and not self._near(record.first, at)

    def _merged(self, record: XidRecord, event: XidEvent, at: Instant) -> XidRecord:
        tells_more = not record.text or (
            event.node_class is not None and record.decoded_class is not None
            and event.node_class.rank > record.decoded_class.rank
        )
        detail = event.detail or record.detail or self._table.meaning(event.number)
        return msgspec.structs.replace(
            _counted(record, event),
            last=later(at, record.last, self._now),
            decoded_class=event.node_class or record.decoded_class,
            caused_by=event.caused_by or record.caused_by,
            text=event.text if tells_more and event.text else record.text,
            detail=detail if tells_more or not record.detail else record.detail,
        )

    def _put_injected(self, event: XidEvent) -> None:
        """Shown, never acted on, and never in the way of a real fault of the same number."""
        key = record_key(event.pci_address, event.number)
        record = self.records.get(key)
        if record is not None and not record.injected:
            return
        at = self._instant(event.at_seconds)
        count = (record.kernel_count if record is not None else 0) + event.count
        self.records[key] = XidRecord(
            pci_address=event.pci_address, number=event.number, node_class=NodeClass.IGNORE,
            first=at, last=at, kernel_count=count, injected=True, text=event.text, detail=event.detail,
        )

    # ------------------------------------------------------------------ numbers that speak of others

    def _follow_driver(self, event: XidEvent) -> None:
        """The driver's words (154) decide the class of the faults they were printed beside.

        "None" decides nothing: it says that a reset is over, not that the fault was none.
        """
        verdict = self.records.get(record_key(event.pci_address, RECOVERY_ACTION_XID))
        if verdict is None or not standing(verdict) or verdict.decoded_class in (None, NodeClass.IGNORE):
            return
        own_key = record_key(event.pci_address, event.number)
        keys = list(self.records) if event.number == RECOVERY_ACTION_XID else [own_key]
        for key in keys:
            record = self.records[key]
            beside = record.pci_address == event.pci_address and self._near(record.last, verdict.last)
            if beside and standing(record) and record.number in self._table.with_recovery_text:
                self.records[key] = msgspec.structs.replace(
                    record, decoded_class=verdict.decoded_class, held=record.held and record.found is not None
                )

    def _clear_counterpart(self, event: XidEvent) -> None:
        row = self._table.xids.get(event.number)
        if row is None or row.clears is None:
            return
        key = record_key(event.pci_address, row.clears)
        record = self.records.get(key)
        at = self._instant(event.at_seconds)
        if record is not None and standing(record) and not is_after(record.last, at, self._now):
            self.records[key] = msgspec.structs.replace(
                record, cleared=self._now.at, cleared_by=f"xid {event.number}"
            )


def _is_lesser(event: XidEvent, record: XidRecord) -> bool:
    """True when the line asks for less than a standing line of this number did: "None" after "GPU Reset
    Required", a tolerable link event after a fatal one. It must not renew the standing fault."""
    if event.node_class is None or record.decoded_class is None:
        return False
    return event.node_class.rank < record.decoded_class.rank


def _counted(record: XidRecord, event: XidEvent) -> XidRecord:
    if event.source != "kernel":
        return msgspec.structs.replace(record, nvml_count=record.nvml_count + event.count)
    count = event.count if record.kernel_count else max(1, event.count)
    return msgspec.structs.replace(record, kernel_count=record.kernel_count + count)
