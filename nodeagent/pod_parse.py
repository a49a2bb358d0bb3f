"""Turns the JSON of pods into `Pod` nouns: one parser for file, kubelet and API.

Whatever it is fed it answers with nouns or DriverError(invalid). One odd pod never loses the others: it is
counted and the first reason is kept. Pure: it never reads anything.
"""

from __future__ import annotations

import functools
import ipaddress
import re

import msgspec
from msgspec import Raw, Struct

from nodeagent.dns_name import is_dns_label, is_dns_name
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import Pod, PodList, PodPhase

MAX_PODS = 1000
"""Items of one list that are looked at; a node holds a few hundred at most."""
MAX_BYTES = 64 << 20
"""Longest text of a list."""
MAX_KEY_BYTES = 512
MAX_ADDRESSES = 8
MAX_KNOWN = 8192
"""Addresses remembered as parsed: a list has mostly those of the list before."""
MAX_ANNOTATIONS = 32
MAX_ANNOTATION_CHARACTERS = 256
BANDWIDTH_ANNOTATION = "kubernetes.io/egress-bandwidth"
KINDS = ("PodList", "List")
""""List" is what `kubectl get pods -o json` prints."""

_TIME_PATTERN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)
_SHOWN_CHARACTERS = 60


class _Metadata(Struct):
    uid: str
    name: str
    namespace: str
    annotations: dict[str, str] | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None


class _Spec(Struct):
    hostNetwork: bool | None = None


class _Address(Struct):
    ip: str = ""


class _Status(Struct):
    phase: str | None = None
    podIP: str | None = None
    podIPs: list[_Address] | None = None


class _Item(Struct):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


class _List(Struct):
    kind: str
    items: list[Raw] | None


class _Uid(Struct):
    uid: str


class _Identified(Struct):
    metadata: _Uid


_identified = msgspec.json.Decoder(_Identified)
_lists = msgspec.json.Decoder(_List)
_items = msgspec.json.Decoder(_Item)


class _OddPod(ValueError):
    """Why one item is no pod that we can use."""


def parse_pod_list(data: bytes, source: str, prefix: str = "nodeagent.io") -> PodList:
    """The pods of a v1.PodList; `prefix` is the domain of our own annotations.

    Items that are not understood, repeat a uid or stand behind the first `MAX_PODS` are counted as
    skipped. Raises DriverError(invalid) when the whole is no list.
    """
    if len(data) > MAX_BYTES:
        raise _invalid(source, f"larger than {MAX_BYTES >> 20} MiB")
    try:
        whole = _lists.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _invalid(source, f"not a v1.PodList: {error}") from error
    if whole.kind not in KINDS:
        raise _invalid(source, f"kind is {_shown(whole.kind)}, it must be PodList")
    items = whole.items or []
    pods: dict[str, Pod] = {}
    reasons = [f"there are {len(items)} pods, only {MAX_PODS} are read"] if len(items) > MAX_PODS else []
    skipped = max(0, len(items) - MAX_PODS)
    for number, item in enumerate(items[:MAX_PODS]):
        try:
            pod = _pod(item, prefix)
            if pod.uid in pods:
                raise _OddPod(f"its uid {pod.uid} occurs twice")
        except _OddPod as odd:
            skipped += 1
            reasons.append(f"item {number}: {odd}")
        else:
            pods[pod.uid] = pod
    reason = reasons[0] if reasons else ""
    return PodList(source=source, pods=tuple(pods.values()), skipped=skipped, skipped_reason=reason)


def parse_pod(data: bytes, prefix: str = "nodeagent.io") -> Pod:
    """One v1.Pod; raises DriverError(invalid) with the reason."""
    try:
        return _pod(data, prefix)
    except _OddPod as odd:
        raise _invalid("pod", str(odd)) from odd


