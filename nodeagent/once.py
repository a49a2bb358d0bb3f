"""`nodeagent check` without a daemon: read once, judge once, change nothing."""

from __future__ import annotations

import asyncio
import time

from nodeagent.act import saver
from nodeagent.cycle import judge_once
from nodeagent.model import NODE
from nodeagent.network_parts import NetworkParts
from nodeagent.parts import Parts, cancel, open_clock
from nodeagent.report import status
from nodeagent.report.schema import CheckReport
from nodeagent.settings import Settings

KERNEL_CHECK = "network.kernel"
"""The check that is read without anything else."""


def check_once(settings: Settings, ids: tuple[str, ...]) -> CheckReport:
    """The rows of `ids` (all when empty), holds as the state file has them. Raises ConfigError."""
    return asyncio.run(_check_once(settings, ids))


async def _check_once(settings: Settings, ids: tuple[str, ...]) -> CheckReport:
    began_seconds = time.monotonic()
    _, memory, state_file = saver.load(settings.node.state_file, settings.node.name, look_only=True)
    parts = Parts(settings, memory, open_clock(settings))
    parts.board.put("state_file", NODE, state_file)
    alone = ids == (KERNEL_CHECK,)
    runs = () if alone else (parts.gpus.run, parts.node.run, parts.kernel_log.run)
    tasks = [asyncio.create_task(run()) for run in runs]
    marking = NetworkParts(settings, parts.board, parts.inbox, parts.clock)
    try:
        if alone or marking.enabled:
            await marking.probe()
        if not alone:
            await asyncio.gather(parts.first_look(), marking.read_once())
        given = judge_once(
            settings, memory, board=parts.board, inbox=parts.inbox, clock=parts.clock, table=parts.table,
            checks=parts.checks, marking=marking.options,
        )
    finally:
        await cancel(tasks)
        await parts.stop()
    return status.build_check(given, ids, duration_seconds=time.monotonic() - began_seconds)
