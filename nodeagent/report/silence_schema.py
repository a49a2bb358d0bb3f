"""The JSON of silences: part of the status report, and the answer to `nodeagent silence --list --json`."""

from __future__ import annotations

from msgspec import Struct

SILENCE_SCHEMA = "nodeagent/silence/v1"


class SilenceStatus(Struct, frozen=True, kw_only=True):
    """One silence that stands."""

    number: int
    """What `nodeagent unsilence` takes."""
    check: str
    target: str
    """"" means every target of the check."""
    target_label: str
    owner: str
    """For people: "alice (uid 1000)"."""
    user_id: int | None
    user_name: str
    reason: str
    began: str
    age_seconds: float
    until: str
    """By the wall clock as it goes now."""
    left_seconds: float
    faults: int
    """Raised faults that it covers now."""


class HeldTaintRow(Struct, frozen=True, kw_only=True):
    """A taint that is not wanted for no other reason than silences."""

    key: str
    value: str
    effect: str
    silences: list[int]


class SilencesReport(Struct, frozen=True, kw_only=True):
    """Answer to `nodeagent silence --list --json`."""

    schema: str = SILENCE_SCHEMA
    node: str
    version: str
    generated_at: str
    silences: list[SilenceStatus]
    """Oldest first."""
