"""The events of the API server in the journal, a part of the catalogue in `events.py`: data only."""

from __future__ import annotations

from typing import Any

CLUSTER_EVENTS: tuple[tuple[Any, ...], ...] = (
    (
        "taint_set",
        "be0b9debe490447da77e3c6289db92dd",
        5,
        "Taint {key}={value}:{effect} is on the Node.",
        ("key", "value", "effect", "by"),
        "A fault asks that no new pods come to this node. The taint and its entry in the ledger "
        "annotation were read back from the API server.",
        ("nodeagent status", "kubectl describe node"),
    ),
    (
        "taint_removed",
        "5fe5051869f44e00a3e9c1f29a5779c7",
        5,
        "Taint {key}:{effect} is off the Node.",
        ("key", "value", "effect", "by"),
        "The faults that asked for it are proven gone. No foreign taint was touched.",
        ("nodeagent status", "nodeagent history"),
    ),
    (
        "taint_withheld",
        "dfd122500b0347388c57053078d5c05e",
        4,
        "Taint {key}:{effect} was removed by {by} and is not set again.",
        ("key", "value", "effect", "by"),
        "A person removed the taint while its fault stands. That is obeyed until the fault ends, a "
        "new one comes or the node boots.",
        ("nodeagent status", "nodeagent explain xid"),
    ),
    (
        "taint_contested",
        "3b814e4f533b43628d9cbf0fca683576",
        4,
        "Taint {key}:{effect} was removed twice by {by}; the agent gives way.",
        ("key", "value", "effect", "by"),
        "Another program takes the taint away again and again. It is not fought: find it by "
        "metadata.managedFields of the Node.",
        ("nodeagent status", "kubectl get node --show-managed-fields -o yaml"),
    ),
    (
        "writes_paused",
        "9a0d04a3be40497b8573b77f2dd62eba",
        4,
        "Writes to the API server are paused for {duration_seconds} s: {reason}",
        ("reason", "duration_seconds", "user_id"),
        "Nothing is written to the API server until the pause ends: no taint is set and none is lifted.",
        ("nodeagent unpause", "nodeagent status"),
    ),
    (
        "writes_resumed",
        "ac6c8160baa24a4ea8f9d9d95d09fb45",
        5,
        "Writes to the API server go on: {reason}",
        ("reason", "user_id"),
        "What was wanted meanwhile is written now.",
        ("nodeagent status",),
    ),
    (
        "node_released",
        "2f15efcc98dc4e0aa0b35ca7ef5d33a6",
        4,
        "Everything of ours is taken off the Node.",
        ("reason", "duration_seconds", "user_id"),
        "Taints, ledger and conditions of ours are removed, and nothing is put there until it is told.",
        ("nodeagent node resume", "nodeagent status"),
    ),
)
"""name, message id, priority, sentence, fields, meaning, first steps"""
