"""What the agent's account can do, asked of the real admission chain: its own node and marks, no more."""

from __future__ import annotations

import pytest

from tests.kube import fence_cases as cases
from tests.kube import fence_objects as objects
from tests.kube.api import NODES, Api
from tests.kube.deployed import OTHER, OWN, Deployed
from tests.kube.fence_cases import ALLOWED, BEFORE, FENCE, NEW, PREFIX, ROLES, Case

MATRIX = (
    *cases.TAINTS, *cases.METADATA, *cases.OTHER_SPEC, *cases.STATUS, *cases.IDENTITY, *objects.SLOTS,
    *objects.NOTICES, *objects.NO_ROLE,
)


@pytest.mark.parametrize("case", MATRIX, ids=lambda case: case.claim)
def test_a_request_meets_what_is_meant_for_it(deployed: Deployed, case: Case) -> None:
    """Each row is allowed, refused by the fence, or refused by the roles, as it says."""
    assert deployed.verdict(deployed.ask(case)) == case.expected


def test_the_matrix_has_no_two_rows_of_one_name_and_every_verdict() -> None:
    """A row is found by its claim, and no verdict goes untested."""
    assert len({case.claim for case in MATRIX}) == len(MATRIX)
    assert {case.expected for case in MATRIX} == {ALLOWED, FENCE, ROLES}


def test_what_is_allowed_is_kept_and_nothing_else_changes(deployed: Deployed) -> None:
    """Taint, ledger and condition are written for good, then taken away; the Node is as before."""
    before = deployed.plane.admin(Api.get, f"{NODES}/{OWN}").expect()
    put = [{"op": "test", "path": "/metadata/uid", "value": before["metadata"]["uid"]},
           {"op": "test", "path": "/spec/taints", "value": BEFORE},
           {"op": "add", "path": "/spec/taints", "value": [*BEFORE, NEW]},
           {"op": "add", "path": f"/metadata/annotations/{PREFIX}~1new", "value": "1"}]
    take = [{"op": "test", "path": "/spec/taints", "value": [*BEFORE, NEW]},
            {"op": "add", "path": "/spec/taints", "value": BEFORE},
            {"op": "remove", "path": f"/metadata/annotations/{PREFIX}~1new"}]

    for body in (put, take):
        case = Case("", ALLOWED, "PATCH", f"{NODES}/OWN", body)
        assert deployed.verdict(deployed.ask(case, dry_run=False)) == ALLOWED
    for condition in (cases.CONDITION, {"type": cases.CONDITION["type"], "$patch": "delete"}):
        body = {"status": {"conditions": [condition]}}
        case = Case("", ALLOWED, "PATCH", f"{NODES}/OWN/status", body, "strategic")
        assert deployed.verdict(deployed.ask(case, dry_run=False)) == ALLOWED

    after = deployed.plane.admin(Api.get, f"{NODES}/{OWN}").expect()
    assert [after[part] for part in ("spec", "status")] == [before[part] for part in ("spec", "status")]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


@pytest.mark.parametrize(("path", "status"), [
    ("/api/v1/pods?fieldSelector=spec.nodeName=OWN", 200),
    ("/api/v1/nodes/OWN", 200),
    ("/api/v1/nodes?fieldSelector=metadata.name=OWN", 200),
    ("/api/v1/pods?fieldSelector=spec.nodeName=OTHER", 403),
    ("/api/v1/pods", 403),
    ("/api/v1/nodes/OTHER", 403),
    ("/api/v1/nodes", 403),
    ("/api/v1/namespaces/nodeagent/secrets/a", 403),
])
def test_reads_as_the_node_end_at_the_node(deployed: Deployed, path: str, status: int) -> None:
    """Impersonating the associated node reads its own Node and pods, nothing of another."""
    token = deployed.plane.node_token("nodeagent", OWN, "nodeagent")
    path = path.replace("OWN", OWN).replace("OTHER", OTHER)

    answer = deployed.as_node(token, OWN, path)

    assert answer.status == status, answer.body


def test_no_agent_acts_as_another_node(deployed: Deployed) -> None:
    """Neither with a token of this node nor with one of none."""
    for token in (deployed.plane.node_token("nodeagent", OWN, "nodeagent"),
                  deployed.plane.token("nodeagent", "nodeagent")):
        assert deployed.as_node(token, OTHER, f"{NODES}/{OTHER}").status == 403


def test_the_fence_is_for_the_agent_alone(deployed: Deployed) -> None:
    """Whoever else may write Nodes, Leases and events goes on as before."""
    label = {"metadata": {"labels": {"example.com/a": "1"}}}
    lease, event = objects.lease("any-name", "any"), objects.event("any-name", "any", "Pod")

    for method, path, body in (
        ("PATCH", f"{NODES}/{OWN}", label), ("POST", objects.LEASES.format("nodeagent"), lease),
        ("POST", objects.EVENTS.format("default"), event),
    ):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        deployed.plane.admin(Api.request, method, f"{path}?dryRun=All", body, kind).expect()
