"""Every write that the fence has an opinion on, as data: who, what, and who lets it through or refuses it.

OWN and OTHER stand for the names of two Nodes, UID for the uid of the first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

PREFIX = "nodeagent.io"
ALLOWED, FENCE, ROLES = "allowed", "refused by the fence", "refused by the roles"
FOREIGN_A = {"key": "example.com/a", "value": "1", "effect": "NoSchedule"}
FOREIGN_B = {"key": "example.com/b", "effect": "NoExecute"}
MINE = {"key": f"{PREFIX}/gpu-unhealthy", "value": "xid", "effect": "NoSchedule"}
BEFORE: list[dict[str, Any]] = [FOREIGN_A, MINE, FOREIGN_B]
"""Taints that stand on both Nodes. So do the annotations and conditions below."""
ANNOTATIONS = {"example.com/a": "1", f"{PREFIX}/ledger": "{}"}
CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "NodeAgentGpu", "status": "True"}]


class Case(NamedTuple):
    """One request of the agent's account."""

    claim: str
    expected: str
    method: str
    path: str
    body: Any
    kind: str = "json"
    """Of a patch."""
    who: str = "node"
    """Token: node | pod | unbound | legacy | gone (of a Node of that name before)."""


def _node(claim: str, expected: str, body: Any, kind: str = "merge", **more: Any) -> Case:
    return Case(claim, expected, "PATCH", f"/api/v1/nodes/{more.pop('name', 'OWN')}", body, kind, **more)


def _status(claim: str, expected: str, body: Any, kind: str = "strategic", **more: Any) -> Case:
    path = f"/api/v1/nodes/{more.pop('name', 'OWN')}/status"
    return Case(claim, expected, "PATCH", path, body, kind, **more)


def _taints(claim: str, expected: str, *taints: dict[str, Any], **more: Any) -> Case:
    patch = [{"op": "test", "path": "/spec/taints", "value": BEFORE},
             {"op": "add", "path": "/spec/taints", "value": list(taints)}]
    return _node(claim, expected, patch, "json", **more)


def _annotation(claim: str, expected: str, key: str, value: str | None, **more: Any) -> Case:
    return _node(claim, expected, {"metadata": {"annotations": {key: value}}}, **more)


def _condition(claim: str, expected: str, condition: dict[str, Any], **more: Any) -> Case:
    return _status(claim, expected, {"status": {"conditions": [condition]}}, **more)


