"""Silences: a person's word that a fault is known and shall not take the node out of work for a while.

A silence holds the node action alone. It never changes a finding, a hold, the verdict or an exit
code, and every one ends: by its time, or by a second word.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from nodeagent.decide import holds
from nodeagent.decide.verdict import MAX_HISTORY
from nodeagent.memory import Memory, Silence
from nodeagent.model import CheckRow, Notice, Now, State, Transition
from nodeagent.signals import SilenceCommand, Snapshot

MAX_SILENCES = 64
"""More at once are refused: so many known faults are a node that should not work."""
EVERY_TARGET = "every target"


def owner(silence: Silence) -> str:
    """`alice (uid 1000)`: the name is the node's own, the number is what the kernel said."""
    if silence.user_id is None:
        return "somebody"
    number = f"uid {silence.user_id}"
    return f"{silence.user_name} ({number})" if silence.user_name else number


def left_seconds(silence: Silence, now: Now) -> float:
    """Seconds until it ends by itself, never negative.

    Inside a boot by the monotonic clock, so that a step of the wall clock moves no end; over a
    reboot by `Now.age_seconds`, which never lets a window end early.
    """
    return max(0.0, silence.for_seconds - now.age_seconds(silence.began))


def of_key(silences: Iterable[Silence], key: str) -> tuple[Silence, ...]:
    """The silences that cover the fault with this key of Memory, "check|target"."""
    check_id, _, target = key.partition("|")
    return tuple(s for s in silences if s.check == check_id and s.target in ("", target))


def step(
    memory: Memory, rows: tuple[CheckRow, ...], snapshot: Snapshot
) -> tuple[Memory, tuple[CheckRow, ...], tuple[Notice, ...]]:
    """End what is over, then take commands in, in their order; the rows, each with what covers it.

    History has both.
    """
    notices: list[Notice] = []
    for silence in memory.silences:
        if left_seconds(silence, snapshot.now) <= 0.0:
            memory, told = _ended(memory, silence, snapshot.now, None)
            notices.append(told)
    for event in snapshot.events:
        if isinstance(event, SilenceCommand):
            memory, more = _commanded(memory, event, snapshot.now)
            notices.extend(more)
    return memory, _marked(rows, memory.silences, snapshot.now), tuple(notices)


def _commanded(memory: Memory, command: SilenceCommand, now: Now) -> tuple[Memory, tuple[Notice, ...]]:
    if command.ends is not None:
        found = next((s for s in memory.silences if s.number == command.ends), None)
        if found is None:
            return memory, ()
        memory, notice = _ended(memory, found, now, command)
        return memory, (notice,)
    before = next(
        (s for s in memory.silences if (s.check, s.target) == (command.check, command.target)), None
    )
    if command.for_seconds <= 0.0 or (before is None and len(memory.silences) >= MAX_SILENCES):
        return memory, ()
    number = memory.silences_begun + 1 if before is None else before.number
    silence = Silence(
        number=number, check=command.check, target=command.target, began=now.at,
        for_seconds=command.for_seconds, reason=command.reason, user_id=command.user_id,
        user_name=command.user_name,
    )
    memory = msgspec.structs.replace(
        memory, silences=(*(s for s in memory.silences if s is not before), silence),
        silences_begun=max(number, memory.silences_begun),
    )
    fields = _fields(silence) | {"duration_seconds": round(command.for_seconds), "reason": command.reason}
    said = f"silenced by {owner(silence)}: {command.reason}"
    return _noted(memory, silence, now, "silenced", said), (Notice(event="silence_begun", fields=fields),)


def _ended(
    memory: Memory, silence: Silence, now: Now, command: SilenceCommand | None
) -> tuple[Memory, Notice]:
    fields = _fields(silence)
    reason = "its time is over"
    if command is not None:
        by = msgspec.structs.replace(silence, user_id=command.user_id, user_name=command.user_name)
        reason = f"ended by {owner(by)}"
        fields["user_id"] = command.user_id
    memory = msgspec.structs.replace(memory, silences=tuple(s for s in memory.silences if s is not silence))
    said = f"the silence of {owner(silence)} has ended: {reason}"
    return _noted(memory, silence, now, "unsilenced", said), Notice(
        event="silence_ended", fields=fields | {"reason": reason}
    )


def _fields(silence: Silence) -> dict[str, object]:
    return {
        "check": silence.check, "target": silence.target or EVERY_TARGET, "silence": silence.number,
        "owner": owner(silence), "user_id": silence.user_id,
    }


def _noted(memory: Memory, silence: Silence, now: Now, event: str, sentence: str) -> Memory:
    state = _state(memory, silence)
    line = Transition(
        at=now.at, check=silence.check, target=silence.target or EVERY_TARGET, previous=state, state=state,
        sentence=sentence, event=event,
    )
    return msgspec.structs.replace(memory, history=(*memory.history, line)[-MAX_HISTORY:])


def _state(memory: Memory, silence: Silence) -> State:
    """The worst state that stands of what it covers."""
    standing = {
        hold.state for key, hold in memory.holds.items()
        if holds.is_raised(hold) and of_key((silence,), key)
    }
    return next((state for state in (State.CRITICAL, State.WARNING) if state in standing), State.OK)


def _marked(rows: tuple[CheckRow, ...], silences: tuple[Silence, ...], now: Now) -> tuple[CheckRow, ...]:
    if not silences:
        return rows
    last_first = sorted(silences, key=lambda s: -left_seconds(s, now))
    return tuple(_marked_row(row, of_key(last_first, f"{row.id}|{row.target}")) for row in rows)


def _marked_row(row: CheckRow, covering: tuple[Silence, ...]) -> CheckRow:
    return msgspec.structs.replace(row, silence=covering[0].number) if covering else row


def next_due_seconds(silences: tuple[Silence, ...], now: Now) -> float | None:
    """CLOCK_MONOTONIC when the next one ends, None when none stands."""
    left = [left_seconds(silence, now) for silence in silences]
    return now.at.monotonic_seconds + min(left) if left else None
