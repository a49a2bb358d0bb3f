"""The ops on the Node against a server that does its worst: each ends as one outcome that says what to do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from nodeagent.act.cluster import NodeWriter, taint_patch
from nodeagent.act.executor import Executor
from nodeagent.errors import ErrorKind
from nodeagent.model import Op, Plan
from nodeagent.signals import Outcome
from tests.drivers.rig import check_leaks, until
from tests.drivers.test_kube_client import Rig, Write, drip, flood, never, nonsense, reply

NODE = b'{"metadata": {"uid": "u", "name": "gpu-a17", "resourceVersion": "7"}}'
CAUSES = {"message": "no", "details": {"causes": [{"reason": "FieldValueInvalid", "field": "a.b"}]}}
EMPTY = {"message": "the server rejected our request", "reason": "Invalid", "details": {}}
FOREIGN = '[{"key":"example.com/a","effect":"NoSchedule"}]'
AFTER = FOREIGN[:-1] + ',{"key":"nodeagent.io/gpu-unhealthy","value":"xid","effect":"NoSchedule"}]'
NAME = "gpu-unhealthy:NoSchedule"


def op(kind: str = "node.taints", target: str = "gpu-a17", **changed: object) -> Op:
    """One op; `changed` arguments over those of a fresh taint."""
    arguments = {
        "uid": "u", "before": FOREIGN, "after": AFTER, "annotation": "nodeagent.io/ledger", "ledger": "{}",
        "ledger_stands": False, "has_annotations": True, "carries": [NAME], "conditions": [], "body": {},
    } | changed
    return Op(kind=kind, target=target, deadline_seconds=1.0, arguments=arguments)


def tried(
    tmp_path: Path, wanted: Op, *script: Write, held: str = ""
) -> tuple[Outcome, list[bytes], list[str]]:
    """What became of one op, the Nodes that were taken from answers, the requests that were sent."""
    rig, outcomes, nodes = Rig(tmp_path), [], []

    async def main() -> None:
        async with rig.client(*script) as client:
            writer = NodeWriter(client, "gpu-a17", answered=nodes.append, gate=lambda: held)
            executor = Executor("node", writer.perform, outcomes.append)
            task = asyncio.create_task(executor.run())
            executor.submit(Plan(executor="node", ops=(wanted,)))
            await until(lambda: bool(outcomes))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    check_leaks(main())
    return outcomes[0], nodes, rig.requests


@pytest.mark.parametrize(("answer", "kind", "is_stale", "least_seconds"), [
    (reply(409, {"reason": "Conflict"}), ErrorKind.BUSY, True, 0),
    (reply(422, EMPTY), ErrorKind.BUSY, True, 0),
    (reply(422, CAUSES), ErrorKind.INVALID, False, 0),
    (reply(403, {"reason": "Forbidden"}), ErrorKind.DENIED, False, 0),
    (reply(404, {"reason": "NotFound"}), ErrorKind.ABSENT, False, 0),
    (reply(429, b"Too many requests", "Retry-After: 8"), ErrorKind.BUSY, False, 8),
    (reply(500, b"panic"), ErrorKind.BUSY, False, 0),
    (reply(504, b""), ErrorKind.TIMEOUT, False, 0),
    (reply(200, NODE[:20], length=len(NODE)), ErrorKind.LOST, False, 0),
    (nonsense, ErrorKind.LOST, False, 0),
    (never, ErrorKind.TIMEOUT, False, 0),
    (drip, ErrorKind.TIMEOUT, False, 0),
    (flood, ErrorKind.INVALID, False, 0),
])  # fmt: skip
def test_every_failure_is_one_outcome(
    tmp_path: Path, answer: Write, kind: ErrorKind, is_stale: bool, least_seconds: float
) -> None:
    """One request, no Node taken, and what decide has to know: stale or not, the least wait."""
    wanted = msgspec.structs.replace(op(), deadline_seconds=5.0 if answer is flood else 1.0)
    outcome, nodes, requests = tried(tmp_path, wanted, answer)
    assert (outcome.ok, outcome.error_kind, outcome.is_stale) == (False, kind, is_stale)
    assert outcome.retry_after_seconds == least_seconds
    assert (nodes, len(requests)) == ([], 1)


def test_an_answer_is_the_base_of_the_next_write(tmp_path: Path) -> None:
    """The Node in it is taken, and what it carries now is told."""
    outcome, nodes, requests = tried(tmp_path, op(), reply(200, NODE))
    assert (outcome.ok, outcome.detail, nodes) == (True, NAME, [NODE])
    assert requests[0].startswith("PATCH /api/v1/nodes/gpu-a17 ")
    assert "Content-Type: application/json-patch+json" in requests[0]


def test_an_event_that_is_there_was_created(tmp_path: Path) -> None:
    """Its name is the same in each try, so 409 says that an earlier one went through."""
    outcome, _, requests = tried(tmp_path, op("event.create", "gpu-a17.0123"), reply(409, {}))
    assert (outcome.ok, outcome.detail) == (True, "was there")
    assert requests[0].startswith("POST /apis/events.k8s.io/v1/namespaces/default/events ")


@pytest.mark.parametrize(
    "wanted", [op(target="gpu-b01"), op("event.create", "gpu-b01.0123"), op("node.drain")])
def test_no_other_node_can_be_written(tmp_path: Path, wanted: Op) -> None:
    """Neither another name nor an unknown op leaves the process."""
    outcome, _, requests = tried(tmp_path, wanted, reply(200, NODE))
    assert (outcome.error_kind, requests) == (ErrorKind.INVALID, [])


@pytest.mark.parametrize("kind", ["node.taints", "node.conditions", "node.read"])
def test_a_closed_gate_lets_nothing_out(tmp_path: Path, kind: str) -> None:
    """Dry run, pause and kill switch hold what was planned before they were there."""
    outcome, _, requests = tried(tmp_path, op(kind), reply(200, NODE), held="the kill switch")
    assert not outcome.ok
    assert "the kill switch" in outcome.detail
    assert requests == []


def test_the_patch_tests_what_it_was_made_for() -> None:
    """uid and whole list first, then list and ledger; foreign taints stand in it as the server wrote them."""
    steps = [(s["op"], s["path"]) for s in taint_patch(op())]
    assert steps == [
        ("test", "/metadata/uid"), ("test", "/spec/taints"), ("add", "/spec/taints"),
        ("add", "/metadata/annotations/nodeagent.io~1ledger"),
    ]
    assert bytes(taint_patch(op())[2]["value"]).decode().startswith(FOREIGN[:-1])
    gone = taint_patch(op(before=AFTER, after="[]", ledger="", ledger_stands=True))
    assert json.loads(msgspec.json.encode(gone))[2:] == [
        {"op": "add", "path": "/spec/taints", "value": []},
        {"op": "remove", "path": "/metadata/annotations/nodeagent.io~1ledger"},
    ]
    first = taint_patch(op(before="null", has_annotations=False))
    assert [s["op"] for s in first] == ["test", "test", "add", "test", "add", "add"]
    assert json.loads(msgspec.json.encode(first))[1]["value"] is None
