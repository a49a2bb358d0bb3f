"""Looks at pods, links and marks once, without a daemon, and says what a daemon would write.

Nothing is written: the plans of its one cycle go nowhere.
"""

from __future__ import annotations

import asyncio

from nodeagent import __version__
from nodeagent.cycle import Cycle
from nodeagent.decide import network
from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.store import Store
from nodeagent.errors import DriverError
from nodeagent.memory import Memory
from nodeagent.network_parts import NetworkParts
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.report.given import ReportInput
from nodeagent.report.net_schema import NetDiffReport
from nodeagent.report.traffic import build_diff
from nodeagent.settings import Settings
from nodeagent.xid_data import load_xid_table


def diff_once(settings: Settings) -> NetDiffReport:
    """What is pending now, with the memory that the last daemon left."""
    return asyncio.run(_diff_once(settings))


async def _diff_once(settings: Settings) -> NetDiffReport:
    clock = SystemClock(settings.node.proc_root)
    board, inbox = Board(clock), Inbox()
    parts = NetworkParts(settings, board, inbox, clock)
    await parts.read_once()
    given: list[ReportInput] = []
    cycle = Cycle(
        settings=settings, memory=network.begin_run(_memory(settings)), board=board, inbox=inbox, clock=clock,
        table=load_xid_table(), checks={}, tell=lambda _: None, marking=parts.options,
        publish=lambda d, m, s, c: given.append(
            ReportInput(decision=d, memory=m, snapshot=s, settings=c, version=__version__)
        ),
    )
    cycle.once()
    return build_diff(given[0], parts.options())


def _memory(settings: Settings) -> Memory:
    try:
        return Store(settings.node.state_file).load(settings.node.name)[0]
    except DriverError:
        return Memory(node_name=settings.node.name)
