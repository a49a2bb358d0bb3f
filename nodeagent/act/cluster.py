"""The ops on the own Node object: one attempt each, within the client's budget and deadline.

Before each one the gate is asked: a dry run, a pause and the kill switch stop writes here, whatever was
planned. Nothing here decides what is written, and no other Node can be named.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw

from nodeagent.drivers.kube import ApiRefusal, KubeClient
from nodeagent.drivers.kube.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, path_of
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import Op

EVENTS = path_of("apis", "events.k8s.io", "v1", "namespaces", "default", "events")
CONFLICT = 409


class NodeWriter:
    """Carries out the ops of the node executor."""

    def __init__(
        self, client: KubeClient, node_name: str, *, answered: Callable[[bytes], None],
        gate: Callable[[], str], reads_as: Callable[[], str] = lambda: "",
    ) -> None:
        """`answered` takes each Node that an answer brings; `gate` says why nothing may be written now, ""
        when it may; `reads_as`: whom to impersonate for a read, "" for nobody."""
        self._client = client
        self._name = node_name
        self._path = path_of("api", "v1", "nodes", node_name)
        self._answered = answered
        self._gate = gate
        self._reads_as = reads_as
        self._verbs: dict[str, Callable[[Op], Awaitable[str]]] = {
            "node.read": self._read, "node.taints": self._taints, "node.conditions": self._conditions,
            "event.create": self._create, "event.fold": self._fold,
        }

    async def perform(self, op: Op) -> str:
        """Carry out one op; DriverError(denied) while writes are held, what the client raises otherwise."""
        verb = self._verbs.get(op.kind)
        own_event = op.kind.startswith("event.") and op.target.startswith(f"{self._name[:200]}.")
        if verb is None or not (own_event or op.target == self._name):
            raise DriverError(ErrorKind.INVALID, op.target, op.kind, "the node executor knows no such op")
        if held := self._gate():
            raise DriverError(ErrorKind.BUSY, op.target, op.kind, f"not written: {held}")
        return await verb(op)

    async def _read(self, _: Op) -> str:
        self._answered(await self._client.get(self._path, as_user=self._reads_as()))
        return "read"

    async def _taints(self, op: Op) -> str:
        """Returns the identities of our taints that the Node carries from now on."""
        self._answered(await self._client.patch(self._path, taint_patch(op), JSON_PATCH))
        return " ".join(op.arguments["carries"])

    async def _conditions(self, op: Op) -> str:
        given = op.arguments
        body = {"metadata": {"uid": given["uid"]}, "status": {"conditions": given["conditions"]}}
        self._answered(await self._client.patch(f"{self._path}/status", body, STRATEGIC_PATCH))
        return "written"

    async def _create(self, op: Op) -> str:
        try:
            await self._client.create(EVENTS, op.arguments["body"])
        except ApiRefusal as error:
            if error.status != CONFLICT:
                raise
            return "was there"
        return "created"

    async def _fold(self, op: Op) -> str:
        await self._client.patch(f"{EVENTS}/{path_of(op.target)[1:]}", op.arguments["body"], MERGE_PATCH)
        return "counted"


def taint_patch(op: Op) -> list[dict[str, Any]]:
    """The JSON Patch of `node.taints`: it fails as a whole where Node or list is not as it was seen."""
    given = op.arguments
    steps: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": given["uid"]},
        {"op": "test", "path": "/spec/taints", "value": Raw(given["before"].encode())},
    ]
    if given["after"] != given["before"]:
        steps.append({"op": "add", "path": "/spec/taints", "value": Raw(given["after"].encode())})
    pointer = f"/metadata/annotations/{given['annotation'].replace('~', '~0').replace('/', '~1')}"
    if not given["ledger"]:
        return [*steps, {"op": "remove", "path": pointer}] if given["ledger_stands"] else steps
    if not given["has_annotations"]:
        steps.append({"op": "test", "path": "/metadata/annotations", "value": None})
        steps.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    return [*steps, {"op": "add", "path": pointer, "value": given["ledger"]}]
