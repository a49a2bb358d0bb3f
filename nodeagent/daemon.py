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
from nodeagent.act import gpu, saver
from nodeagent.act.executor import Executor
from nodeagent.cluster_parts import ClusterParts
from nodeagent.cycle import PACE_SECONDS, Cycle
from nodeagent.decide import mark_plan, network, node_ops, node_write, release
from nodeagent.decide.registry import registry
from nodeagent.drivers import systemd
from nodeagent.drivers.lock import InstanceLock
from nodeagent.errors import ConfigError, DriverError, ErrorKind
from nodeagent.memory import Memory
from nodeagent.model import NODE, Decision, Notice, Now
from nodeagent.network_parts import NetworkParts
from nodeagent.parts import Parts, cancel, open_clock
from nodeagent.report import log, status
from nodeagent.report.render import headline
from nodeagent.report.schema import StatusReport
from nodeagent.report.server import StatusServer
from nodeagent.settings import Settings
from nodeagent.signals import ConfigReloaded, Outcome, Snapshot
from nodeagent.stop_signals import Signals
from nodeagent.surface import AgentSurface

EXIT_OK, EXIT_UNAVAILABLE, EXIT_DENIED, EXIT_CONFIG = 0, 69, 77, 78
RESTART_TASK_SECONDS = 10.0
"""Pause before a part that failed by a bug of ours is started again."""
LAST_SAVE_SECONDS = 5.0
LISTEN_SECONDS = 60.0
"""A listener that could not be opened, or lost its file, is tried again so often, and at a reload."""
SAVER_TASK = "state file"
FIXED_UNTIL_RESTART = ("node.host_root", "node.proc_root", "node.kernel_log", "node.state_file",
                       "gpu.poll_seconds", "gpu.call_deadline_seconds", "gpu.stuck_seconds",
                       "cluster.taint_prefix", "status.socket", "status.metrics_listen")


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
        self._signals = Signals(self._on_stop, self._on_reload)
        self._reloaded = asyncio.Event()
        self._not_listening: dict[str, str] = {}
        settings = loaded.settings
        store, memory, state_file = saver.load(settings.node.state_file, settings.node.name)
        memory = network.begin_run(memory)
        self._parts = parts = Parts(settings, memory, open_clock(settings))
        parts.board.put("state_file", NODE, state_file)
        self._cluster = ClusterParts(settings, parts.board, parts.inbox, parts.clock)
        self._network = NetworkParts(settings, parts.board, parts.inbox, parts.clock, self._cluster)
        self._surface = AgentSurface(
            clock=parts.clock, board=parts.board, inbox=parts.inbox,
            samplers=(parts.gpus, parts.node), known_checks=frozenset(parts.checks),
            network=self._network,
        )
        self._cycle = Cycle(
            settings=settings, memory=memory, board=parts.board, inbox=parts.inbox,
            clock=parts.clock, table=parts.table, checks=parts.checks,
            publish=self._publish, tell=self._tell, marking=self._network.options,
            writing=self._cluster.writing,
        )
        self._cluster.paused = lambda: node_write.paused(
            self._cycle.memory.cluster, Now(at=parts.clock.instant(), clock_synchronized=False))
        self._saver = saver.Saver(
            store, lambda s: parts.board.put("state_file", NODE, s), state_file.set_aside
        )
        self._executors = self._made_executors(parts)
        self._server = StatusServer(
            self._surface, socket_path=settings.status.socket,
            metrics_listen=settings.status.metrics_listen, on_bug=logger.error,
        )
        self._surface.requests_refused = self._server.rejected
        self._surface.silencing.saved = self._saved

    def _made_executors(self, parts: Parts) -> dict[str, Executor]:
        def urgently(outcome: Outcome) -> None:
            parts.inbox.put(outcome, urgent=True)

        return {
            node_ops.EXECUTOR: Executor(node_ops.EXECUTOR, self._cluster.perform, urgently),
            release.EXECUTOR: Executor(
                release.EXECUTOR, lambda op: gpu.perform(parts.gpus, op), urgently,
            ),
            mark_plan.EXECUTOR: Executor(
                mark_plan.EXECUTOR, self._network.perform,
                lambda outcome: parts.inbox.put(outcome, urgent=not outcome.ok),
                self._network.look_after_plan,
            ),
        }

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; returns the exit code."""
        began_seconds = time.monotonic()
        self._signals.listen()
        self._publish_starting()
        self._tell(Notice(event="started", fields={
            "version": __version__, "node": self._cycle.settings.node.name}))
        await self._listen()
        parts = self._parts
        tasks = [
            asyncio.create_task(self._keep(name, run), name=name)
            for name, run in (
                ("nvml sampler", parts.gpus.run),
                ("host sampler", parts.node.run),
                ("kernel log", parts.kernel_log.run),
                (SAVER_TASK, self._saver.run),
                *self._network.runs(),
                *self._cluster.runs(),
                ("listeners", self._keep_listening),
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

    async def _keep_listening(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_SECONDS):
                    await self._reloaded.wait()
            self._reloaded.clear()
            await self._listen()

    async def _listen(self) -> None:
        """Open what is not open; tell each problem once, and its end."""
        before, self._not_listening = self._not_listening, {}
        for problem in await self._server.start():
            if before.get(problem.address) != problem.sentence:
                self._log.error(f"{problem.address}: {problem.sentence}")
            if not problem.listens:
                self._not_listening[problem.address] = problem.sentence
        for address in before.keys() - self._not_listening.keys():
            self._log.info(f"{address}: the agent listens there now")

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
        self._cluster.tell()
        self._notifier.watchdog()
        if self._notifier.listens and self._surface.is_ready:
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

    def _on_stop(self, reason: str) -> None:
        self._stop_reason = reason
        self._stop.set()

    def _on_reload(self) -> None:
        """Take the files anew; a bad one leaves the good configuration in force."""
        if self._stop.is_set():
            return
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
            self._cluster.apply(settings)
            self._network.apply(settings)
            for key in _changed(before, settings):
                self._log.warning(f"{key} was changed; the new value holds after a restart")
        self._reloaded.set()
        self._parts.inbox.put(ConfigReloaded(error=self._config_error), urgent=True)
        self._notifier.ready(headline(self._report()) if self._surface.is_ready else "starting")

    async def _shut_down(self, tasks: list[asyncio.Task[None]]) -> None:
        """Leave no process, no socket; rules and taints of ours stay, that is the point of them."""
        self._notifier.stopping()
        self._tell(Notice(event="stopping", fields={"reason": self._stop_reason}))
        saving = [task for task in tasks if task.get_name() == SAVER_TASK]
        await cancel([task for task in tasks if task not in saving])
        now_seconds = self._parts.clock.monotonic_seconds()
        self._saver.submit(self._cycle.memory, now_seconds, lambda: None, force=True)
        await asyncio.gather(self._saved(), self._parts.stop())
        await cancel(saving)
        await self._server.stop()
        self._log.close()
        self._notifier.close()

    async def _saved(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SAVE_SECONDS):
                await self._saver.idle.wait()


def _hold_standard_descriptors() -> None:
    """Keep 0, 1 and 2 from being given to a lock or a socket, which a library would then print into."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115 - for the whole run


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
    _hold_standard_descriptors()
    try:
        loaded = config.load(config_path, registry())
    except ConfigError as error:
        return _give_up(error, EXIT_CONFIG)
    settings = _overridden(loaded.settings, socket_override)
    loaded = msgspec.structs.replace(loaded, settings=settings)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_OK))  # until the loop listens
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        lock = InstanceLock(str(Path(settings.status.socket).with_name("nodeagent.lock")))
    except DriverError as error:
        code = {ErrorKind.BUSY: EXIT_UNAVAILABLE, ErrorKind.DENIED: EXIT_DENIED}.get(error.kind, EXIT_CONFIG)
        return _give_up(f"{error.detail} ({error.target})", code)
    try:
        return asyncio.run(_run(loaded, config_path, socket_override, log.configure()))
    except ConfigError as error:
        return _give_up(error, EXIT_CONFIG)
    finally:
        lock.close()


def _give_up(reason: object, code: int) -> int:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"nodeagent: {reason}\n")
        sys.stderr.flush()
    return code


async def _run(
    loaded: config.Loaded, config_path: str | None, socket_override: str | None, logger: log.AgentLogger
) -> int:
    try:
        notifier = systemd.from_environment(os.environ)
    except DriverError as error:
        raise ConfigError(f"environment NOTIFY_SOCKET: {error}") from error
    return await Daemon(loaded, config_path, socket_override, logger, notifier).run()
