"""The event catalogue: every line of the journal that an operator may build upon, as data.

Name and MESSAGE_ID of an event never change once released: alerts and `journalctl MESSAGE_ID=...` hang
on them. `systemd/nodeagent.catalog` is generated from this table (`make catalog`). Nothing here reads a
value or decides what is logged.
"""

from __future__ import annotations

import enum
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeagent.report.cluster_events import CLUSTER_EVENTS

_STATUS = "nodeagent status"
_EXPLAIN = "nodeagent explain @NODEAGENT_CHECK@"


class Priority(enum.IntEnum):
    """The syslog priorities in use."""

    CRITICAL = 2
    ERROR = 3
    WARNING = 4
    NOTICE = 5
    """A change of state."""
    INFO = 6
    DEBUG = 7


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event; its sentence is a format string over its fields."""

    name: str
    message_id: str
    priority: Priority
    sentence: str
    fields: tuple[str, ...]
    meaning: str
    first_steps: tuple[str, ...]
    by_state: bool = False
    """The field `state` sets the priority: critical 2, warning and unknown 4, else as given."""
    runbook: str = ""
    """Check whose page explains the event where no field `check` names one."""

    def priority_of(self, fields: Mapping[str, Any]) -> Priority:
        """Return the priority of one event with these fields."""
        if not self.by_state:
            return self.priority
        return _PRIORITY_OF_STATE.get(str(fields.get("state", "")), self.priority)


_PRIORITY_OF_STATE = {"critical": Priority.CRITICAL, "warning": Priority.WARNING, "unknown": Priority.WARNING}

_KINDS = (
    EventKind(
        "started",
        "17f6ea6439384b83a4a9eadbb98b45d0",
        Priority.INFO,
        "nodeagent {version} started on {node}.",
        ("version", "node"),
        "The agent has begun its first cycle. It is not ready before every signal was tried once.",
        ("systemctl status nodeagent",),
    ),
    EventKind(
        "ready",
        "9e45f23a39cc414bb77cb899980787c0",
        Priority.INFO,
        "Ready after {duration_seconds} s: {state}, {checks} checks.",
        ("duration_seconds", "state", "checks"),
        "The first full cycle is over; from now on the status and the metrics speak of this node.",
        (_STATUS,),
    ),
    EventKind(
        "verdict_changed",
        "ec106e3e046b4e63ab1145d6c40290d2",
        Priority.NOTICE,
        "Node is {state}, was {previous}: {reason}",
        ("state", "previous", "reason"),
        "The worst standing fault decides the node's verdict; the findings behind it have own lines.",
        (_STATUS, "nodeagent history"),
        by_state=True,
    ),
    EventKind(
        "finding_raised",
        "ee89c1136ede4d25b67d3027bac3b5df",
        Priority.NOTICE,
        "{check} on {target} is {state}, was {previous}: {reason}",
        ("check", "target", "state", "previous", "reason", "cause"),
        "The check was bad as often as its hold asks for. It stays raised until its clear rule is met; "
        "faults of class reset and reboot clear only after a reset or reboot that was seen.",
        (_EXPLAIN, "nodeagent check @NODEAGENT_CHECK@"),
        by_state=True,
    ),
    EventKind(
        "finding_cleared",
        "f93d02d646e24bb09ae7ca3b77021a75",
        Priority.NOTICE,
        "{check} on {target} is {state}, was {previous}.",
        ("check", "target", "state", "previous"),
        "The check was good long enough, and where its class asks for it, a reset or reboot was seen.",
        ("nodeagent history",),
    ),
    EventKind(
        "signal_unread",
        "c21be4aabbdf4d319ec71869507f80d6",
        Priority.WARNING,
        "{check} on {target} cannot be judged: {reason}",
        ("check", "target", "state", "previous", "reason"),
        "A value could not be read. That is neither healthy nor sick: a fault that stood before stays in "
        "force, and no new one is raised from it.",
        (_EXPLAIN, _STATUS),
    ),
    EventKind(
        "worker_stuck",
        "b2ef65e3535c45278fcd4ffb3b2f6df6",
        Priority.ERROR,
        "The {worker} worker hangs in {call} since {duration_seconds} s.",
        ("worker", "pid", "call", "duration_seconds"),
        "A call into the driver or the kernel does not return. The agent itself goes on; values of this "
        "worker are unread meanwhile.",
        (_STATUS, "cat /proc/@NODEAGENT_PID@/stack", "dmesg --level=err,warn | tail -n 50"),
        runbook="driver.stuck",
    ),
    EventKind(
        "worker_replaced",
        "3a7bc813b72944cba70f059145944bdc",
        Priority.WARNING,
        "The {worker} worker was replaced: {reason}",
        ("worker", "pid", "reason"),
        "The disposable child that reads the GPUs or the host ended and a new one took its place. Once is "
        "harmless, often is not.",
        (_STATUS, "journalctl -t nodeagent MESSAGE_ID=3a7bc813b72944cba70f059145944bdc"),
    ),
    EventKind(
        "xid_seen",
        "3c44fd7617e347ce8bfdb25c00f970a0",
        Priority.WARNING,
        "Xid {xid} on {target}: {reason}",
        ("xid", "target", "class", "reason", "source", "count", "caused_by"),
        "The NVIDIA driver reported an error of this number. Its class says whether an application, a GPU "
        "reset, a reboot or the vendor is the cure.",
        ("nodeagent explain xid.@NODEAGENT_XID@", _STATUS, "dmesg | grep -i xid"),
        runbook="xid",
    ),
    EventKind(
        "xid_forgotten",
        "682878d771ee40349f757683aa0d4bff",
        Priority.WARNING,
        "{count} Xid records were forgotten, too many are kept.",
        ("count",),
        "The memory of Xids is bounded; harmless and cleared ones go first, what asks for a reset or "
        "reboot goes last.",
        (_STATUS, "dmesg | grep -i xid"),
        runbook="xid",
    ),
    EventKind(
        "kmsg_gap",
        "218a6488bbf942b5a1895b5dd09cafef",
        Priority.WARNING,
        "The kernel log dropped {lost_records} records before they were read.",
        ("lost_records",),
        "The kernel wrote faster than its ring buffer holds. An Xid may have been among the lost records; "
        "NVML is the second source.",
        ("dmesg | tail -n 50", _STATUS),
        runbook="xid",
    ),
    EventKind(
        "config_reloaded",
        "7dfba2b0b0744933a77a5029af6b7496",
        Priority.NOTICE,
        "Configuration reloaded.",
        (),
        "The files were read and are in force.",
        ("nodeagent config show",),
    ),
    EventKind(
        "config_rejected",
        "c017518eda2c433492c342d65d736888",
        Priority.ERROR,
        "Configuration rejected, the one before stays in force: {reason}",
        ("reason",),
        "A file has an error, so nothing of it was taken over. A restart with this file would fail with exit "
        "status 78.",
        ("nodeagent config check", "systemctl reload nodeagent"),
    ),
    EventKind(
        "annotation_rejected",
        "8d5f0c1e4b7a4f0f9a1d6c27e3b95a42",
        Priority.WARNING,
        "{pod}: {annotation} is {value}: {reason}. In force: {in_force}",
        ("pod", "annotation", "value", "reason", "in_force"),
        "A pod asks for an internet limit or guarantee that cannot be taken. What was good before holds; the "
        "tap is never opened by a bad value.",
        ("nodeagent check network.annotation", "nodeagent explain network.annotation"),
        runbook="network.annotation",
    ),
    EventKind(
        "state_set_aside",
        "357e9cc45c304c28824edd669e0e64ea",
        Priority.WARNING,
        "State file could not be used and was kept as {path}: {reason}",
        ("path", "reason"),
        "The agent began with an empty memory: holds, silences and history start anew. Standing faults are "
        "found again by their checks.",
        ("ls -l /var/lib/nodeagent", _STATUS),
        runbook="agent.state",
    ),
    EventKind(
        "state_unwritable",
        "c0be306d0f41498aaf1dbe6ff5d6a52a",
        Priority.ERROR,
        "State cannot be saved: {reason}",
        ("path", "reason"),
        "A restart now would forget holds, silences and history since the last save. Checks go on.",
        ("df -h /var/lib/nodeagent", "findmnt --target /var/lib/nodeagent"),
        runbook="agent.state",
    ),
    EventKind(
        "gpu_released",
        "d17c6deea172492398f30e0cf1a33ebc",
        Priority.NOTICE,
        "GPUs released: {reason}",
        ("reason", "duration_seconds", "user_id"),
        "The agent holds no GPU open, so that a reset or a driver upgrade can go on. GPU checks are not "
        "applicable meanwhile.",
        ("nodeagent gpu resume", _STATUS),
    ),
    EventKind(
        "gpu_resumed",
        "cdc8ab2c8b7e4cbaad666e9020e980a8",
        Priority.NOTICE,
        "GPUs are watched again: {reason}",
        ("reason", "user_id"),
        "The agent reads the GPUs again.",
        (_STATUS,),
    ),
    EventKind(
        "gpu_repaired",
        "859773d41e3748b9909257953bdb614c",
        Priority.NOTICE,
        "{target} is reported repaired: {reason}",
        ("target", "reason", "user_id"),
        "Faults of it that are not read again clear by this word, those of class vendor too. What is still "
        "read as bad stands.",
        (_STATUS, "nodeagent check"),
    ),
    EventKind(
        "silence_begun",
        "5e0c2f7a91d84b36a3f40d8be2c71596",
        Priority.NOTICE,
        "{check} on {target} is silenced for {duration_seconds} s by {owner}: {reason}",
        ("check", "target", "silence", "owner", "user_id", "duration_seconds", "reason"),
        "Faults of this check are found and shown as before, but ask for no taint until the silence ends.",
        ("nodeagent silence --list", "nodeagent unsilence @NODEAGENT_SILENCE@", _EXPLAIN),
    ),
    EventKind(
        "silence_ended",
        "c84d19b0e6f2473f8b157ac93d60ef21",
        Priority.NOTICE,
        "The silence of {check} on {target} has ended: {reason}",
        ("check", "target", "silence", "owner", "user_id", "reason"),
        "What still stands of this check asks for its taint again.",
        (_STATUS, _EXPLAIN),
    ),
    EventKind(
        "op_failed",
        "75d69c8ed595421a8689adf26180243e",
        Priority.ERROR,
        "{op} on {target} failed: {reason}",
        ("op", "target", "reason"),
        "The agent wanted to change something on this node and could not. It tries again in a later cycle.",
        (_STATUS,),
    ),
    EventKind(
        "input_dropped",
        "ddb82d0b790843a1863fff597c84b979",
        Priority.WARNING,
        "{count} events were dropped because the inbox was full.",
        ("count",),
        "More happened on this node than the agent takes in at once, as in a storm of Xids. What the checks "
        "poll is not affected.",
        (_STATUS, "dmesg | tail -n 50"),
    ),
    EventKind(
        "stopping",
        "387dfd42dc2644c487ec354c5a33b47c",
        Priority.INFO,
        "Stopping: {reason}",
        ("reason",),
        "The agent leaves what it has set on this node as it is.",
        ("systemctl status nodeagent",),
    ),
    *(
        EventKind(name, identity, Priority(priority), sentence, fields, meaning, first_steps)
        for name, identity, priority, sentence, fields, meaning, first_steps in CLUSTER_EVENTS
    ),
)

CATALOGUE: Mapping[str, EventKind] = {kind.name: kind for kind in _KINDS}
"""Every kind of event, by name."""


def catalog_text() -> str:
    """Return the text of `nodeagent.catalog` for `journalctl --update-catalog`."""
    head = "# Generated from nodeagent/report/events.py by `make catalog`; edits here are lost.\n"
    return head + "".join(_entry(kind) for kind in _KINDS)


def _entry(kind: EventKind) -> str:
    steps = "".join(f"    {step}\n" for step in kind.first_steps)
    return (
        f"\n-- {kind.message_id}\n"
        f"Subject: {_subject(kind)}\n"
        f"Defined-By: nodeagent\n"
        f"\n{textwrap.fill(kind.meaning, 90)}\n"
        f"\nFirst steps:\n{steps}"
    )


def _subject(kind: EventKind) -> str:
    as_fields = {name: f"@NODEAGENT_{name.upper()}@" for name in kind.fields}
    return kind.sentence.format_map(as_fields).rstrip(".")


if __name__ == "__main__":
    sys.stdout.write(catalog_text())
