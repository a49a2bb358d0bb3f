"""What `nodeagent self-test` tries, as data: requests that must be allowed, and others that must not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

ALLOWED, FENCE, NO_RIGHT = "allowed", "refused by the fence", "no right"
DRY_RUN: Mapping[str, str] = MappingProxyType({"dryRun": "All"})
FOREIGN = "not-ours.invalid"
"""A domain that nobody has."""
_ACCOUNT = "system:serviceaccount:"


class Whoami(NamedTuple):
    """Who the server takes us for."""

    user: str
    node_name: str
    """Claim of the token, "" when it has none."""
    node_uid: str

    @property
    def namespace(self) -> str:
        """Of the service account, "" when the user is none."""
        return self.user.removeprefix(_ACCOUNT).split(":")[0] if self.user.startswith(_ACCOUNT) else ""


class Known(NamedTuple):
    """The own Node as the first attempt's answer shows it."""

    taints: tuple[Any, ...] = ()
    """As the server wrote them: a patch of taints replaces the whole list."""
    unschedulable: bool | None = None
    """None when not known."""


class Attempt(NamedTuple):
    """One request, to be sent as a dry run."""

    tried: str
    expected: str
    verb: str
    """patch (strategic) | create"""
    path: tuple[str, ...]
    body: Any


class Right(NamedTuple):
    """What no role may give; asked for by a review, since trying it would be a deed."""

    tried: str
    verb: str
    group: str
    resource: str

    def attributes(self) -> dict[str, str]:
        """As a SelfSubjectAccessReview wants it."""
        return {"verb": self.verb, "group": self.group, "resource": self.resource}


def first_attempt(node: str, prefix: str) -> Attempt:
    """The first thing that the agent's work needs; its answer is the own Node, which it may not read."""
    mine = f"{prefix}/self-test"
    return Attempt(f"annotate the own node, {mine}", ALLOWED, "patch", _node(node), _annotation(mine))


def own_attempts(node: str, who: Whoami, prefix: str, known: Known) -> tuple[Attempt, ...]:
    """What else the agent's work needs."""
    mine = f"{prefix}/self-test"
    return (
        Attempt(f"taint the own node, {mine}:NoSchedule", ALLOWED, "patch", _node(node),
                _taint(known, mine)),
        Attempt("set condition NodeAgentSelfTest on the own node", ALLOWED, "patch",
                _node(node, "status"), _condition("NodeAgentSelfTest")),
        Attempt("take a slot of the brake as the own node", ALLOWED, "create", _leases(who),
                _slot(node, node, who.node_uid)),
        Attempt("tell an event about the own node", ALLOWED, "create", _EVENTS, _event(node)),
    )


def refused_attempts(
    node: str, who: Whoami, prefix: str, known: Known, other_node: str
) -> tuple[Attempt, ...]:
    """What the fence has to refuse. `other_node`: "" = none is known."""
    theirs, stranger = f"{FOREIGN}/self-test", other_node or FOREIGN
    attempts = [
        Attempt(f"annotate the own node, {theirs}", FENCE, "patch", _node(node), _annotation(theirs)),
        Attempt("label the own node", FENCE, "patch", _node(node),
                {"metadata": {"labels": {f"{prefix}/self-test": "tried"}}}),
        Attempt(f"taint the own node, {theirs}:NoSchedule", FENCE, "patch", _node(node),
                _taint(known, theirs)),
        Attempt(f"taint the own node, {prefix}/self-test:NoExecute", FENCE, "patch", _node(node),
                _taint(known, f"{prefix}/self-test", "NoExecute")),
        Attempt("set condition SelfTest on the own node", FENCE, "patch", _node(node, "status"),
                _condition("SelfTest")),
        Attempt("take a slot of the brake as another node", FENCE, "create", _leases(who),
                _slot(stranger, node, who.node_uid)),
        Attempt("tell an event about another node", FENCE, "create", _EVENTS, _event(stranger)),
    ]
    if known.unschedulable is not None:
        deed = "uncordon" if known.unschedulable else "cordon"
        attempts.append(Attempt(f"{deed} the own node", FENCE, "patch", _node(node),
                                {"spec": {"unschedulable": not known.unschedulable}}))
    if other_node:
        attempts.append(Attempt(
            f"annotate node {other_node}, {prefix}/self-test", FENCE, "patch", _node(other_node),
            _annotation(f"{prefix}/self-test")))
    return tuple(attempts)


def rights() -> tuple[Right, ...]:
    """The account must have none of these."""
    return (
        Right("asked for the right to read secrets", "get", "", "secrets"),
        Right("asked for the right to delete nodes", "delete", "", "nodes"),
        Right("asked for the right to do everything", "*", "*", "*"),
    )


_EVENTS = ("apis", "events.k8s.io", "v1", "namespaces", "default", "events")


def _node(name: str, *more: str) -> tuple[str, ...]:
    return ("api", "v1", "nodes", name, *more)


def _leases(who: Whoami) -> tuple[str, ...]:
    return ("apis", "coordination.k8s.io", "v1", "namespaces", who.namespace or "default", "leases")


def _annotation(key: str) -> Any:
    return {"metadata": {"annotations": {key: "tried"}}}


def _taint(known: Known, key: str, effect: str = "NoSchedule") -> Any:
    return {"spec": {"taints": [*known.taints, {"key": key, "value": "tried", "effect": effect}]}}


def _condition(kind: str) -> Any:
    return {"status": {"conditions": [{"type": kind, "status": "False", "reason": "Tried"}]}}


def _slot(holder: str, node: str, uid: str) -> Any:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid or "unknown"}
    return {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "brake-self-test-0", "ownerReferences": [owner]},
        "spec": {"holderIdentity": holder},
    }


def _event(node: str) -> Any:
    return {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": f"{node}.self-test"},
        "eventTime": "2000-01-01T00:00:00.000000Z", "type": "Normal", "action": "Try", "reason": "SelfTest",
        "reportingController": "nodeagent/self-test", "reportingInstance": node[:128], "note": "a dry run",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
