"""Checks that a configuration may speak of, with a limit of each type, and an environment to load it in."""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit
from nodeagent.model import Finding, NodeClass


def _never(_: CheckInput) -> Iterator[Finding]:
    return iter(())


def _check(check_id: str, hold: HoldRule, *limits: Limit) -> Check:
    return Check(
        id=check_id,
        title=check_id,
        family="node",
        signals=(),
        source="test",
        node_class=NodeClass.CHECK,
        judge=_never,
        hold=hold,
        limits=limits,
    )


KNOWN = {
    "disk.full": _check(
        "disk.full",
        HoldRule(bad_polls=2, of_polls=3),
        Limit(name="available_percent", unit="%", default=5.0, meaning="least free share"),
        Limit(name="count", unit="files", default=3, meaning="a whole number"),
        Limit(name="strict", unit="", default=False, meaning="a switch"),
        Limit(name="ignored_mounts", unit="", default=("/mnt",), meaning="mount points"),
        Limit(name="unit_name", unit="", default="kubelet", meaning="a text"),
    ),
    "clock.sync": _check("clock.sync", HoldRule()),
}
ENVIRONMENT = {"NODE_NAME": "gpu-a17"}
