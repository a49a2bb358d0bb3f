"""The own Node object from JSON: what a patch is based on is kept as the server wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodeagent.cluster import NodeTaint
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.node_parse import parse_node

METADATA = {"uid": "u1", "name": "a", "resourceVersion": "7"}
TAINT = {"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def parsed(spec: Any = None, **metadata: Any) -> Any:
    """A Node with that spec."""
    return parse_node(json.dumps({"metadata": {**METADATA, **metadata}, "spec": spec}).encode())


@pytest.mark.parametrize("spec", [None, {}, {"taints": None}])
def test_no_taints_are_null(spec: Any) -> None:
    """A patch has to test null where the list is absent."""
    node = parsed(spec)

    assert (node.taints, node.taints_json) == ((), "null")


def test_foreign_taints_stay_as_written() -> None:
    """Fields that are not known here are in the text that a patch tests."""
    node = parsed({"taints": [TAINT], "unschedulable": True, "podCIDR": "10.0.0.0/24"})

    assert node.taints == (NodeTaint(key="k", effect="NoExecute"),)
    assert json.loads(node.taints_json) == [TAINT]
    assert (node.unschedulable, node.pod_cidrs) == (True, ("10.0.0.0/24",))


def test_only_own_annotations_are_kept_and_an_absent_map_is_told() -> None:
    """An empty selection is not an absent map."""
    node = parsed(annotations={"nodeagent.io/ledger": "{}", "example.com/x": "y"})

    assert (node.annotations, node.has_annotations) == ({"nodeagent.io/ledger": "{}"}, True)
    assert parsed().has_annotations is False


def test_the_last_manager_of_taints_is_told() -> None:
    """Of those who own spec.taints the newest; who owns anything else is not asked."""
    owned = {"f:spec": {"f:taints": {}}}
    entries = [
        {"manager": "old", "time": "2026-01-01T00:00:00Z", "fieldsV1": owned},
        {"manager": "new", "time": "2026-01-02T00:00:00Z", "fieldsV1": owned},
        {"manager": "other", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:status": {}}},
        {"manager": "none", "time": "2026-01-04T00:00:00Z"},
        {"manager": "odd", "time": "2026-01-05T00:00:00Z", "fieldsV1": "text"},
    ]

    assert parsed(managedFields=entries).taints_manager == "new"
    assert parsed().taints_manager == ""


@pytest.mark.parametrize("text", [
    b"", b"null", b"[]", b"{", b'{"metadata":{}}', b'{"metadata":{"uid":1,"name":"a"}}', b"\xff",
    b'{"metadata":{"uid":"u","name":"a"},"spec":{"taints":{}}}', b"[" * 100_000,
])  # fmt: skip
def test_what_is_no_node_is_refused(text: bytes) -> None:
    """One kind of error for whatever it is fed."""
    with pytest.raises(DriverError) as caught:
        parse_node(text)

    assert caught.value.kind is ErrorKind.INVALID
