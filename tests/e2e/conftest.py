"""A node with the real daemon for each test that asks for one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent import Agent

MakeAgent = Callable[..., Agent]


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[MakeAgent]:
    """A factory of nodes whose daemon is not started yet; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> Agent:
            agent = Agent(tmp_path, **options)
            stack.callback(agent.close)
            return agent

        yield make


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """A running daemon on a healthy node with eight H100s."""
    running = make_agent()
    running.start()
    return running
