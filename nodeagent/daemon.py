"""The composition root: signals, paces, watchdog, single instance. The only file that knows all stages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from nodeagent import __version__, config
from nodeagent.act import gpu
from nodeagent.act.executor import Executor
from nodeagent.act.saver import Saver
from nodeagent.cycle import PACE_SECONDS, Cycle
from nodeagent.decide import mark_plan, network, release
from nodeagent.decide.registry import registry
from nodeagent.drivers import systemd
from nodeagent.drivers.clock import SystemClock
from nodeagent.drivers.lock import InstanceLock
from nodeagent.drivers.store import Store
from nodeagent.errors import ConfigError, DriverError, ErrorKind
from nodeagent.memory import Memory
from nodeagent.model import NODE, Decision, Notice, Now
from nodeagent.network_parts import NetworkParts
from nodeagent.parts import Parts
from nodeagent.report import log, status
from nodeagent.report.given import ReportInput
from nodeagent.report.render import headline
from nodeagent.report.schema import CheckReport, StatusReport
from nodeagent.report.server import StatusServer
from nodeagent.settings import Settings
from nodeagent.signals import ConfigReloaded, Snapshot, StateFileStatus
from nodeagent.surface import AgentSurface

EXIT_OK, EXIT_UNAVAILABLE, EXIT_DENIED, EXIT_CONFIG = 0, 69, 77, 78
RESTART_TASK_SECONDS = 10.0
"""Pause before a part that failed by a bug of ours is started again."""
LAST_SAVE_SECONDS = 5.0
KERNEL_CHECK = "network.kernel"
"""The check that is read without anything else."""
FIXED_UNTIL_RESTART = ("node.host_root", "node.proc_root", "node.kernel_log", "node.state_file",
                       "gpu.poll_seconds", "gpu.call_deadline_seconds", "gpu.stuck_seconds",
                       "status.socket", "status.metrics_listen")


class Daemon:
    """One running agent."""

    def __init__(
        self, loaded: config.Loaded, config_path: str | None, socket_override: str | None,
        logger: log.AgentLogger, notifier: systemd.Notifier,
    ) -> None:
        self._config_path = config_path
        self._socket_override = socket_override
        self._files = loaded.files
        self._config_error = ""
        self._log = logger
        self._notifier = notifier
        self._stop = asyncio.Event()
        self._stop_reason = ""
        settings = loaded.settings
        self._store = Store(settings.node.state_file)
        memory, state_file = _load_memory(self._store, settings.node.name)
        memory = network.begin_run(memory)
        self._parts = parts = Parts(settings, memory, SystemClock(settings.node.proc_root))
        parts.board.put("state_file", NODE, state_file)
        self._network = NetworkParts(settings, parts.board, parts.inbox, parts.clock)
        self._surface = AgentSurface(
            clock=parts.clock, board=parts.board, inbox=parts.inbox,
            samplers=(parts.gpus, parts.node), known_checks=frozenset(parts.checks),
            network=self._network,
        )
        self._cycle = Cycle(
            settings=settings, memory=memory, board=parts.board, inbox=parts.inbox,
            clock=parts.clock, table=parts.table, checks=parts.checks,
            publish=self._publish, tell=self._tell, marking=self._network.options,
        )
        self._saver = Saver(
            self._store, lambda s: parts.board.put("state_file", NODE, s), state_file.set_aside
        )
        self._executors = {
            release.EXECUTOR: Executor(
                release.EXECUTOR, lambda op: gpu.perform(parts.gpus, op),
                lambda outcome: parts.inbox.put(outcome, urgent=True),
            ),
            mark_plan.EXECUTOR: Executor(
                mark_plan.EXECUTOR, self._network.perform,
                lambda outcome: parts.inbox.put(outcome, urgent=not outcome.ok),
                self._network.marks.request_now,
            ),
        }
        self._server = StatusServer(
            self._surface, socket_path=settings.status.socket,
            metrics_listen=settings.status.metrics_listen, on_bug=logger.error,
        )

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; returns the exit code."""
        began_seconds = time.monotonic()
        self._listen_to_signals()
        self._publish_starting()
        self._tell(Notice(event="started", fields={
            "version": __version__, "node": self._cycle.settings.node.name}))
        for problem in await self._server.start():
            self._log.error(problem.sentence)
        parts = self._parts
        tasks = [
            asyncio.create_task(self._keep(name, run), name=name)
            for name, run in (
                ("nvml sampler", parts.gpus.run),
                ("host sampler", parts.node.run),
                ("kernel log", parts.kernel_log.run),
                ("state file", self._saver.run),
                *self._network.runs(),
                *((f"executor {e.name}", e.run) for e in self._executors.values()),
            )
        ]
        await self._first_look()
        self._surface.is_ready = True
        tasks.append(asyncio.create_task(self._keep("cycle", self._run_cycles), name="cycle"))
        if not self._stop.is_set():
            await self._until_first_cycle()
            taken_seconds = round(time.monotonic() - began_seconds, 1)
            self._tell_ready(taken_seconds)
        await self._stop.wait()
        await self._shut_down(tasks)
        return EXIT_OK

    async def _first_look(self) -> None:
        looking = asyncio.create_task(self._parts.first_look())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (looking, stopping):
            task.cancel()

    async def _until_first_cycle(self) -> None:
        while self._cycle.number == 0 and not self._stop.is_set():
            await asyncio.sleep(0.02)

    def _tell_ready(self, taken_seconds: float) -> None:
        report = self._report()
        self._tell(Notice(event="ready", fields={
            "duration_seconds": taken_seconds, "state": report.verdict.state.value,
            "checks": len(self._parts.checks)}))
        self._notifier.ready(headline(report))

    async def _run_cycles(self) -> None:
        timeout_seconds = self._notifier.watchdog_timeout_seconds
        pace_seconds = PACE_SECONDS if timeout_seconds is None else min(PACE_SECONDS, timeout_seconds / 2)
        await self._cycle.run(self._saver, self._executors, self._ticked, pace_seconds)

    def _ticked(self, _decision: Decision) -> None:
        self._parts.update_wanted()
        self._notifier.watchdog()
        if self._surface.is_ready:
            self._notifier.status(headline(self._report()))
        self._log.flush()

    def _report(self) -> StatusReport:
        return status.build_status(self._given)

    def _publish_starting(self) -> None:
        """Let status answer "starting" before the first cycle has ended."""
        cycle, clock = self._cycle, self._parts.clock
        now = Now(at=clock.instant(), clock_synchronized=False)
        snapshot = Snapshot(now=now, node_name=cycle.settings.node.name, readings={})
        self._publish(None, cycle.memory, snapshot, cycle.settings)

    def _publish(
        self, decision: Decision | None, memory: Memory, snapshot: Snapshot, settings: Settings
    ) -> None:
        self._given = self._surface.publish(
            decision, memory, snapshot, settings, cycle_number=self._cycle.number,
            cycles_seconds_total=self._cycle.seconds_total, config_files=self._files,
            config_error=self._config_error,
        )

    def _tell(self, notice: Notice) -> None:
        log.emit(self._log, notice.event, cycle=self._cycle.number, **notice.fields)

    async def _keep(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a part for ever; one that ends by a bug is reported and started again."""
        while True:
            try:
                await run()
                self._log.error(f"the {name} ended; it is started again")
            except Exception as error:
                self._log.error(f"the {name} failed: {error!r}; it is started again",
                                traceback="".join(traceback.format_exception(error)))
            await asyncio.sleep(RESTART_TASK_SECONDS)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)

    def _on_stop(self, reason: str) -> None:
        self._stop_reason = reason
        self._stop.set()

    def _on_reload(self) -> None:
        """Take the files anew; a bad one leaves the good configuration in force."""
        self._notifier.reloading()
        before = self._cycle.settings
        try:
            loaded = config.load(self._config_path, self._parts.checks)
        except ConfigError as error:
            self._config_error = "; ".join(error.problems)
        else:
            settings = _overridden(loaded.settings, self._socket_override)
            self._config_error, self._files = "", loaded.files
            self._cycle.settings = settings
            self._parts.apply(settings)
            self._network.apply(settings)
            for key in _changed(before, settings):
                self._log.warning(f"{key} was changed; the new value holds after a restart")
        self._parts.inbox.put(ConfigReloaded(error=self._config_error), urgent=True)
        self._notifier.ready(headline(self._report()) if self._surface.is_ready else "starting")

    async def _shut_down(self, tasks: list[asyncio.Task[None]]) -> None:
        """Leave no process, no socket; rules and taints of ours stay, that is the point of them."""
        self._notifier.stopping()
        self._tell(Notice(event="stopping", fields={"reason": self._stop_reason}))
        now_seconds = self._parts.clock.monotonic_seconds()
        self._saver.submit(self._cycle.memory, now_seconds, lambda: None, force=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SAVE_SECONDS):
                await self._saver.idle.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.stop()
        await self._parts.stop()
        self._log.close()
        self._notifier.close()


def _load_memory(store: Store, node_name: str) -> tuple[Memory, StateFileStatus]:
    try:
        memory, set_aside = store.load(node_name)
    except DriverError as error:
        return Memory(node_name=node_name), StateFileStatus(writable=False, detail=str(error))
    return memory, StateFileStatus(writable=True, set_aside=set_aside)


def _overridden(settings: Settings, socket: str | None) -> Settings:
    if socket is None:
        return settings
    return msgspec.structs.replace(
        settings, status=msgspec.structs.replace(settings.status, socket=socket)
    )


def _changed(before: Settings, after: Settings) -> list[str]:
    """Keys among those fixed until a restart that differ."""
    def value(settings: Settings, key: str) -> object:
        section, _, name = key.partition(".")
        return getattr(getattr(settings, section), name)

    return [key for key in FIXED_UNTIL_RESTART if value(before, key) != value(after, key)]


def main(config_path: str | None, socket_override: str | None) -> int:
    """`nodeagent run`: returns the exit code; 78 bad configuration, 69 another agent, 77 denied."""
    try:
        loaded = config.load(config_path, registry())
    except ConfigError as error:
        sys.stderr.write(f"nodeagent: {error}\n")
        return EXIT_CONFIG
    settings = _overridden(loaded.settings, socket_override)
    loaded = msgspec.structs.replace(loaded, settings=settings)
    try:
        lock = InstanceLock(str(Path(settings.status.socket).with_name("nodeagent.lock")))
    except DriverError as error:
        sys.stderr.write(f"nodeagent: {error.detail or error} ({error.target})\n")
        return EXIT_UNAVAILABLE if error.kind is ErrorKind.BUSY else EXIT_DENIED
    logger = log.configure()
    try:
        return asyncio.run(_run(loaded, config_path, socket_override, logger))
    finally:
        lock.close()


async def _run(
    loaded: config.Loaded, config_path: str | None, socket_override: str | None, logger: log.AgentLogger
) -> int:
    notifier = systemd.from_environment(os.environ)
    return await Daemon(loaded, config_path, socket_override, logger, notifier).run()


def check_once(settings: Settings, ids: tuple[str, ...]) -> CheckReport:
    """`nodeagent check` without a daemon: read once, judge once, change nothing."""
    return asyncio.run(_check_once(settings, ids))


async def _check_once(settings: Settings, ids: tuple[str, ...]) -> CheckReport:
    began_seconds = time.monotonic()
    memory, state_file = _load_memory(Store(settings.node.state_file), settings.node.name)
    parts = Parts(settings, memory, SystemClock(settings.node.proc_root))
    parts.board.put("state_file", NODE, state_file)
    alone = ids == (KERNEL_CHECK,)
    runs = () if alone else (parts.gpus.run, parts.node.run, parts.kernel_log.run)
    tasks = [asyncio.create_task(run()) for run in runs]
    marking = NetworkParts(settings, parts.board, parts.inbox, parts.clock)
    given: list[ReportInput] = []
    cycle = Cycle(
        settings=settings, memory=network.begin_run(memory), board=parts.board, inbox=parts.inbox,
        clock=parts.clock, table=parts.table, checks=parts.checks, tell=lambda _: None,
        marking=marking.options,
        publish=lambda d, m, s, c: given.append(
            ReportInput(decision=d, memory=m, snapshot=s, settings=c, version=__version__)
        ),
    )
    try:
        if alone or marking.enabled:
            await marking.probe()
        if not alone:
            await asyncio.gather(parts.first_look(), marking.read_once())
        cycle.once()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await parts.stop()
    return status.build_check(given[0], ids, duration_seconds=time.monotonic() - began_seconds)
