"""The one parser of pods: what it takes, what it leaves out, and that nothing makes it fail otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent import pod_parse
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.pod_parse import PodTable, parse_pod, parse_pod_list
from nodeagent.traffic import Pod, PodPhase


def item(**changes: Any) -> dict[str, Any]:
    """A plain running pod as the API gives it; `changes` by dotted path with `__` for the dot."""
    pod: dict[str, Any] = {
        "metadata": {"uid": "0b7c", "name": "web-0", "namespace": "shop", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.5", "podIPs": [{"ip": "10.0.0.5"}]},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = pod
        for parent in parents:
            at = at[parent]
        at[last] = value
    return pod


def listed(*items: Any, kind: str = "PodList") -> bytes:
    """A list of these items as JSON."""
    return json.dumps({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": list(items)}).encode()


def test_a_plain_pod_keeps_what_the_agent_needs() -> None:
    """Identity, address, phase and our own annotations come through; foreign annotations do not."""
    notes = {"nodeagent.io/internet-egress-limit": "10M", "kubernetes.io/egress-bandwidth": "1G", "x/y": "z"}

    pod = parse_pod(json.dumps(item(metadata__annotations=notes)).encode())

    assert pod == Pod(
        uid="0b7c", namespace="shop", name="web-0", addresses=("10.0.0.5",), phase=PodPhase.RUNNING,
        annotations={k: v for k, v in notes.items() if k != "x/y"},
    )


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"status__podIPs": [{"ip": "10.0.0.5"}, {"ip": "FD00:0::5"}]}, "addresses", ("10.0.0.5", "fd00::5")),
        ({"status__podIPs": None}, "addresses", ("10.0.0.5",)),
        ({"status": None}, "addresses", ()),
        ({"status__podIP": "", "status__podIPs": []}, "addresses", ()),
        ({"spec__hostNetwork": True}, "host_network", True),
        ({"spec": None}, "host_network", False),
        ({"status__phase": "Failed"}, "finished", True),
        ({"status__phase": "Odd"}, "phase", PodPhase.UNKNOWN),
        ({"metadata__deletionTimestamp": "2030-01-01T00:00:00Z"}, "terminating", True),
        ({"metadata__creationTimestamp": "2030-01-01T00:00:00Z"}, "created", "2030-01-01T00:00:00Z"),
        ({"metadata__creationTimestamp": "yesterday"}, "created", ""),
        ({"metadata__annotations": None}, "annotations", {}),
        ({"metadata__annotations": {"nodeagent.io/a": "x" * 999}}, "annotations",
         {"nodeagent.io/a": "x" * 256}),
    ],
)  # fmt: skip
def test_each_field_is_read_as_it_stands(changes: dict[str, Any], field: str, value: object) -> None:
    """Dual stack, missing parts, host network, phases and deletion are told apart."""
    assert getattr(parse_pod(json.dumps(item(**changes)).encode()), field) == value


ODD = [
    (7, "not a v1.Pod"),
    ({}, "not a v1.Pod"),
    (item(metadata__uid=""), "metadata.uid"),
    (item(metadata__uid="A/B"), "metadata.uid"),
    (item(metadata__namespace="a.b"), "metadata.namespace"),
    (item(metadata__namespace="x" * 64), "metadata.namespace"),
    (item(metadata__name="../etc"), "metadata.name"),
    (item(metadata__name="a\n"), "metadata.name"),
    (item(metadata__name="a." * 126 + "aa"), "metadata.name"),
    (item(metadata__annotations={"nodeagent.io/a": 5}), "not a v1.Pod"),
    (item(status__podIP="10.0.0.300"), "no address"),
    (item(status__podIP="0.0.0.0"), "no address of a pod"),
    (item(status__podIP="fe80::1%eth0"), "no address of a pod"),
    (item(status__podIP="::ffff:10.0.0.1"), "no address of a pod"),
    (item(status__podIP="10.0.0.1/8"), "no address"),
    (item(status__podIPs=[{"ip": f"10.0.1.{n}"} for n in range(9)]), "addresses"),
]


@pytest.mark.parametrize(("odd", "reason"), ODD, ids=[str(n) for n in range(len(ODD))])
def test_an_odd_pod_never_loses_the_others(odd: object, reason: str) -> None:
    """The others stay, the odd one is counted, and the first reason names what is wrong."""
    other = item(metadata__uid="other")

    pods = parse_pod_list(listed(odd, other, odd), "file")

    assert [pod.uid for pod in pods.pods] == ["other"]
    assert pods.skipped == 2
    assert pods.skipped_reason.startswith("item 0: ") and reason in pods.skipped_reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not a v1.PodList"),
        (b"{}", "not a v1.PodList"),
        (b'{"kind": "PodList"}', "not a v1.PodList"),
        (b"[" * 100_000, "not a v1.PodList"),
        (b'\xff\xfe{"kind"', "not a v1.PodList"),
        (listed(item())[:-5], "not a v1.PodList"),
        (listed(item(), kind="Status"), "kind is 'Status'"),
    ],
)
def test_what_is_no_list_is_one_error(text: bytes, reason: str) -> None:
    """Nothing that is no whole list passes for an empty one."""
    with pytest.raises(DriverError) as caught:
        parse_pod_list(text, "file")

    assert caught.value.kind is ErrorKind.INVALID
    assert caught.value.detail.startswith(reason)


def test_an_empty_list_is_a_list() -> None:
    """A node without pods has a list of none, also where the server writes null."""
    texts = [listed(), b'{"kind":"PodList","items":null}', listed(kind="List")]

    assert [parse_pod_list(text, "file").pods for text in texts] == [(), (), ()]


def test_a_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods behind the first thousand are counted as skipped; a text over the limit is refused."""
    many = parse_pod_list(listed(*(item(metadata__uid=f"u{n}") for n in range(1003))), "file")
    monkeypatch.setattr(pod_parse, "MAX_BYTES", 10)

    assert (len(many.pods), many.skipped) == (1000, 3)
    assert many.skipped_reason == "there are 1003 pods, only 1000 are read"
    with pytest.raises(DriverError, match="larger than"):
        parse_pod_list(listed(), "file")