NEW = {"key": f"{PREFIX}/node-unhealthy", "value": "disk.full", "effect": "NoSchedule"}
TAINTS = (
    _taints("own taint after foreign ones", ALLOWED, *BEFORE, NEW),
    _taints("own taint before foreign ones", ALLOWED, NEW, *BEFORE),
    _taints("own taint changed", ALLOWED, FOREIGN_A, {**MINE, "value": "ecc"}, FOREIGN_B),
    _taints("own taint lifted", ALLOWED, FOREIGN_A, FOREIGN_B),
    _taints("nothing changed", ALLOWED, *BEFORE),
    _taints("own taint, token of a pod", ALLOWED, *BEFORE, NEW, who="pod"),
    _taints("foreign taint lifted", FENCE, MINE, FOREIGN_B),
    _taints("foreign taint changed", FENCE, {**FOREIGN_A, "value": "2"}, MINE, FOREIGN_B),
    _taints("foreign taints in another order", FENCE, FOREIGN_B, MINE, FOREIGN_A),
    _taints("foreign taint set", FENCE, *BEFORE, {"key": "example.com/c", "effect": "NoSchedule"}),
    _taints("foreign taint given a time", FENCE, FOREIGN_A, MINE,
            {**FOREIGN_B, "timeAdded": "2026-01-01T00:00:00Z"}),
    _taints("longer domain than ours", FENCE, *BEFORE, {**NEW, "key": "nodeagent.iox/a"}),
    _taints("domain below ours", FENCE, *BEFORE, {**NEW, "key": "x.nodeagent.io/a"}),
    _taints("the domain without a slash", FENCE, *BEFORE, {**NEW, "key": "nodeagent.io"}),
    _taints("own taint that evicts", FENCE, *BEFORE, {**NEW, "effect": "NoExecute"}),
    _taints("own taint made one that evicts", FENCE, FOREIGN_A, {**MINE, "effect": "NoExecute"}, FOREIGN_B),
    _taints("all taints lifted", FENCE),
)
METADATA = (
    _annotation("own annotation changed", ALLOWED, f"{PREFIX}/ledger", "{1}"),
    _annotation("own annotation set", ALLOWED, f"{PREFIX}/other", "x"),
    _annotation("own annotation removed", ALLOWED, f"{PREFIX}/ledger", None),
    _annotation("foreign annotation changed", FENCE, "example.com/a", "2"),
    _annotation("foreign annotation set", FENCE, "example.com/b", "1"),
    _annotation("foreign annotation removed", FENCE, "example.com/a", None),
    _annotation("annotation of a longer domain", FENCE, "nodeagent.iox/a", "1"),
    _annotation("foreign annotation, by status", FENCE, "example.com/b", "1", name="OWN/status"),
    _node("foreign label", FENCE, {"metadata": {"labels": {"example.com/a": "1"}}}),
    _node("own label", FENCE, {"metadata": {"labels": {f"{PREFIX}/a": "1"}}}),
    _status("label, by status", FENCE, {"metadata": {"labels": {f"{PREFIX}/a": "1"}}}),
    _node("finalizer", FENCE, {"metadata": {"finalizers": ["example.com/stay"]}}),
    _node("owner", FENCE, {"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "OTHER", "uid": "UID"}]}}),
)
OTHER_SPEC = (
    _node("cordon", FENCE, {"spec": {"unschedulable": True}}),
    _node("providerID where it is empty", FENCE, {"spec": {"providerID": "cloud://1"}}),
    _node("podCIDR where it is empty", FENCE,
          {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}}),
)
CONDITION = {"type": "NodeAgentDisk", "status": "True", "reason": "Full"}
STATUS = (
    _condition("own condition set", ALLOWED, CONDITION),
    _condition("own condition changed", ALLOWED, {"type": "NodeAgentGpu", "status": "False"}),
    _condition("own condition removed", ALLOWED, {"type": "NodeAgentGpu", "$patch": "delete"}),
    _condition("own condition, token of a pod", ALLOWED, CONDITION, who="pod"),
    _condition("foreign condition set", FENCE, {"type": "GpuBroken", "status": "True"}),
    _condition("foreign condition changed", FENCE, {"type": "Ready", "status": "False"}),
    _condition("foreign condition removed", FENCE, {"type": "Ready", "$patch": "delete"}),
    _status("conditions replaced as a whole", FENCE, {"status": {"conditions": [CONDITION]}}, "merge"),
    _status("capacity", FENCE, {"status": {"capacity": {"nvidia.com/gpu": "8"}}}),
    _status("allocatable", FENCE, {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}),
    _status("address", FENCE, {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}),
    _status("kubelet's port", FENCE, {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}),
    _status("node information", FENCE, {"status": {"nodeInfo": {"kernelVersion": "6"}}}, "merge"),
    _status("images", FENCE, {"status": {"images": [{"names": ["a"], "sizeBytes": 1}]}}),
    _status("volumes in use", FENCE, {"status": {"volumesInUse": ["a"]}}),
    _status("volumes attached", FENCE, {"status": {"volumesAttached": [{"name": "a", "devicePath": ""}]}}),
    _status("runtime handlers", FENCE, {"status": {"runtimeHandlers": [{"name": "a"}]}}),
)
IDENTITY = tuple(
    case
    for who, name in (
        ("unbound", "OWN"), ("legacy", "OWN"), ("gone", "OWN"), ("node", "OTHER"), ("pod", "OTHER"))
    for case in (
        _taints(f"own taint on {name}, token: {who}", FENCE, *BEFORE, NEW, name=name, who=who),
        _taints(f"nothing changed on {name}, token: {who}", FENCE, *BEFORE, name=name, who=who),
        _annotation(f"own annotation on {name}, token: {who}", FENCE, f"{PREFIX}/a", "1", name=name, who=who),
        _condition(f"own condition on {name}, token: {who}", FENCE, CONDITION, name=name, who=who),
    )
)
