"""Makes the silences of a report out of what one cycle remembers. Pure, and judges nothing anew."""

from __future__ import annotations

from nodeagent.decide import holds
from nodeagent.decide.silences import EVERY_TARGET, left_seconds, of_key, owner
from nodeagent.memory import Silence
from nodeagent.report.given import ReportInput, rfc3339, target_label
from nodeagent.report.silence_schema import HeldTaintRow, SilencesReport, SilenceStatus


def build_silences(given: ReportInput) -> SilencesReport:
    """Every silence that stands. Times RFC 3339 UTC, ages in seconds up to `given.moment`."""
    return SilencesReport(
        node=given.snapshot.node_name,
        version=given.version,
        generated_at=rfc3339(given.moment.at.wall_seconds),
        silences=[_silence(silence, given) for silence in given.memory.silences],
    )


def held_taints(given: ReportInput) -> list[HeldTaintRow]:
    """The taints that silences hold back."""
    return [
        HeldTaintRow(
            key=held.taint.key, value=held.taint.value, effect=held.taint.effect, silences=list(held.silences)
        )
        for held in (given.decision.held_taints if given.decision is not None else ())
    ]


def _silence(silence: Silence, given: ReportInput) -> SilenceStatus:
    moment, memory = given.moment, given.memory
    left = left_seconds(silence, moment)
    standing = [key for key, hold in memory.holds.items() if holds.is_raised(hold)]
    return SilenceStatus(
        number=silence.number,
        check=silence.check,
        target=silence.target,
        target_label=target_label(silence.target, memory) if silence.target else EVERY_TARGET,
        owner=owner(silence),
        user_id=silence.user_id,
        user_name=silence.user_name,
        reason=silence.reason,
        began=rfc3339(silence.began.wall_seconds),
        age_seconds=moment.age_seconds(silence.began),
        until=rfc3339(moment.at.wall_seconds + left),
        left_seconds=left,
        faults=sum(bool(of_key((silence,), key)) for key in standing),
    )
