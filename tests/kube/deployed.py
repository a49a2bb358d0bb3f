"""`daemonset.yaml` on the real server, two Nodes, and tokens of the agent's account of every kind."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.kube.api import NAMESPACES, NODES, PATCH_TYPES, Answer, Api, node, pod
from tests.kube.fence_cases import ALLOWED, ANNOTATIONS, BEFORE, CONDITIONS, FENCE, ROLES, Case
from tests.kube.fence_objects import LEASES, lease
from tests.kube.plane import PORT, ROOT, ControlPlane

NAMESPACE = ACCOUNT = "nodeagent"
MANIFEST = ROOT / "daemonset.yaml"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
CLAIM = "Impersonate-Extra-authentication.kubernetes.io%2Fnode-"
OWN, OTHER = "fenced-own", "fenced-other"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def apply(plane: ControlPlane, *more: str) -> subprocess.CompletedProcess[str]:
    """Server-side apply, as the first line of the file says."""
    done = plane.kubectl("apply", "--server-side", "-f", str(MANIFEST), *more)
    assert done.returncode == 0, done.stderr
    return done


class Deployed:
    """The cluster of the fence's tests."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        apply(plane)
        self.uids = {name: self._make_node(name) for name in (OWN, OTHER)}
        self._make_slots()
        self._tokens = {
            "node": plane.node_token(ACCOUNT, OWN, NAMESPACE),
            "pod": self._pod_token(OWN),
            "unbound": plane.token(ACCOUNT, NAMESPACE),
        }
        self.until_fenced()

    def _make_node(self, name: str) -> str:
        admin = self.plane.admin
        body = {**node(name), "metadata": {"name": name, "annotations": ANNOTATIONS}}
        made = admin(Api.post, NODES, body).expect()
        admin(Api.patch, f"{NODES}/{name}", {"spec": {"taints": BEFORE}}, "merge").expect()
        admin(Api.patch, f"{NODES}/{name}/status", {"status": {"conditions": CONDITIONS}}, "merge").expect()
        return str(made["metadata"]["uid"])

    def _make_slots(self) -> None:
        for number, name in enumerate((OWN, OTHER)):
            body = lease(f"brake-held-{number}", name)
            self.plane.admin(Api.post, LEASES.format(NAMESPACE), body).expect()

    def _pod_token(self, name: str) -> str:
        body = pod(f"agent-{name}", name, NAMESPACE)
        body["spec"]["serviceAccountName"] = ACCOUNT
        made = self.plane.admin(Api.post, f"{NAMESPACES}/{NAMESPACE}/pods", body).expect()["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": made["name"], "uid": made["uid"]}
        return self.plane.token(ACCOUNT, NAMESPACE, boundObjectRef=bound)

    def until_fenced(self, fenced: bool = True) -> None:
        """Return when the fence acts (or no longer does): a change of it takes about a second."""
        case = Case("", FENCE, "PATCH", f"{NODES}/OWN", {"metadata": {"labels": {"a": "1"}}}, "merge")
        wanted = FENCE if fenced else ALLOWED
        self.plane.until(lambda: self.verdict(self.ask(case)) == wanted)

    # ------------------------------------------------------------------ use

    def ask(self, case: Case, *, dry_run: bool = True) -> Answer:
        """Send the request of a case."""
        named = json.dumps([case.path, case.body]).replace("OWN", OWN).replace("OTHER", OTHER)
        path, body = json.loads(named.replace("UID", self.uids[OWN]))
        if dry_run and case.method != "GET":
            path += "?dryRun=All"
        kind = PATCH_TYPES[case.kind] if case.method == "PATCH" else "application/json"
        return self.send(case.who, case.method, path, body, kind)

    def send(self, who: str, *request: Any) -> Answer:
        """One request as the account with a token of that kind."""
        if who in self._tokens:
            return self.plane.as_token(self._tokens[who], Api.request, *request)
        claims = {} if who == "legacy" else {f"{CLAIM}name": OWN, f"{CLAIM}uid": "of-the-node-before"}
        return self.plane.as_someone({"Impersonate-User": USER, **claims}, Api.request, *request)

    def as_node(self, token: str, name: str, path: str) -> Answer:
        """GET with the token of the account, impersonating a node."""
        plane = self.plane
        headers = {"Authorization": f"Bearer {token}", "Impersonate-User": f"system:node:{name}"}
        return plane.capsule.inside(Api(PORT, plane.pki.ca, headers=headers).get, path)

    @staticmethod
    def verdict(answer: Answer) -> str:
        """Which part of the server let it through or refused it; the answer's own words for anything else."""
        if 200 <= answer.status < 300:
            return ALLOWED
        if answer.status == 403 and isinstance(answer.body, dict):
            causes = answer.body.get("details", {}).get("causes")
            if causes and "ValidatingAdmissionPolicy 'nodeagent-own-" in answer.body["message"]:
                return FENCE
            if not causes and f'User "{USER}" cannot' in answer.body["message"]:
                return ROLES
        return f"{answer.status}: {answer.body}"
