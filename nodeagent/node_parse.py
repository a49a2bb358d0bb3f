"""Turns the JSON of a v1.Node into `NodeObject`. Pure; whatever it is fed it answers or raises DriverError.

Foreign taints are kept as the server wrote them, since a patch that changes ours has to name them unchanged.
"""

from __future__ import annotations

import ipaddress

import msgspec
from msgspec import Raw, Struct

from nodeagent.cluster import NodeCondition, NodeObject, NodeTaint
from nodeagent.errors import DriverError, ErrorKind

MAX_TEXT_CHARACTERS = 64 << 10
"""Longest value of an annotation of ours; a longer one is none of ours and is left out."""
OWN_CONDITIONS = "NodeAgent"
"""Beginning of the types of our own conditions."""
MAX_ADDRESSES = 32


class _Managed(Struct):
    manager: str = ""
    time: str = ""
    fieldsV1: Raw = Raw()


class _Metadata(Struct):
    uid: str
    name: str
    resourceVersion: str = ""
    annotations: dict[str, str] | None = None
    managedFields: list[_Managed] | None = None


class _Taint(Struct):
    key: str
    effect: str
    value: str | None = None


class _Spec(Struct):
    taints: Raw = Raw()
    unschedulable: bool | None = None
    podCIDR: str | None = None
    podCIDRs: list[str] | None = None


class _Condition(Struct):
    type: str
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class _Address(Struct):
    type: str = ""
    address: str = ""


class _Status(Struct):
    conditions: list[_Condition] | None = None
    addresses: list[_Address] | None = None


class _Node(Struct):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


class _OwnedSpec(Struct):
    taints: Raw = msgspec.field(name="f:taints", default=Raw())


class _Owned(Struct):
    spec: _OwnedSpec | None = msgspec.field(name="f:spec", default=None)


_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_nodes = msgspec.json.Decoder(_Node)
_taints = msgspec.json.Decoder(list[_Taint] | None)
_owned = msgspec.json.Decoder(_Owned)


def parse_node(data: bytes, prefix: str = "nodeagent.io") -> NodeObject:
    """The Node; `prefix` is the domain of our own annotations. Raises DriverError(invalid)."""
    try:
        node = _nodes.decode(data)
        spec, status = node.spec or _Spec(), node.status or _Status()
        taints_json = bytes(spec.taints).decode() or "null"
        taints = _taints.decode(taints_json) or []
    except _ERRORS as error:
        raise DriverError(ErrorKind.INVALID, "node", "decode node", f"not a v1.Node: {error}") from error
    metadata = node.metadata
    return NodeObject(
        uid=metadata.uid, name=metadata.name, resource_version=metadata.resourceVersion,
        taints=tuple(NodeTaint(key=t.key, effect=t.effect, value=t.value or "") for t in taints),
        taints_json=taints_json,
        unschedulable=bool(spec.unschedulable),
        conditions=tuple(
            NodeCondition(
                type=c.type, status=c.status or "", reason=c.reason or "",
                message=(c.message or "") if c.type.startswith(OWN_CONDITIONS) else "",
            )
            for c in status.conditions or ()
        ),
        has_annotations=metadata.annotations is not None,
        annotations={
            key: text for key, text in sorted((metadata.annotations or {}).items())
            if key.startswith(f"{prefix}/") and len(text) <= MAX_TEXT_CHARACTERS
        },
        addresses=_addresses(status.addresses or []),
        pod_cidrs=tuple(spec.podCIDRs or ([spec.podCIDR] if spec.podCIDR else [])),
        taints_manager=_taints_manager(metadata.managedFields or []),
    )


def _addresses(given: list[_Address]) -> tuple[str, ...]:
    """Those that are IP addresses; names of hosts are of no use here."""
    found = []
    for entry in given[:MAX_ADDRESSES]:
        try:
            found.append(str(ipaddress.ip_address(entry.address)))
        except ValueError:
            continue
    return tuple(dict.fromkeys(found))


def _taints_manager(entries: list[_Managed]) -> str:
    """Who changed the taints last, among those who own them; times in RFC 3339 compare as text."""
    owners = [entry for entry in entries if _owns_taints(entry.fieldsV1)]
    return max(owners, key=lambda entry: entry.time).manager if owners else ""


def _owns_taints(fields: Raw) -> bool:
    try:
        spec = _owned.decode(fields).spec
    except _ERRORS:
        return False
    return spec is not None and bool(bytes(spec.taints))
