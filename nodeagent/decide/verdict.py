"""From findings to rows, holds, history and the node's one word.

The verdict follows the raised holds, not the last readings: what could not be read leaves a
raised fault raised. Its transition time is stable while any fault stands, whatever the fault.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from nodeagent.decide import holds
from nodeagent.decide.check import Check
from nodeagent.decide.rules import Rule
from nodeagent.memory import Hold, Memory, UnknownSince, VerdictMemory
from nodeagent.model import NODE, CheckRow, Finding, NodeClass, Now, State, Transition, Verdict

MAX_HISTORY = 500
VANISHED = "vanished"
"""Cause of the finding made for a held target that nothing reports any more."""
UNKNOWN_NOTED_SECONDS = 30.0
"""Two polls: below this an unread signal is shown, but is no line in history or journal."""


class Judged(Struct, frozen=True, kw_only=True):
    """One check's outcome of this cycle."""

    rows: tuple[CheckRow, ...]
    holds: dict[str, Hold]
    """Holds of this check after the cycle, by key."""
    polls: dict[str, float]
    unknown: dict[str, UnknownSince]
    transitions: tuple[Transition, ...]


def key_of(check_id: str, target: str) -> str:
    """Key of a hold in Memory."""
    return f"{check_id}|{target}"


class _Case(Struct, frozen=True, kw_only=True):
    """One check on one target in this cycle."""

    check: Check
    rule: Rule
    finding: Finding
    memory: Memory
    now: Now
    hold: Hold | None
    """As it stood before this cycle."""
    muted: bool

    @property
    def key(self) -> str:
        return key_of(self.check.id, self.finding.target)

    @property
    def is_poll(self) -> bool:
        """True when this reading counts: newer than the last that did, and not merely asked for between."""
        last_seconds = self.memory.last_poll_seconds.get(self.key)
        if last_seconds is None:
            return self.finding.read_at_seconds >= 0.0
        gap_seconds = self.rule.poll_gap_seconds
        return self.finding.read_at_seconds > last_seconds and (
            self.finding.read_at_seconds - last_seconds >= gap_seconds
        )


def judge_check(
    check: Check, rule: Rule, findings: list[Finding], memory: Memory, *, now: Now,
    muted: frozenset[str],
) -> Judged:
    """Move every hold of one check by its findings. `muted` holds the targets not to be judged."""
    before = {k: h for k, h in memory.holds.items() if k.startswith(f"{check.id}|")}
    rows: list[CheckRow] = []
    after: dict[str, Hold] = {}
    polls: dict[str, float] = {}
    unknown: dict[str, UnknownSince] = {}
    transitions: list[Transition] = []
    for finding in (*findings, *_vanished(check, before, findings, memory, now)):
        case = _Case(
            check=check, rule=rule, finding=finding, memory=memory, now=now,
            hold=before.get(key_of(check.id, finding.target)),
            muted=bool(muted & {NODE, finding.target}),
        )
        moved = _moved(case)
        if moved is not None:
            after[case.key] = moved
        if finding.state is State.UNKNOWN:
            unknown[case.key] = _unknown_since(memory, case.key, now)
        if case.is_poll:
            polls[case.key] = finding.read_at_seconds
        elif case.key in memory.last_poll_seconds:
            polls[case.key] = memory.last_poll_seconds[case.key]
        rows.append(_row(case, moved, unknown.get(case.key)))
        transitions.extend(_transitions(case, moved, unknown.get(case.key)))
    return Judged(rows=tuple(rows), holds=after, polls=polls, unknown=unknown,
                  transitions=tuple(transitions))


def _vanished(
    check: Check, before: dict[str, Hold], findings: list[Finding], memory: Memory, now: Now
) -> list[Finding]:
    """Findings for held targets that nothing reports any more.

    A device that vanished is not cured, so it is unknown, unless somebody said that it was repaired
    since; a mount point that is gone while others are read is gone. A board that is still empty after
    a restart says nothing.
    """
    seen = {finding.target for finding in findings}
    blind = all(finding.state is State.UNKNOWN for finding in findings)
    hardware = check.family in ("gpu", "driver")
    vanished = []
    for key, hold in before.items():
        target = key.partition("|")[2]
        gone = holds.repaired_since(memory.gpus.get(target), hold, now) if hardware else True
        state = State.NOT_APPLICABLE if gone and not blind else State.UNKNOWN
        if target not in seen:
            vanished.append(
                Finding(target=target, state=state, sentence="not reported any more", cause=VANISHED)
            )
    return vanished


def _moved(case: _Case) -> Hold | None:
    hold, finding = holds.as_ordered(case.hold, case.rule), case.finding
    if case.muted or finding.state is State.UNKNOWN:
        return hold
    if finding.state is State.NOT_APPLICABLE:
        return hold if holds.is_raised(hold) and finding.cause != VANISHED else None
    is_new_event = finding.immediate and finding.state is not State.OK
    if not case.is_poll and not is_new_event:
        return hold
    gpus = case.memory.gpus
    gpu = holds.node_reset(gpus, case.now) if finding.target == NODE else gpus.get(finding.target)
    return holds.step(hold, finding, case.rule, case.now, gpu)


def _unknown_since(memory: Memory, key: str, now: Now) -> UnknownSince:
    since = memory.unknown.get(key) or UnknownSince(since=now.at)
    if now.age_seconds(since.since) >= UNKNOWN_NOTED_SECONDS and not since.noted:
        return msgspec.structs.replace(since, noted=True)
    return since


