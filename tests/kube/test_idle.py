"""What an idle agent asks of the API server, by the server's own audit log: two watches, and nothing else.

An hour is short here: a watch that is asked to last 45 to 60 minutes lasts 4 to 6 seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.api import NODES, Api
from tests.kube.node_agent import NodeAgent
from tests.kube.plane import ControlPlane

HOUR_SECONDS = 6.0
HOURS = 3
MOST_REQUESTS_AN_HOUR = 7
LIFE_SECONDS = (2700.0, 3600.0)
SHORT = {
    "observe.api_watch.LIFE_SECONDS": tuple(int(life * HOUR_SECONDS / 3600.0) for life in LIFE_SECONDS),
    "observe.api_watch.STOOD_SECONDS": 0.5, "observe.api_watch.RENEW_SECONDS": 0.05,
    "observe.cluster.START_SECONDS": 0.0,
}


@pytest.fixture
def idle(plane: ControlPlane, node: str, tmp_path: Path) -> Iterator[NodeAgent]:
    """An agent that watches its Node and its pods, on hours that are short."""
    one = NodeAgent(plane, node, tmp_path)
    one.sections["pods"] = {"source": "api"}
    one.agent.configure(one.sections)
    one.patches(SHORT)
    one.agent.start()
    one.agent.wait_until(lambda s: s["api"]["state"] == "connected", "the Node is watched")
    yield one
    one.agent.close()


def caused(one: NodeAgent, since: int) -> list[dict[str, Any]]:
    """What the agent asked after that many audit events, and what the server had to ask because of it."""
    user = f"system:serviceaccount:default:{one.account}"
    reviews = ("tokenreviews", "subjectaccessreviews")
    return [
        event for event in one.plane.audited(since)
        if event["stage"] == "ResponseComplete" or event["verb"] == "watch"
        if event["user"]["username"] == user or event.get("impersonatedUser", {}).get("username", "") == user
        or event.get("objectRef", {}).get("resource") in reviews
    ]


def sneaked(events: list[dict[str, Any]]) -> list[str]:
    """Everything but a watch."""
    return [f"{event['verb']} {event['requestURI']}" for event in events if event["verb"] != "watch"]


def test_an_idle_hour_is_a_few_watches(idle: NodeAgent) -> None:
    """No list, no read, no write, no review; each watch is renewed once an hour, and both are told apart."""
    since = len(idle.plane.audited())
    time.sleep(HOURS * HOUR_SECONDS)
    events = caused(idle, since)

    assert sneaked(events) == []
    begun = [event for event in events if event["stage"] == "ResponseStarted"]
    kinds = {event["objectRef"]["resource"] for event in begun}
    assert kinds == {"nodes", "pods"}
    assert 2 * (HOURS - 1) <= len(begun) <= MOST_REQUESTS_AN_HOUR * HOURS
    assert idle.agent.status()["api"]["state"] == "connected"


@pytest.mark.parametrize("request_of_one", ["list", "get", "write"])
def test_a_request_that_sneaks_in_is_noticed(idle: NodeAgent, request_of_one: str) -> None:
    """The look itself can fail: one list, read or write by the agent's account is found."""
    since = len(idle.plane.audited())
    token = idle.plane.token(idle.account, "default")
    call: dict[str, tuple[Any, ...]] = {
        "list": (Api.get, NODES), "get": (Api.get, f"{NODES}/{idle.name}"),
        "write": (Api.patch, f"{NODES}/{idle.name}", {"metadata": {"labels": {"a": "b"}}}, "merge"),
    }
    idle.plane.as_token(token, *call[request_of_one])
    idle.plane.until(lambda: sneaked(caused(idle, since)))

    assert len(sneaked(caused(idle, since))) == 1
