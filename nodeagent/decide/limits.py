"""What each pod may send to the internet: its annotations, its namespace's settings, the node's default.

The pod's word beats the namespace's, that beats the node's. A bad value never opens the tap: the pod's last
good one holds, and what was refused is remembered with a remedy. A hostNetwork pod has shares only by its
own annotation, because its packets are the host's unless it asks.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from nodeagent.model import Notice
from nodeagent.pod_parse import BANDWIDTH_ANNOTATION
from nodeagent.quantity import BadRate, bits_per_second, shown_rate
from nodeagent.settings import NetworkSettings, Settings
from nodeagent.shape_memory import BadAnnotation, OwnShares, ShapeMemory, Shares
from nodeagent.traffic import Pod, PodList

LIMIT, GUARANTEE = "internet-egress-limit", "internet-egress-guarantee"
"""Annotations, after the prefix and a slash."""
SHOWN_CHARACTERS = 60


class NamespaceShares(Struct, frozen=True, kw_only=True):
    """What the configuration gives each pod of one namespace; 0: nothing said."""

    limit_bits_per_second: int = 0
    guarantee_bits_per_second: int = 0


class ShapeOptions(Struct, frozen=True, kw_only=True):
    """What of the configuration shaping depends on."""

    budget_bits_per_second: int = 0
    """0: nothing is shaped."""
    pod_limit_bits_per_second: int = 0
    """0: the budget."""
    namespaces: dict[str, NamespaceShares] = {}
    adopt_egress_bandwidth: bool = False
    prefix: str = "nodeagent.io"
    """Domain of our annotations."""
    busy_percent: float = 90.0
    """From this share of its limit on a class is near it."""


def options(settings: Settings) -> ShapeOptions:
    """The shaping part of the configuration, as numbers."""
    network: NetworkSettings = settings.network
    return ShapeOptions(
        budget_bits_per_second=_bits(network.internet_budget),
        pod_limit_bits_per_second=_bits(network.pod_limit),
        namespaces={
            name: NamespaceShares(
                limit_bits_per_second=_bits(one.limit), guarantee_bits_per_second=_bits(one.guarantee)
            )
            for name, one in network.namespaces.items()
        },
        adopt_egress_bandwidth=network.adopt_egress_bandwidth,
        prefix=settings.cluster.taint_prefix,
        busy_percent=float(settings.check("network.saturated").limits.get("percent", 90.0)),
    )


def _bits(text: str) -> int:
    return bits_per_second(text) if text else 0


def update(options: ShapeOptions, memory: ShapeMemory, pods: PodList) -> ShapeMemory:
    """Memory with the shares of every pod in this list; items that were skipped keep what they had."""
    own: dict[str, OwnShares] = {}
    shares: dict[str, Shares] = {}
    bad: list[BadAnnotation] = []
    if pods.skipped:
        listed = {pod.uid for pod in pods.pods}
        own = {uid: one for uid, one in memory.own.items() if uid not in listed}
        shares = {uid: one for uid, one in memory.shares.items() if uid not in listed}
        bad = [one for one in memory.bad if one.uid not in listed]
    for pod in sorted(pods.pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)):
        if pod.finished:
            continue
        judged = _Judged(options, pod, memory.own.get(pod.uid, OwnShares()))
        bad += judged.bad
        if judged.own != OwnShares():
            own[pod.uid] = judged.own
        if judged.shares is not None:
            shares[pod.uid] = judged.shares
    known = {_identity(one) for one in memory.bad}
    return msgspec.structs.replace(
        memory, listed=True, own=own, shares=shares, bad=tuple(bad),
        rejected_count=memory.rejected_count + sum(_identity(one) not in known for one in bad),
    )


def notices(before: ShapeMemory, after: ShapeMemory) -> Iterator[Notice]:
    """One notice for each value that is refused now and was not before."""
    known = {_identity(one) for one in before.bad}
    for one in after.bad:
        if _identity(one) not in known:
            yield Notice(
                event="annotation_rejected",
                fields={
                    "pod": f"{one.namespace}/{one.name}", "annotation": one.annotation,
                    "value": one.value, "reason": one.remedy, "in_force": one.in_force,
                },
            )


def _identity(one: BadAnnotation) -> tuple[str, str, str]:
    return one.uid, one.annotation, one.value


class _Judged:
    """One pod's annotations judged: what is good, what is refused, what holds."""

    def __init__(self, options: ShapeOptions, pod: Pod, last: OwnShares) -> None:
        self._options, self._pod = options, pod
        self.bad: list[BadAnnotation] = []
        keys = [f"{options.prefix}/{LIMIT}"]
        if options.adopt_egress_bandwidth and not pod.host_network:
            keys.append(BANDWIDTH_ANNOTATION)
        key = next((key for key in keys if key in pod.annotations), keys[0])
        limit = self._value(key, last.limit_bits_per_second)
        limit_bits, limit_from = self._limit(limit)
        guarantee = self._guarantee(last, limit_bits, limit_from)
        self.own = OwnShares(limit_bits_per_second=limit, guarantee_bits_per_second=guarantee)
        self.shares = self._shares(limit_bits, limit_from, guarantee)
        self.bad = [msgspec.structs.replace(one, in_force=self._in_force()) for one in self.bad]

    def _value(self, key: str, last_bits: int | None) -> int | None:
        """The annotation's rate, the last good one where it is bad, None where there is none."""
        text = self._pod.annotations.get(key)
        if text is None:
            return None
        try:
            return bits_per_second(text)
        except BadRate as error:
            self._refuse(key, text, str(error))
            return last_bits

    def _limit(self, own_bits: int | None) -> tuple[int, str]:
        """The limit that holds, and whose word it is."""
        options = self._options
        namespace = options.namespaces.get(self._pod.namespace, NamespaceShares())
        if own_bits is not None:
            return own_bits, "pod"
        if namespace.limit_bits_per_second:
            return namespace.limit_bits_per_second, "namespace"
        return options.pod_limit_bits_per_second or options.budget_bits_per_second, "node"

    def _guarantee(self, last: OwnShares, limit_bits: int, limit_from: str) -> int | None:
        """The own guarantee; one above the limit is refused, and the last good one holds up to the limit."""
        key = f"{self._options.prefix}/{GUARANTEE}"
        asked = self._value(key, last.guarantee_bits_per_second)
        if asked is None or asked <= limit_bits:
            return asked
        limit = f"{shown_rate(limit_bits)} ({_SOURCES[limit_from]})"
        if not any(one.annotation == key for one in self.bad):
            self._refuse(key, self._pod.annotations[key], f"it must be at most the limit, {limit}")
        known = last.guarantee_bits_per_second
        return None if known is None else min(known, limit_bits)

    def _shares(self, limit_bits: int, limit_from: str, own_bits: int | None) -> Shares | None:
        if self._pod.host_network and limit_from != "pod" and own_bits is None:
            return None
        namespace = self._options.namespaces.get(self._pod.namespace, NamespaceShares())
        given_bits = 0 if self._pod.host_network else namespace.guarantee_bits_per_second
        guarantee_bits = min(limit_bits, given_bits if own_bits is None else own_bits)
        return Shares(
            limit_bits_per_second=limit_bits, guarantee_bits_per_second=guarantee_bits, limit_from=limit_from
        )

    def _refuse(self, key: str, text: str, remedy: str) -> None:
        pod = self._pod
        self.bad.append(BadAnnotation(
            uid=pod.uid, namespace=pod.namespace, name=pod.name, annotation=key, value=shown(text),
            remedy=remedy, in_force="",
        ))  # fmt: skip

    def _in_force(self) -> str:
        """What holds, in words."""
        if self.shares is None:
            return "no limit: a hostNetwork pod is shaped only by its own annotation"
        limit = f"limit {shown_rate(self.shares.limit_bits_per_second)} ({_SOURCES[self.shares.limit_from]})"
        guarantee_bits = self.shares.guarantee_bits_per_second
        return f"{limit}, guarantee {shown_rate(guarantee_bits)}" if guarantee_bits else limit


_SOURCES = {"pod": "the pod's", "namespace": "its namespace's", "node": "the node's default"}


def shown(text: str) -> str:
    """A value in quotes, printable, cut."""
    whole = ascii(text)
    return whole if len(whole) <= SHOWN_CHARACTERS else f"{whole[:SHOWN_CHARACTERS]}..."

