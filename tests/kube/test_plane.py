"""The control plane that the other tests stand on: it is real, it records, and nothing is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.kube import plane as control
from tests.kube.api import NAMESPACES, NODES, Api, account, cluster_role, cluster_role_binding
from tests.kube.plane import ControlPlane

TAINT = {"key": "nodeagent.io/test", "value": "yes", "effect": "NoSchedule"}
ADD = [{"op": "add", "path": "/spec/taints/-", "value": TAINT}]


def test_a_node_is_tainted_and_the_audit_log_has_it(plane: ControlPlane, node: str) -> None:
    """A JSON Patch is kept as sent, and its request is on record with its user."""
    given = plane.admin(Api.get, f"{NODES}/{node}").expect(200)["spec"]["taints"]
    before = len(plane.audited())

    patched = plane.admin(Api.patch, f"{NODES}/{node}", ADD).expect(200)
    read = plane.admin(Api.get, f"{NODES}/{node}").expect(200)

    assert patched["spec"]["taints"] == [*given, TAINT] == read["spec"]["taints"]
    seen = [(e["verb"], e["user"]["username"], e["objectRef"]["name"], e["responseStatus"]["code"])
            for e in plane.audited(before) if e.get("objectRef", {}).get("resource") == "nodes"]
    assert seen == [("patch", "admin", node, 200), ("get", "admin", node, 200)]


def test_roles_hold_for_a_token_that_is_bound_to_a_node(plane: ControlPlane, node: str) -> None:
    """The token carries the node's name and uid; what no role gives is refused."""
    name = f"{node}-agent"
    plane.admin(Api.post, f"{NAMESPACES}/default/serviceaccounts", account(name)).expect(201)
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    plane.admin(Api.post, control.ROLES, cluster_role(name, rule)).expect(201)
    plane.admin(Api.post, control.BINDINGS, cluster_role_binding(name, "default", name)).expect(201)
    token = plane.node_token(name, node)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

    who = plane.as_token(token, Api.post, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)

    extra = who.expect(201)["status"]["userInfo"]["extra"]
    assert extra["authentication.kubernetes.io/node-name"] == [node]
    plane.until(lambda: plane.as_token(token, Api.get, f"{NODES}/{node}").status == 200)
    assert plane.as_token(token, Api.patch, f"{NODES}/{node}", ADD).status == 403


def test_kubectl_reaches_it(plane: ControlPlane, node: str) -> None:
    """The built kubectl and the administrator's kubeconfig work together."""
    done = plane.kubectl("get", "nodes", "-o", "name")

    assert f"node/{node}" in done.stdout.split(), done.stderr


def test_it_serves_again_after_a_kill(plane: ControlPlane, node: str) -> None:
    """The API server alone can be killed and started; what was stored is there."""
    plane.server.stop(9)
    with pytest.raises(OSError):
        plane.admin(Api.get, f"{NODES}/{node}")
    plane.start_server()

    assert plane.admin(Api.get, f"{NODES}/{node}").status == 200


@pytest.mark.parametrize("how", ["by itself", "by a failure", "by a kill"])
def test_nothing_is_left_of_it(plane: ControlPlane, tmp_path: Path, how: str) -> None:
    """No process and no folder: at its end, when its start fails, and when its owner is killed."""
    script = (
        "import os, signal\n"
        "from tests.kube.plane import ControlPlane\n"
        f"flags = ['--no-such-flag'] if {how == 'by a failure'} else []\n"
        "with ControlPlane(flags=flags) as plane:\n"
        "    print(plane.folder, flush=True)\n"
        f"    if {how == 'by a kill'}: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, processes.MARKER: str(tmp_path), "TMPDIR": str(tmp_path)}

    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=control.ROOT, env=environment, capture_output=True, text=True,
                          timeout=150, check=False)

    assert done.returncode == {"by itself": 0, "by a failure": 1, "by a kill": -9}[how], done.stderr
    plane.until(lambda: not processes.marked(str(tmp_path)))
    assert list(tmp_path.iterdir()) == [] or how == "by a kill"