def _row(case: _Case, hold: Hold | None, unknown: UnknownSince | None) -> CheckRow:
    finding = case.finding
    state, standing = _shown_state(case, hold)
    proving = hold is not None and holds.is_raised(hold) and finding.state is State.OK
    measured = hold if proving and hold is not None else finding
    since = hold.since if hold is not None else None
    if state is State.UNKNOWN and unknown is not None:
        since = unknown.since
    sentence = finding.sentence
    if proving and hold is not None and hold.sentence:
        sentence = f"{hold.sentence}; good again, not yet proven"
    return CheckRow(
        id=case.check.id, target=finding.target, state=state, value=measured.value,
        limit=measured.limit or finding.limit, sentence=sentence,
        node_class=_class_shown(case, hold), held=_held(case, hold), since=since,
        read_at_seconds=finding.read_at_seconds or None, source=case.check.source,
        cause=finding.cause or (hold.cause if hold else ""), stale_state=standing,
        number=finding.number,
    )


def _class_shown(case: _Case, hold: Hold | None) -> NodeClass:
    if hold is not None:
        return hold.node_class
    forced = case.rule.class_forced
    return case.rule.node_class if forced else case.finding.node_class or case.rule.node_class


def _shown_state(case: _Case, hold: Hold | None) -> tuple[State, State | None]:
    """The row's state, and the standing fault that this state hides (None: none).

    What is not raised yet and good by now is no trouble, though its bad polls still count.
    """
    standing = hold.state if hold is not None and holds.is_raised(hold) else None
    if case.muted:
        return State.MUTED, standing
    if case.finding.state in (State.UNKNOWN, State.NOT_APPLICABLE):
        return case.finding.state, standing
    is_good = standing is None and case.finding.state is State.OK
    return (State.OK, None) if hold is None or is_good else (hold.state, None)


def _held(case: _Case, hold: Hold | None) -> str:
    if hold is None:
        grace_seconds = case.rule.boot_grace_seconds
        in_grace = case.now.at.monotonic_seconds < grace_seconds
        bad = case.finding.state is State.WARNING
        return f"boot grace {grace_seconds:.0f} s" if bad and in_grace else ""
    if hold.state is State.PENDING:
        return f"{hold.polls.count('b')}/{case.rule.bad_polls}"
    return f"{hold.good_polls}/{case.rule.good_polls} good" if hold.good_polls else ""


def _transitions(case: _Case, after: Hold | None, unknown: UnknownSince | None) -> list[Transition]:
    was = case.hold.state if case.hold is not None and holds.is_raised(case.hold) else State.OK
    is_now = after.state if after is not None and holds.is_raised(after) else State.OK
    unknown_before = case.memory.unknown.get(case.key)
    told_before = unknown_before is not None and unknown_before.noted
    told_now = unknown is not None and unknown.noted
    if was is not is_now:
        sentence = after.sentence if after is not None else case.finding.sentence
        return [_transition(case, was, is_now, sentence or "good again, and proven")]
    if told_now and not told_before:
        return [_transition(case, was, State.UNKNOWN, case.finding.sentence)]
    if told_before and unknown is None:
        return [_transition(case, State.UNKNOWN, is_now, case.finding.sentence or "read again")]
    return []


def _transition(case: _Case, previous: State, state: State, sentence: str) -> Transition:
    return Transition(at=case.now.at, check=case.check.id, target=case.finding.target,
                      previous=previous, state=state, sentence=sentence)


def let_go(check_id: str, memory: Memory, now: Now) -> list[Transition]:
    """The faults of a check that was switched off: they end by the operator's word, and that is said."""
    return [
        Transition(at=now.at, check=check_id, target=key.partition("|")[2], previous=hold.state,
                   state=State.NOT_APPLICABLE, sentence="the check was switched off")
        for key, hold in sorted(memory.holds.items())
        if key.startswith(f"{check_id}|") and holds.is_raised(hold)
    ]


def node_verdict(memory: Memory, rows: Iterable[CheckRow], now: Now) -> tuple[Verdict, Memory]:
    """The node's word from all standing holds and rows, with its stable transition time."""
    standing = [hold for hold in memory.holds.values() if holds.is_raised(hold)]
    worst = max((hold.node_class for hold in standing), key=lambda c: c.rank, default=NodeClass.IGNORE)
    if any(hold.state is State.CRITICAL for hold in standing):
        state = State.CRITICAL
    elif standing:
        state = State.WARNING
    elif _is_unknown(memory, rows):
        state = State.UNKNOWN
    else:
        state = State.OK
    known = memory.verdict
    if known is None or _kind(known.state) != _kind(state):
        known = VerdictMemory(state=state, since=now.at)
    elif known.state is not state:
        known = msgspec.structs.replace(known, state=state)
    verdict = Verdict(state=state, since=known.since, node_class=worst)
    return verdict, msgspec.structs.replace(memory, verdict=known)


def _is_unknown(memory: Memory, rows: Iterable[CheckRow]) -> bool:
    """True when something stayed unread for long enough, or nothing is known of this node yet.

    A restart's first seconds must not end "ok for 6 days".
    """
    if memory.verdict is None:
        return any(row.state is State.UNKNOWN for row in rows)
    return any(unknown.noted for unknown in memory.unknown.values())


def _kind(state: State) -> str:
    """Warning and critical are one kind: the node left ok when its first fault was raised."""
    return "fault" if state in holds.RAISED else state.value
