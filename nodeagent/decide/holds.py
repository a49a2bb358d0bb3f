"""One check on one target from good to raised and back: n of m to raise, proof to clear.

A poll counts once, however often the cycle runs. Nothing that was not read moves a hold, so
Unknown neither adds nor lifts. A raised fault keeps its start through every re-raise.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nodeagent.decide.rules import Rule
from nodeagent.decide.xid_class import is_after
from nodeagent.memory import GpuMemory, Hold
from nodeagent.model import Finding, Instant, NodeClass, Now, State

RAISED = frozenset({State.WARNING, State.CRITICAL})


def is_raised(hold: Hold | None) -> bool:
    """True for a fault that is in force."""
    return hold is not None and hold.state in RAISED


def step(
    hold: Hold | None, finding: Finding, rule: Rule, now: Now, gpu: GpuMemory | None
) -> Hold | None:
    """The hold after one *new* poll that was really read; None when the target is plainly ok."""
    node_class = _class(hold, finding, rule, now, gpu)
    if finding.state is State.OK or node_class is NodeClass.IGNORE:
        return _after_good(hold, finding, rule, now, gpu)
    if not is_raised(hold) and _in_boot_grace(rule, now):
        return hold
    return _after_bad(hold, finding, rule, now, node_class)


def as_ordered(hold: Hold | None, rule: Rule) -> Hold | None:
    """The hold with the class that the operator chose: an order needs no reading to take hold."""
    if hold is None or not is_raised(hold) or not rule.class_forced:
        return hold
    if rule.node_class is NodeClass.IGNORE:
        return None
    return msgspec.structs.replace(hold, node_class=rule.node_class, state=_raised_state(rule.node_class))


def _class(
    hold: Hold | None, finding: Finding, rule: Rule, now: Now, gpu: GpuMemory | None
) -> NodeClass:
    if rule.class_forced:
        return rule.node_class
    wanted = finding.node_class or rule.node_class
    if hold is None or not is_raised(hold) or finding.immediate or finding.state is State.OK:
        return wanted
    if wanted.rank >= hold.node_class.rank or reset_seen_since(gpu, _last_bad(hold), now):
        return wanted
    booted = _last_bad(hold).boot_id != now.at.boot_id
    return wanted if booted and wanted.taints else hold.node_class


def _in_boot_grace(rule: Rule, now: Now) -> bool:
    return now.at.monotonic_seconds < rule.boot_grace_seconds


def _after_bad(
    hold: Hold | None, finding: Finding, rule: Rule, now: Now, node_class: NodeClass
) -> Hold:
    polls = ((hold.polls if hold else "") + "b")[-rule.of_polls :]
    raised = is_raised(hold) or finding.immediate or polls.count("b") >= rule.bad_polls
    state = _raised_state(node_class) if raised else State.PENDING
    since = now.at
    if hold is not None and (is_raised(hold) or not (raised or hold.good_polls)):
        since = hold.since
    cause_since = now.at
    if hold is not None and hold.cause == finding.cause and not hold.good_polls:
        cause_since = hold.cause_since or hold.since
    return Hold(
        state=state, since=since, node_class=node_class, polls=polls, good_polls=0,
        last_bad=now.at, value=finding.value, limit=finding.limit, sentence=finding.sentence,
        cause=finding.cause, cause_since=cause_since, number=finding.number,
    )


def _raised_state(node_class: NodeClass) -> State:
    return State.CRITICAL if node_class.taints else State.WARNING


def _after_good(
    hold: Hold | None, finding: Finding, rule: Rule, now: Now, gpu: GpuMemory | None
) -> Hold | None:
    if hold is None:
        return None
    polls = (hold.polls + "g")[-rule.of_polls :]
    good_polls = min(hold.good_polls + 1, rule.good_polls)
    moved = msgspec.structs.replace(hold, polls=polls, good_polls=good_polls)
    if not is_raised(hold):
        return moved if "b" in polls else None
    if rule.class_forced and rule.node_class is NodeClass.IGNORE:
        return None
    return None if clears(moved, rule, now, gpu, limit=finding.limit) else moved


def clears(hold: Hold, rule: Rule, now: Now, gpu: GpuMemory | None, *, limit: str = "") -> bool:
    """True when a raised fault has been good often enough, long enough, and with its proof.

    What is good only because the operator moved the `limit` it was raised by needs no reset.
    """
    if hold.good_polls < rule.good_polls:
        return False
    if hold.last_bad is not None and now.age_seconds(hold.last_bad) < rule.minimum_seconds:
        return False
    if rule.proof != "reset" or not hold.node_class.taints:
        return True
    if limit and hold.limit and limit != hold.limit:
        return True
    return proven(hold, now, gpu)


def proven(hold: Hold, now: Now, gpu: GpuMemory | None) -> bool:
    """True when a reset was seen after the last bad poll, or the node has booted since."""
    last_bad = _last_bad(hold)
    return last_bad.boot_id != now.at.boot_id or reset_seen_since(gpu, last_bad, now)


def _last_bad(hold: Hold) -> Instant:
    return hold.last_bad or hold.since


def reset_seen_since(gpu: GpuMemory | None, then: Instant, now: Now) -> bool:
    """True when this GPU's last seen reset, or its replacement, is later than `then`."""
    if gpu is None:
        return False
    return any(
        is_after(seen, then, now) for seen in (gpu.reset_seen, gpu.replaced) if seen is not None
    )


def is_word_only(gpu: GpuMemory) -> bool:
    """True for a device that is known only by somebody's word that it was repaired: a switch, a dead GPU."""
    return gpu.replaced is not None and gpu.uuid is None and gpu.index is None


def repaired_since(gpu: GpuMemory | None, hold: Hold, now: Now) -> bool:
    """True when a person or another UUID has said, after the last bad poll, that the device is new."""
    replaced = gpu.replaced if gpu is not None else None
    return replaced is not None and is_after(replaced, _last_bad(hold), now)


def node_reset(gpus: Mapping[str, GpuMemory], now: Now) -> GpuMemory:
    """The node as one device: it was reset when every GPU was, at the earliest of their resets, and
    replaced or repaired when one of them was, at the latest of these."""
    seen = [gpu for gpu in gpus.values() if not is_word_only(gpu)]
    resets = [gpu.reset_seen for gpu in seen if gpu.reset_seen is not None]
    earliest = resets[0] if resets and len(resets) == len(seen) else None
    for reset in resets:
        earliest = reset if earliest is not None and is_after(earliest, reset, now) else earliest
    latest: Instant | None = None
    for gpu in gpus.values():
        if gpu.replaced is not None and (latest is None or is_after(gpu.replaced, latest, now)):
            latest = gpu.replaced
    return GpuMemory(reset_seen=earliest, replaced=latest)


def is_later(left: Instant, right: Instant) -> bool:
    """Order of two instants: by monotonic clock inside a boot, by wall clock over boots."""
    if left.boot_id == right.boot_id:
        return left.monotonic_seconds > right.monotonic_seconds
    return left.wall_seconds > right.wall_seconds
