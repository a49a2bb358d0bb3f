"""A plain client for tests: one request, one connection, one answer; whatever the status, it is returned."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

REQUEST_SECONDS = 20.0
PATCH_TYPES = {
    "json": "application/json-patch+json", "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml",
}
NODES, NAMESPACES = "/api/v1/nodes", "/api/v1/namespaces"


class Answer(NamedTuple):
    """What the server said."""

    status: int
    headers: Mapping[str, str]
    body: Any
    """Decoded JSON, or the text."""

    def expect(self, *statuses: int) -> Any:
        """The body, when the status is one of these (default: any 2xx)."""
        good = self.status in statuses if statuses else 200 <= self.status < 300
        assert good, f"status {self.status}: {self.body}"
        return self.body


class Api:
    """The server as one user sees it: by certificate, or by token. To be called inside the capsule."""

    def __init__(
        self, port: int, ca: Path, *, pair: tuple[Path, Path] | None = None, token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(ca))
        if pair is not None:
            self._context.load_cert_chain(*pair)
        # Without a name the server keeps no managedFields of what is created.
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers = {"User-Agent": "test-admin", **bearer, **(headers or {})}

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Answer:
        """Send one request; `body` is encoded as JSON. Raises OSError when nobody answers."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=REQUEST_SECONDS)
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type, **self._headers} if data else self._headers
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return Answer(answer.status, answer.headers, json.loads(text) if is_json else text)
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        """GET."""
        return self.request("GET", path)

    def post(self, path: str, body: Any) -> Answer:
        """POST, which creates."""
        return self.request("POST", path, body)

    def patch(self, path: str, body: Any, kind: str = "json") -> Answer:
        """PATCH of one of PATCH_TYPES."""
        return self.request("PATCH", path, body, PATCH_TYPES[kind])

    def delete(self, path: str, body: Any = None) -> Answer:
        """DELETE."""
        return self.request("DELETE", path, body)


def node(name: str, **labels: str) -> dict[str, Any]:
    """A Node object."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def pod(name: str, node_name: str, namespace: str = "default", **annotations: str) -> dict[str, Any]:
    """A Pod object bound to a node."""
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"nodeName": node_name, "automountServiceAccountToken": False,
                 "containers": [{"name": "main", "image": "example.invalid/main:1"}]},
    }


def account(name: str, namespace: str = "default") -> dict[str, Any]:
    """A ServiceAccount object."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def cluster_role(name: str, *rules: Mapping[str, Any]) -> dict[str, Any]:
    """A ClusterRole object."""
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": list(rules)}


def cluster_role_binding(role: str, namespace: str, account_name: str) -> dict[str, Any]:
    """A ClusterRoleBinding of that name, of one role to one service account."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account_name}],
    }
