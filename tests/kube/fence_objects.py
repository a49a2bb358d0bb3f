"""The writes of other objects than Nodes, and what no role gives, as data; names as in `fence_cases`."""

from __future__ import annotations

from typing import Any

from tests.kube.fence_cases import ALLOWED, FENCE, ROLES, Case

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
HELD = "/apis/coordination.k8s.io/v1/namespaces/nodeagent/leases/brake-held-{}"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
NODES = "/api/v1/nodes"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "OWN", "uid": "UID"}


def lease(name: str, holder: str, *owners: dict[str, Any]) -> dict[str, Any]:
    """A Lease object."""
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "ownerReferences": list(owners)}, "spec": {"holderIdentity": holder}}


def event(name: str, about: str, kind: str = "Node") -> dict[str, Any]:
    """An events.k8s.io Event."""
    return {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "action": "Watch", "reason": "Test",
        "reportingController": "nodeagent.io/nodeagent", "reportingInstance": "one", "note": "a note",
        "regarding": {"kind": kind, "name": about, "apiVersion": "v1"},
    }


def _slot(claim: str, expected: str, body: dict[str, Any], namespace: str = "nodeagent", **more: Any) -> Case:
    return Case(claim, expected, "POST", LEASES.format(namespace), body, **more)


def _event(claim: str, expected: str, body: dict[str, Any], namespace: str = "default", **more: Any) -> Case:
    return Case(claim, expected, "POST", EVENTS.format(namespace), body, **more)


SLOTS = (
    _slot("slot", ALLOWED, lease("brake-default-9", "OWN", OWNER)),
    _slot("slot of a pool with dots", ALLOWED, lease("brake-h100.eu-1", "OWN", OWNER)),
    _slot("slot, token of a pod", ALLOWED, lease("brake-default-9", "OWN", OWNER), who="pod"),
    _slot("slot for another holder", FENCE, lease("brake-default-9", "OTHER", OWNER)),
    _slot("slot without holder", FENCE, lease("brake-default-9", "", OWNER)),
    _slot("slot without owner", FENCE, lease("brake-default-9", "OWN")),
    _slot("slot of another owner", FENCE, lease("brake-default-9", "OWN", {**OWNER, "name": "OTHER"})),
    _slot("slot of an owner that is gone", FENCE, lease("brake-default-9", "OWN", {**OWNER, "uid": "gone"})),
    _slot("slot with two owners", FENCE,
          lease("brake-default-9", "OWN", OWNER, {**OWNER, "kind": "Pod", "name": "a"})),
    _slot("slot without number", FENCE, lease("brake-default", "OWN", OWNER)),
    _slot("lease of another name", FENCE, lease("kube-scheduler", "OWN", OWNER)),
    _slot("slot, unbound token", FENCE, lease("brake-default-9", "", OWNER), who="unbound"),
    _slot("lease elsewhere", ROLES, lease("brake-default-9", "OWN", OWNER), "default"),
    Case("own slot given back", ALLOWED, "DELETE", HELD.format(0), None),
    Case("another node's slot given back", FENCE, "DELETE", HELD.format(1), None),
    Case("own slot given back, unbound token", FENCE, "DELETE", HELD.format(0), None, who="unbound"),
    Case("slot looked at", ALLOWED, "GET", HELD.format(1), None),
    Case("slots listed", ROLES, "GET", LEASES.format("nodeagent"), None),
    Case("slot changed", ROLES, "PATCH", HELD.format(0),
         {"spec": {"holderIdentity": "OWN"}}, "merge"),
    Case("all slots deleted", ROLES, "DELETE", LEASES.format("nodeagent"), None),
    Case("the node's own heartbeat", ROLES, "PATCH", LEASES.format("kube-node-lease") + "/OWN",
         {"spec": {"holderIdentity": "x"}}, "merge"),
)
NOTICES = (
    _event("event about the own node", ALLOWED, event("OWN.1", "OWN")),
    _event("event about another node", FENCE, event("OTHER.1", "OTHER")),
    _event("event under another node's name", FENCE, event("OTHER.1", "OWN")),
    _event("event about a pod", FENCE, event("OWN.1", "OWN", "Pod")),
    _event("event, unbound token", FENCE, event("OWN.1", "OWN"), who="unbound"),
    _event("event elsewhere", ROLES, event("OWN.1", "OWN"), "kube-system"),
)
NO_ROLE = (
    Case("Node created", ROLES, "POST", NODES, {"kind": "Node", "metadata": {"name": "new"}}),
    Case("own Node replaced", ROLES, "PUT", f"{NODES}/OWN", {"kind": "Node", "metadata": {"name": "OWN"}}),
    Case("own Node deleted", ROLES, "DELETE", f"{NODES}/OWN", None),
    Case("other Node deleted", ROLES, "DELETE", f"{NODES}/OTHER", None),
    Case("Nodes listed", ROLES, "GET", NODES, None),
    Case("Node read as the account", ROLES, "GET", f"{NODES}/OWN", None),
    Case("pods listed as the account", ROLES, "GET", "/api/v1/pods?fieldSelector=spec.nodeName=OWN", None),
    Case("secrets", ROLES, "GET", "/api/v1/secrets", None),
    Case("a token of its own making", ROLES, "POST",
         "/api/v1/namespaces/nodeagent/serviceaccounts/nodeagent/token", {"spec": {}}),
    Case("pod made", ROLES, "POST", "/api/v1/namespaces/nodeagent/pods", {"metadata": {"name": "a"}}),
    Case("pod evicted", ROLES, "POST", "/api/v1/namespaces/nodeagent/pods/agent-OWN/eviction",
         {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "agent-OWN"}}),
    Case("the fence taken down", ROLES, "DELETE",
         "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/nodeagent-own-node", None),
    Case("more rights", ROLES, "PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodeagent",
         {"rules": []}, "merge"),
)
