"""A Node object as the API server keeps it, and its answer to each op: what tests of plans run against.

Written from what a real server answers (docs/cluster.md); `tests/kube` holds the agent to the real one.
"""

from __future__ import annotations

import json
from typing import Any

from nodeagent.cluster import NodeObject
from nodeagent.errors import ErrorKind
from nodeagent.model import Op
from nodeagent.node_parse import parse_node
from nodeagent.signals import Outcome

FOREIGN: list[dict[str, Any]] = [
    {"key": "example.com/pool", "value": "a", "effect": "NoSchedule"},
    {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "timeAdded": "2026-11-30T03:12:40Z"},
]


class ApiModel:
    """One Node, its events, and who writes to it."""

    def __init__(self, taints: list[dict[str, Any]] | None = None) -> None:
        self.uid = "uid-1"
        self.version = 100
        self.taints: list[dict[str, Any]] = [dict(t) for t in (FOREIGN if taints is None else taints)]
        self.annotations: dict[str, str] = {"node.alpha.kubernetes.io/ttl": "0"}
        self.conditions: dict[str, dict[str, str]] = {"Ready": {"type": "Ready", "status": "True"}}
        self.events: dict[str, dict[str, Any]] = {}
        self.manager = "kube-controller-manager"
        self.writes: list[str] = []

    def node(self) -> NodeObject:
        """As the watch shows it."""
        spec = {"taints": self.taints} if self.taints else {}
        managed = [{"manager": self.manager, "time": "2026-11-30T03:12:40Z",
                    "fieldsV1": {"f:spec": {"f:taints": {}}}}] if self.taints else []
        return parse_node(json.dumps({
            "metadata": {"name": "gpu-a17", "uid": self.uid, "resourceVersion": str(self.version),
                         "annotations": self.annotations, "managedFields": managed},
            "spec": spec, "status": {"conditions": list(self.conditions.values())},
        }).encode())

    def foreign(self) -> list[dict[str, Any]]:
        """Taints of others."""
        return [t for t in self.taints if not t["key"].startswith("nodeagent.io/")]

    def own(self) -> dict[str, str]:
        """Values of our taints by key."""
        return {t["key"]: t.get("value", "") for t in self.taints if t["key"].startswith("nodeagent.io/")}

    def write(self, taints: list[dict[str, Any]], manager: str) -> None:
        """Somebody replaces the list."""
        self.taints, self.manager, self.version = taints, manager, self.version + 1

    def recreate(self) -> None:
        """The Node is deleted and registered anew under its name."""
        self.__init__([])  # type: ignore[misc]
        self.uid, self.version = "uid-2", 900

    # ------------------------------------------------------------------ ops

    def perform(self, op: Op) -> Outcome:
        """Carry out one op."""
        answer = {
            "node.read": self._read, "node.taints": self._taints, "node.conditions": self._conditions,
            "event.create": self._create, "event.fold": self._fold,
        }[op.kind]
        if op.kind != "node.read":
            self.writes.append(op.kind)
        refused = answer(op)
        if refused is None:
            detail = " ".join(op.arguments.get("carries", ()))
            return Outcome(op=op.kind, target=op.target, ok=True, detail=detail)
        return Outcome(op=op.kind, target=op.target, ok=False, error_kind=refused,
                       is_stale=refused is ErrorKind.BUSY)

    def _read(self, _: Op) -> None:
        return None

    def _taints(self, op: Op) -> ErrorKind | None:
        given = op.arguments
        before = json.loads(given["before"])
        stands = self.taints or None
        ledger_stands = given["annotation"] in self.annotations
        removes = not given["ledger"] and given["ledger_stands"]
        if given["uid"] != self.uid or before != stands or (removes and not ledger_stands):
            return ErrorKind.BUSY
        after = json.loads(given["after"]) or []
        names = [(t["key"], t["effect"]) for t in after]
        if len(set(names)) != len(names):
            return ErrorKind.INVALID
        if after != self.taints:
            self.manager = "nodeagent"
        self.taints = after
        if given["ledger"]:
            self.annotations[given["annotation"]] = given["ledger"]
        else:
            self.annotations.pop(given["annotation"], None)
        self.version += 1
        return None

    def _conditions(self, op: Op) -> ErrorKind | None:
        if op.arguments["uid"] != self.uid:
            return ErrorKind.INVALID
        for condition in op.arguments["conditions"]:
            if condition.get("$patch") == "delete":
                self.conditions.pop(condition["type"], None)
            else:
                self.conditions[condition["type"]] = dict(condition)
        self.version += 1
        return None

    def _create(self, op: Op) -> ErrorKind | None:
        self.events.setdefault(op.target, dict(op.arguments["body"]))
        return None

    def _fold(self, op: Op) -> ErrorKind | None:
        if op.target not in self.events:
            return ErrorKind.ABSENT
        self.events[op.target] |= op.arguments["body"]
        return None