def test_a_uid_counts_once() -> None:
    """Of two pods with one uid the first is kept."""
    pods = parse_pod_list(listed(item(), item(metadata__name="web-1")), "file")

    assert [pod.name for pod in pods.pods] == ["web-0"]
    assert "occurs twice" in pods.skipped_reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["metadata", "uid", "name", "namespace", "status", "podIPs", "ip", "spec", "phase"])
        | st.text(), inner,
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(JSON, max_size=5))
def test_any_items_leave_the_good_pod(items: list[Any]) -> None:
    """Whatever stands beside it, a good pod is found, and every item is either a pod or skipped."""
    pods = parse_pod_list(listed(*items, item(metadata__uid="good")), "file")

    assert "good" in [pod.uid for pod in pods.pods]
    assert len(pods.pods) + pods.skipped == len(items) + 1


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_list_or_one_error(data: bytes) -> None:
    """No input raises anything but DriverError(invalid)."""
    try:
        parse_pod_list(data, "file")
    except DriverError as error:
        assert error.kind is ErrorKind.INVALID


@given(st.dictionaries(st.sampled_from(["podIP", "phase"]), st.text()), st.text(), st.text())
def test_what_passes_is_safe_to_write(status: dict[str, str], name: str, uid: str) -> None:
    """Names and uids that pass have no character that means something in a comment, path or terminal."""
    try:
        pod = parse_pod(json.dumps(item(status=status, metadata__name=name, metadata__uid=uid)).encode())
    except DriverError:
        return
    assert set(pod.name + pod.uid) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


def test_a_table_follows_events_and_counts_what_is_no_pod() -> None:
    """A later event of a uid replaces the earlier one, both ways; what was odd and goes is gone."""
    good, odd = item(), item(metadata__name="Not A Name")
    table = PodTable()

    def told(*, put: object = None, drop: object = None) -> tuple[int, int]:
        if put is not None:
            table.put(json.dumps(put).encode())
        if drop is not None:
            table.drop(json.dumps(drop).encode())
        pods = table.pods("api")
        return len(pods.pods), pods.skipped

    assert told(put=good) == (1, 0)
    assert told(put=good) == (1, 0)
    assert told(put=odd) == (0, 1)
    assert told(put=good) == (1, 0)
    assert told(put=[1]) == (1, 1)
    assert told(drop=[1]) == (1, 0)
    assert told(drop=odd) == (0, 0)
    assert told(drop=good) == (0, 0)
