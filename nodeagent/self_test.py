"""`nodeagent self-test`: asks the API server for what the agent must not get, and for what it needs.

Nothing is stored: every write says dryRun=All, and what cannot be a dry run is a review. It never lists, and
what it cannot find out counts as not proven.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.drivers.kube import ApiRefusal, KubeClient
from nodeagent.drivers.kube.client import STRATEGIC_PATCH, path_of
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.observe.cluster import open_client
from nodeagent.self_test_rows import (
    ALLOWED,
    DRY_RUN,
    FENCE,
    NO_RIGHT,
    Attempt,
    Known,
    Right,
    Whoami,
    first_attempt,
    own_attempts,
    refused_attempts,
    rights,
)
from nodeagent.settings import Settings

DEADLINE_SECONDS = 20.0
"""Of one request; above the 15 s for which an overloaded server queues it."""
REVIEWS = ("apis", "authentication.k8s.io", "v1", "selfsubjectreviews")
ACCESS_REVIEWS = ("apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_DENIED_BY = "denied request: "


class Row(Struct, frozen=True, kw_only=True):
    """One thing that was tried."""

    tried: str
    expected: str
    came: str
    passed: bool
    escaped: bool = False
    """True when the server would have done what it must refuse."""


class SelfTest(Struct, frozen=True, kw_only=True):
    """All that was tried, in order."""

    node: str
    user: str
    """Who we are to the server."""
    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        """True when every row came as expected."""
        return all(row.passed for row in self.rows)


def self_test(settings: Settings, other_node: str = "") -> SelfTest:
    """Try everything once. Raises DriverError when no server can be asked."""
    client = open_client(lambda: settings.cluster.kubeconfig, time.monotonic)
    return asyncio.run(prove(client, settings.node.name, settings.cluster.taint_prefix, other_node))


async def prove(client: KubeClient, node: str, prefix: str, other_node: str = "") -> SelfTest:
    """The same with a client. `other_node`: name of a Node that is not ours, "" = none is tried."""
    who = await _who(client)
    rows = [_claim_row(who, node)]
    row, answer = await _try(client, first_attempt(node, prefix))
    rows.append(row)
    known = _known(answer)
    for attempt in (
        *own_attempts(node, who, prefix, known), *refused_attempts(node, who, prefix, known, other_node)
    ):
        rows.append((await _try(client, attempt))[0])
    for right in rights():
        rows.append(await _row(right.tried, NO_RIGHT, partial(_has_right, client, right)))
    return SelfTest(node=node, user=who.user, rows=tuple(rows))


# --------------------------------------------------------------------------- who


class _UserInfo(Struct):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _ReviewStatus(Struct):
    userInfo: _UserInfo = msgspec.field(default_factory=_UserInfo)
    allowed: bool = False


class _Review(Struct):
    status: _ReviewStatus


async def _who(client: KubeClient) -> Whoami:
    """Who the server takes us for; this needs no right, so a failure here says that it cannot be asked."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    said = await _review(client, REVIEWS, body)
    extra = said.userInfo.extra

    def claim(name: str) -> str:
        return next(iter(extra.get(f"authentication.kubernetes.io/{name}", ())), "")

    return Whoami(user=said.userInfo.username, node_name=claim("node-name"), node_uid=claim("node-uid"))


async def _review(client: KubeClient, path: tuple[str, ...], body: Any) -> _ReviewStatus:
    answer = await client.create(path_of(*path), body, deadline_seconds=DEADLINE_SECONDS)
    try:
        return msgspec.json.decode(answer, type=_Review).status
    except msgspec.MsgspecError as error:
        detail = f"not a review: {error}"
        raise DriverError(ErrorKind.INVALID, "the API server", "read review", detail) from error


def _claim_row(who: Whoami, node: str) -> Row:
    named = f"node {who.node_name}" if who.node_name else "no node"
    return Row(
        tried="asked who we are", expected=f"a service account, its token names node {node}",
        came=f"{who.user or 'nobody'}, its token names {named}",
        passed=bool(who.namespace) and who.node_name == node,
    )


# --------------------------------------------------------------------------- attempts


async def _try(client: KubeClient, attempt: Attempt) -> tuple[Row, bytes]:
    answer = b""

    async def send() -> str:
        nonlocal answer
        kind = {"content_type": STRATEGIC_PATCH} if attempt.verb == "patch" else {}
        answer = await client.request(
            attempt.verb, path_of(*attempt.path), query=DRY_RUN, body=attempt.body,
            deadline_seconds=DEADLINE_SECONDS, **kind)
        return ALLOWED

    return await _row(attempt.tried, attempt.expected, send), answer


async def _row(tried: str, expected: str, ask: Callable[[], Awaitable[str]]) -> Row:
    detail = ""
    try:
        came = await ask()
    except ApiRefusal as error:
        came, detail = _refused(error)
    except DriverError as error:
        came, detail = "no answer", error.detail
    return Row(
        tried=tried, expected=expected, came=f"{came}: {detail}" if detail else came,
        passed=came == expected, escaped=came != expected and came in (ALLOWED, "a right"),
    )


def _refused(error: ApiRefusal) -> tuple[str, str]:
    """What refused, and its words. A policy's refusal has a cause, one of the roles has none."""
    if error.status != 403:
        return ("no answer" if error.status == 0 else "no verdict"), error.detail
    if error.causes:
        return FENCE, error.detail.rpartition(_DENIED_BY)[2]
    return "refused by the roles", error.detail


async def _has_right(client: KubeClient, right: Right) -> str:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": right.attributes()}}
    return "a right" if (await _review(client, ACCESS_REVIEWS, body)).allowed else NO_RIGHT


class _Spec(Struct):
    taints: list[Any] | None = None
    unschedulable: bool = False


class _Node(Struct):
    spec: _Spec


def _known(answer: bytes) -> Known:
    """What the answer of a write says of the own Node; of a refused one nothing is known."""
    try:
        spec = msgspec.json.decode(answer, type=_Node).spec
    except msgspec.MsgspecError:
        return Known()
    return Known(taints=tuple(spec.taints or ()), unschedulable=spec.unschedulable)
