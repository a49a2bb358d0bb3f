"""What is known of a check or an Xid without asking anybody: records as facts for a person and as JSON.

Pure: everything comes in as arguments. The words here say what a class means for the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from nodeagent.config import Loaded
from nodeagent.config.values import show, show_key
from nodeagent.decide.check import Check
from nodeagent.decide.rules import effective_limits, effective_rule
from nodeagent.decide.taints import EFFECT, HARDWARE_FAMILIES
from nodeagent.decide.xid_table import DECODE, NUMBER_CHECKS, SXID_FLOOR, XidTable
from nodeagent.model import NodeClass
from nodeagent.report.render import duration

_MEANS = {
    NodeClass.IGNORE: "nothing is shown and nothing is asked of the node",
    NodeClass.APP: "shown as a warning; the job's owner looks at the job, nothing is asked of the node",
    NodeClass.CHECK: "shown as a warning, to be looked at in working hours; no taint",
    NodeClass.RESET: "critical, {taint}; the cure is a drain and a GPU reset",
    NodeClass.REBOOT: "critical, {taint}; the cure is a drain and a reboot",
    NodeClass.VENDOR: "critical, {taint}; the cure is the vendor or a new part",
}
_XID_ENDS = {
    NodeClass.IGNORE: "it is not shown",
    NodeClass.APP: "no repeat for {app}",
    NodeClass.CHECK: "no repeat for {check}, a reset seen, or a new boot",
    NodeClass.RESET: "a reset seen after it, or a new boot, and the GPU is read again",
    NodeClass.REBOOT: "a reset seen after it, or a new boot, and the GPU is read again",
    NodeClass.VENDOR: "another GPU in its place, or nodeagent gpu repaired",
}



class Record(Struct, frozen=True, kw_only=True):
    """One thing that can be explained."""

    kind: str
    """check | xid | sxid"""
    what: str
    """How to ask for it again: `disk.full`, `xid 79`."""
    name: str
    title: str
    check_id: str
    """The check whose page it is."""
    node_class: str
    """A NodeClass, or "decode": the line itself says."""
    facts: tuple[tuple[str, str], ...]
    """Label and sentence, in order."""
    fields: Mapping[str, Any]
    """More for JSON."""
    number: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Fields of the JSON object."""
        return {
            "kind": self.kind, "what": self.what, "title": self.title, "check": self.check_id,
            "class": self.node_class, "number": self.number, **self.fields,
        }


def class_means(node_class: NodeClass, family: str, prefix: str) -> str:
    """What the class means for the node, with the taint's name."""
    key = "gpu-unhealthy" if family in HARDWARE_FAMILIES else "node-unhealthy"
    return _MEANS[node_class].format(taint=f"asks for the taint {prefix}/{key}:{EFFECT}")


def check_record(check: Check, loaded: Loaded) -> Record:
    """The record of a check with the values in force."""
    settings = loaded.settings
    rule = effective_rule(check, settings)
    if check.id in NUMBER_CHECKS and not rule.class_forced:
        facts = [("Class", "by number: nodeagent explain xid 79")]
    else:
        facts = [("Class", f"{rule.node_class.value}: {_means(check, rule.node_class, loaded)}")]
    of_polls = f"{rule.bad_polls} bad of the last {rule.of_polls} polls"
    raised = "at the first bad poll" if rule.of_polls == 1 else of_polls
    facts.append(("Raised", check.hold.raised_words or raised))
    stands = duration(rule.minimum_seconds)
    cleared = f"{rule.good_polls} good polls in a row and {stands} after the last bad one"
    if rule.proof == "reset" and rule.node_class.taints:
        cleared += ", and a reset or reboot that was seen"
    facts.append(("Cleared", check.hold.cleared_words or cleared))
    limits = []
    for limit in check.limits:
        value = effective_limits(check, settings)[limit.name]
        source = loaded.sources.get(show_key("checks", check.id, limit.name), "default")
        facts.append(("Limit", f"{limit.name} = {_shown(value, limit.unit)} ({source}). {limit.meaning}"))
        limits.append(
            {"name": limit.name, "value": value, "default": limit.default, "unit": limit.unit,
             "meaning": limit.meaning, "source": source}
        )  # fmt: skip
    facts.append(("Source", check.source))
    if check.depends_on:
        facts.append(("Muted", f"while {' or '.join(check.depends_on)} is raised"))
    if not settings.check(check.id).enabled:
        facts.append(("Disabled", "by the configuration: it is not run"))
    fields = {
        "enabled": settings.check(check.id).enabled, "taints": rule.node_class.taints,
        "bad_polls": rule.bad_polls, "of_polls": rule.of_polls, "good_polls": rule.good_polls,
        "minimum_seconds": rule.minimum_seconds, "proof": rule.proof, "limits": limits,
        "source": check.source, "depends_on": check.depends_on, "common_cause": check.common_cause,
    }  # fmt: skip
    return Record(
        kind="check", what=check.id, name=check.id, title=check.title, check_id=check.id,
        node_class=rule.node_class.value, facts=tuple(facts), fields=fields,
    )


