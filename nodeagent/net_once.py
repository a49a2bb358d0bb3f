"""Looks at pods, links and marks once, without a daemon, and says what a daemon would write.

Nothing is written: the plans of its one cycle go nowhere.
"""

from __future__ import annotations

import asyncio

from nodeagent.act import saver
from nodeagent.cycle import judge_once
from nodeagent.network_parts import NetworkParts
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.parts import open_clock
from nodeagent.report.net_schema import NetDiffReport
from nodeagent.report.traffic import build_diff
from nodeagent.settings import Settings
from nodeagent.xid_data import load_xid_table


def diff_once(settings: Settings) -> NetDiffReport:
    """What is pending now, with the memory that the last daemon left."""
    return asyncio.run(_diff_once(settings))


async def _diff_once(settings: Settings) -> NetDiffReport:
    clock = open_clock(settings)
    board, inbox = Board(clock), Inbox()
    parts = NetworkParts(settings, board, inbox, clock)
    await parts.read_once()
    _, memory, _ = saver.load(settings.node.state_file, settings.node.name, look_only=True)
    given = judge_once(
        settings, memory, board=board, inbox=inbox, clock=clock, table=load_xid_table(), checks={},
        marking=parts.options,
    )
    return build_diff(given, parts.options())
