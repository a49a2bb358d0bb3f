"""`daemonset.yaml` on the real server: it applies alone, a second time changes nothing, it is well typed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from nodeagent import __version__
from tests.kube import deployed as deploying
from tests.kube.api import Answer, Api
from tests.kube.deployed import MANIFEST, POLICIES, Deployed
from tests.kube.plane import ROOT, ControlPlane

CONTROLLER = "validatingadmissionpolicy-status-controller"
PARTS = sorted((ROOT / "deploy").rglob("*.yaml"))
ACCOUNT = {"kind": "ServiceAccount", "name": "nodeagent", "namespace": "nodeagent"}


def objects() -> list[dict[str, Any]]:
    """Everything in the file, in its order."""
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def policies() -> dict[str, dict[str, Any]]:
    """The policies in the file by name."""
    return {o["metadata"]["name"]: o for o in objects() if o["kind"] == "ValidatingAdmissionPolicy"}


def test_the_file_is_what_its_parts_make() -> None:
    """`daemonset.yaml` is what `make manifest` would write now."""
    made = subprocess.run([ROOT / "scripts/manifest.sh"], capture_output=True, text=True, check=True).stdout

    assert made == MANIFEST.read_text(), "run: make manifest"


def test_the_file_names_this_version() -> None:
    """Image and labels say the version of the package."""
    [daemonset] = [o for o in objects() if o["kind"] == "DaemonSet"]
    template = daemonset["spec"]["template"]

    assert template["spec"]["containers"][0]["image"] == f"nodeagent:{__version__}"
    for labels in (daemonset["metadata"]["labels"], template["metadata"]["labels"]):
        assert labels["app.kubernetes.io/version"] == __version__


def test_the_fence_stands_before_the_rights() -> None:
    """Whoever applies the file is at no moment with an account that has rights and no fence; all is bound."""
    kinds = [o["kind"] for o in objects()]
    bound = {o["spec"]["policyName"]: o["spec"]["validationActions"] for o in objects()
             if o["kind"] == "ValidatingAdmissionPolicyBinding"}

    last = len(kinds) - 1 - kinds[::-1].index("ValidatingAdmissionPolicyBinding")
    assert last < kinds.index("ClusterRole")
    assert bound == {name: ["Deny"] for name in policies()}
    assert all(policy["spec"]["failurePolicy"] == "Fail" for policy in policies().values())


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.name)
def test_no_role_says_everything(path: Any) -> None:
    """No wildcard in any role, and no binding of anybody but the agent's account."""
    for item in yaml.safe_load_all(path.read_text()):
        for rule in item.get("rules", ()):
            assert not {"*"} & {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        for subject in item.get("subjects", ()):
            assert subject == ACCOUNT


def test_applying_it_again_changes_nothing(deployed: Deployed) -> None:
    """Every object keeps its resourceVersion, so nobody who watches it is told anything."""
    before = _versions(deployed.plane)
    deploying.apply(deployed.plane)

    assert _versions(deployed.plane) == before
    assert len(before) == len(objects())


def test_no_field_is_unknown_to_the_server(deployed: Deployed) -> None:
    """Strict validation, on the parts beside the file too; nothing of them is stored."""
    done = deployed.plane.kubectl("apply", "--server-side", "--validate=strict", "--dry-run=server",
                                  "-f", str(ROOT / "deploy"), "--recursive")

    assert (done.returncode, done.stderr) == (0, "")


def test_the_type_check_has_nothing_to_say(deployed: Deployed) -> None:
    """The server's own check of the expressions against its schemas has no warning, and could warn."""
    plane = deployed.plane
    wrong = policies()["nodeagent-own-node"]
    wrong["metadata"] = {"name": "type-check-can-fail"}
    wrong["spec"]["validations"] = [{"expression": "object.spec.noSuchField == 1"}]
    plane.admin(Api.post, POLICIES, wrong).expect(201)
    loop = plane.start_controllers(CONTROLLER)
    try:
        names = [*policies(), "type-check-can-fail"]
        plane.until(lambda: all(_checked(deployed, name) for name in names))
        found = {name: _status(deployed, name).get("typeChecking", {}) for name in names}
    finally:
        loop.stop()
        plane.admin(Api.delete, f"{POLICIES}/type-check-can-fail").expect()

    assert "noSuchField" in str(found.pop("type-check-can-fail"))
    assert found == {name: {} for name in policies()}


@pytest.mark.parametrize(("noun", "part"), [("NodeSpec", "spec"), ("NodeStatus", "status")])
def test_the_fence_names_every_field_of_a_node(deployed: Deployed, noun: str, part: str) -> None:
    """A field that a newer server brings is not fenced until the policy names it; this test then fails."""
    schemas = deployed.plane.admin(Api.get, "/openapi/v3/api/v1").expect()["components"]["schemas"]
    fields = set(schemas[f"io.k8s.api.core.v1.{noun}"]["properties"])

    assert compared(part) == fields
    assert len(fields) >= 7


def test_a_field_compared_on_one_side_only_is_no_field() -> None:
    """The search for the policy's fields does not take half a comparison for one."""
    assert compared("spec", ["object.spec.?a == oldObject.spec.?b"]) == set()
    assert compared("spec", ["object.spec.?a == oldObject.spec.?a"]) == {"a"}


def compared(part: str, expressions: Iterable[str] | None = None) -> set[str]:
    """Fields of `part` that the policy looks at in the old and in the new Node."""
    if expressions is None:
        spec = policies()["nodeagent-own-node"]["spec"]
        expressions = [item["expression"] for item in (*spec["variables"], *spec["validations"])]
    text = "\n".join(expressions).replace("dyn(object.status)", "object.status").replace(
        "dyn(oldObject.status)", "oldObject.status")
    new, old = (set(re.findall(rf"\b{name}\.{part}\.\?(\w+)", text)) for name in ("object", "oldObject"))
    return new & old


def _versions(plane: ControlPlane) -> dict[str, str]:
    done = plane.kubectl("get", "-f", str(MANIFEST), "-o", "json")
    return {f"{o['kind']}/{o['metadata'].get('namespace')}/{o['metadata']['name']}":
            o["metadata"]["resourceVersion"] for o in yaml.safe_load(done.stdout)["items"]}


def _read(deployed: Deployed, name: str) -> Answer:
    return deployed.plane.admin(Api.get, f"{POLICIES}/{name}")


def _status(deployed: Deployed, name: str) -> dict[str, Any]:
    return dict(_read(deployed, name).expect().get("status", {}))


def _checked(deployed: Deployed, name: str) -> bool:
    policy = _read(deployed, name).expect()
    return bool(policy.get("status", {}).get("observedGeneration") == policy["metadata"]["generation"])