def xid_record(
    kind: str, number: int, loaded: Loaded, checks: Mapping[str, Check], table: XidTable
) -> Record:
    """The record of an Xid or SXid number; `kind` "" is told by the number's size."""
    kind = kind or ("sxid" if number >= SXID_FLOOR else "xid")
    check = checks["nvswitch.sxid" if kind == "sxid" else "xid"]
    row = (table.sxids if kind == "sxid" else table.xids).get(number)
    override = loaded.settings.gpu.xid.get(str(number))
    tabled = row.node_class if row else NodeClass.CHECK
    node_class = override.value if override else str(tabled)
    facts = [("Class", _class_sentence(node_class, check, loaded))]
    if override:
        source = loaded.sources.get(show_key("gpu", "xid", str(number)), "configuration")
        facts.append(("Override", f"by {source}; the table says {tabled}"))
    facts += _row_facts(row)
    if node_class != DECODE:
        limits = effective_limits(check, loaded.settings)
        app, check_time = duration(limits.get("app_seconds")), duration(limits.get("check_seconds"))
        facts.append(("Ends when", _XID_ENDS[NodeClass(node_class)].format(app=app, check=check_time)))
    title = row.meaning if row else "not in the table of this version; taken as class check"
    linked = sorted(row.linked) if row else []
    fields = {"known": row is not None, "override": override is not None, "linked": linked}
    name = f"{'SXid' if kind == 'sxid' else 'Xid'} {number}"
    return Record(
        kind=kind, what=f"{kind} {number}", name=name, title=title, check_id=check.id,
        node_class=node_class, facts=tuple(facts), fields=fields, number=number,
    )


def _class_sentence(node_class: str, check: Check, loaded: Loaded) -> str:
    if node_class == DECODE:
        return "told by the line itself; check where it cannot be read"
    return f"{node_class}: {_means(check, NodeClass(node_class), loaded)}"


def _means(check: Check, node_class: NodeClass, loaded: Loaded) -> str:
    return class_means(node_class, check.family, loaded.settings.cluster.taint_prefix)


def _row_facts(row: Any) -> list[tuple[str, str]]:
    """What the table says besides meaning and class; an SXid row has fewer fields."""
    facts = []
    if getattr(row, "note", ""):
        facts.append(("Note", row.note))
    if getattr(row, "repeat", None):
        unit = " on the same unit" if row.repeat_by else ""
        facts.append(("Repeated", f"class {row.repeat.value} from the second time within 30 days{unit}"))
    if getattr(row, "hold_seconds", 0):
        held = duration(row.hold_seconds)
        facts.append(("Held", f"shown as class app for {held}, unless the driver then asks for nothing"))
    if getattr(row, "linked", None):
        facts.append(("Seen with", ", ".join(str(number) for number in sorted(row.linked))))
    return facts


def _shown(value: Any, unit: str) -> str:
    text = show(list(value) if isinstance(value, tuple) else value)
    return f"{text} {unit}" if unit else text