class PodTable:
    """The pods as the events of a watch tell them, one by one; it forgets none that still exists."""

    def __init__(self, prefix: str = "nodeagent.io") -> None:
        """`prefix`: domain of our own annotations."""
        self._prefix = prefix
        self._pods: dict[str, Pod] = {}
        self._odd: dict[str, str] = {}
        """What names an object that is no usable pod -> why."""

    def put(self, data: bytes) -> None:
        """A pod was added or changed."""
        key = _key(data)
        self._pods.pop(key, None)
        self._odd.pop(key, None)
        try:
            pod = _pod(data, self._prefix)
            if len(self._pods) >= MAX_PODS:
                raise _OddPod(f"there are more than {MAX_PODS} pods")
            self._pods[key] = pod
        except _OddPod as odd:
            if len(self._odd) < MAX_PODS:
                self._odd[key] = str(odd)

    def drop(self, data: bytes) -> None:
        """A pod is gone."""
        key = _key(data)
        self._pods.pop(key, None)
        self._odd.pop(key, None)

    def pods(self, source: str) -> PodList:
        """All of them as of now."""
        return PodList(
            source=source, pods=tuple(self._pods.values()), skipped=len(self._odd),
            skipped_reason=next(iter(self._odd.values()), ""),
        )


def _key(data: bytes) -> str:
    """The uid where there is one, else the whole text: an object that has none is known by itself only."""
    try:
        return _identified.decode(data).metadata.uid
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return repr(data[:MAX_KEY_BYTES])


def _pod(data: bytes | Raw, prefix: str) -> Pod:
    try:
        item = _items.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _OddPod(f"not a v1.Pod: {error}") from error
    metadata, status = item.metadata, item.status or _Status()
    _check_identity(metadata)
    return Pod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        addresses=_addresses(status),
        host_network=bool(item.spec and item.spec.hostNetwork),
        phase=_phase(status.phase),
        annotations=_annotations(metadata.annotations or {}, prefix),
        created=_time(metadata.creationTimestamp),
        terminating=metadata.deletionTimestamp is not None,
    )


def _check_identity(metadata: _Metadata) -> None:
    """Names become comments of kernel entries and parts of cgroup paths: nothing but DNS names gets there."""
    if not is_dns_label(metadata.namespace):
        raise _OddPod(f"metadata.namespace is {_shown(metadata.namespace)}, it must be a DNS label")
    if not is_dns_name(metadata.name):
        raise _OddPod(f"metadata.name is {_shown(metadata.name)}, it must be a DNS name")
    if not is_dns_label(metadata.uid):
        raise _OddPod(f"metadata.uid is {_shown(metadata.uid)}, it must be a uid")


def _addresses(status: _Status) -> tuple[str, ...]:
    texts = [address.ip for address in status.podIPs or []]
    if status.podIP:
        texts.insert(0, status.podIP)
    found = dict.fromkeys(canonical_address(text) for text in texts)
    if len(found) > MAX_ADDRESSES:
        raise _OddPod(f"it has {len(found)} addresses, more than {MAX_ADDRESSES}")
    return tuple(found)


@functools.lru_cache(maxsize=MAX_KNOWN)
def canonical_address(text: str) -> str:
    """The one text form of an address that a pod can have; ValueError for anything else."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise _OddPod(f"{_shown(text)} is no address") from None
    mapped = isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id)
    if mapped or address.is_unspecified or address.is_loopback or address.is_multicast:
        raise _OddPod(f"{_shown(text)} is no address of a pod")
    return str(address)


def _phase(text: str | None) -> PodPhase:
    try:
        return PodPhase(text or "")
    except ValueError:
        return PodPhase.UNKNOWN


def _time(text: str | None) -> str:
    """The time as the API writes it, else "": times are compared as text."""
    return text if text is not None and _TIME_PATTERN.fullmatch(text) else ""


def _annotations(given: dict[str, str], prefix: str) -> dict[str, str]:
    """Ours only, bounded: a value too long for any meaning stays too long when it is cut."""
    ours = {
        key: text[:MAX_ANNOTATION_CHARACTERS]
        for key, text in sorted(given.items())
        if key == BANDWIDTH_ANNOTATION or key.startswith(f"{prefix}/")
    }
    return dict(list(ours.items())[:MAX_ANNOTATIONS])


def _shown(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."


def _invalid(target: str, detail: str) -> DriverError:
    return DriverError(ErrorKind.INVALID, target, "decode pods", detail)
