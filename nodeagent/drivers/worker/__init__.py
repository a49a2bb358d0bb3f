"""Keeps one disposable child process of a kind, in which calls that may hang are made.

A blocked driver call, a dead file system or a crash must never stop the daemon: the child is
spawned, watched, condemned and replaced here, and nothing here waits without an end but `read`
itself. It must never SIGKILL a child inside a call, except one already counted stuck, and never
run two children of a kind: one that cannot die stays as the evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from nodeagent import wire
from nodeagent.drivers.worker.process import Child
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.signals import WorkerStatus

BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_LIMIT_SECONDS = 600.0

_REAP_SECONDS = 0.02


def python_module(module: str) -> tuple[str, ...]:
    """Command line of a worker that is a module of ours, on the daemon's own interpreter."""
    return (sys.executable, "-P", "-m", module)


class MonotonicClock(Protocol):
    """What the deadlines and the backoff are measured with."""

    def monotonic_seconds(self) -> float:
        """CLOCK_MONOTONIC of this boot."""


class Worker:
    """Parent side of one kind of worker; every method belongs to the event loop's thread."""

    def __init__(
        self,
        kind: str,
        argv: Sequence[str],
        clock: MonotonicClock,
        *,
        call_deadline_seconds: float = 10.0,
        stuck_seconds: float = 30.0,
        kill_seconds: float = 300.0,
        tick_seconds: float = 1.0,
        stop_seconds: float = 3.0,
        entropy: Callable[[], float] = random.random,
    ) -> None:
        """`kill_seconds`: how long one call may hang before its stuck child is killed.

        `tick_seconds`: how often deadlines are looked at. `stop_seconds`: how long a polite end may
        take. `entropy`: 0 <= x < 1, jitter of the backoff.
        """
        self.kind = kind
        self.on_message: Callable[[wire.Message], None] = lambda message: None
        """Called for each `Value`, `Missing` and event; may raise DriverError for a bad one."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when `status` may have changed, and each tick while a read is pending."""
        self._argv = tuple(argv)
        self._clock = clock
        self._call_deadline_seconds = call_deadline_seconds
        self._stuck_seconds = stuck_seconds
        self._kill_seconds = max(kill_seconds, stuck_seconds)
        self._tick_seconds = tick_seconds
        self._stop_seconds = stop_seconds
        self._entropy = entropy
        self._child: Child | None = None
        self._request = 0
        self._answer: asyncio.Future[wire.Done] | None = None
        self._parked: str | None = None
        self._leaving = False
        self._failures = 0
        self._restarts = 0
        self._not_before_seconds = 0.0
        self._error: tuple[ErrorKind, str, str] | None = None

    # ------------------------------------------------------------------ what is shown

    @property
    def status(self) -> WorkerStatus:
        """The child as it is now, for signal `worker.KIND`."""
        child = self._child
        kind, cause, detail = self._error or (None, "", "")
        pending = child.pending_call if child else None
        return WorkerStatus(
            state=self._state(), pid=child.pid if child else None, pending_call=pending,
            pending_since_seconds=child.progress_seconds if child and pending else None,
            misses=child.misses if child else 0, restarts=self._restarts,
            error_kind=kind, error_cause=cause, error_detail=detail,
        )

    @property
    def ready_at_seconds(self) -> float:
        """CLOCK_MONOTONIC before which `read` will not spawn a child."""
        return self._not_before_seconds

    @property
    def parked(self) -> bool:
        """True from `park` to `unpark`, even while the child has not left yet."""
        return self._parked is not None

    def _state(self) -> str:
        child = self._child
        if child is None:
            if self._parked is not None:
                return self._parked
            return "backoff" if self._clock.monotonic_seconds() < self._not_before_seconds else "starting"
        if child.stuck:
            return "stuck"
        if not child.started:
            return "starting"
        return "reading" if self._answer is not None else "idle"

    # ------------------------------------------------------------------ reading

    async def read(self, arguments: wire.NvmlArguments | wire.HostArguments | None = None) -> wire.Done:
        """Have the child read everything once; values go to `on_message` as they come.

        Takes as long as the child takes: a call that hangs and returns by itself is still used.
        Returns the `Done`, whose error fields tell that the read-all failed as a whole.
        Raises DriverError: busy while parked, in backoff, or while another read is pending; lost
        when the child died; invalid when it did not speak the protocol; timeout when it was stuck
        and killed; absent or denied when it cannot be spawned.
        """
        if self._answer is not None:
            raise DriverError(ErrorKind.BUSY, self.kind, "read", "another read is pending")
        child = self._ready_child()
        child.progress(self._clock.monotonic_seconds())
        self._request += 1
        answer = self._answer = asyncio.get_running_loop().create_future()
        try:
            try:
                child.send(wire.encode(wire.request(self._request, arguments)))
            except DriverError as error:
                self._condemn(child, error)
            while not answer.done():
                self._watch(child)
                self.on_change()
                await asyncio.wait((answer,), timeout=self._tick_seconds)
            done: wire.Done = answer.result()
        finally:
            self._answer = None
            answer.cancel()
            self.on_change()
        if done.error_kind is None:
            self._failures = 0
            self._error = None
        else:
            self._error = (done.error_kind, done.error_cause, done.error_detail)
        self.on_change()
        return done

    def _ready_child(self) -> Child:
        if self._parked is not None or self._leaving:
            detail = f"the worker is {self._parked or 'stopping'}"
            raise DriverError(ErrorKind.BUSY, self.kind, "read", detail)
        if self._child is not None and not self._child.error:
            return self._child
        if self._child is not None:
            self._watch(self._child)
            if self._child is not None:
                raise DriverError(ErrorKind.BUSY, self.kind, "read", "the old worker has not left yet")
        wait_seconds = self._not_before_seconds - self._clock.monotonic_seconds()
        if wait_seconds > 0:
            detail = f"the worker is started again in {wait_seconds:.0f} s"
            raise DriverError(ErrorKind.BUSY, self.kind, "read", detail)
        return self._spawn()

    def _spawn(self) -> Child:
        try:
            child = Child(self._argv, self._clock.monotonic_seconds())
        except OSError as error:
            kind = ErrorKind.DENIED if isinstance(error, PermissionError) else ErrorKind.ABSENT
            self._back_off((kind, "other", f"cannot start the worker: {error}"))
            self.on_change()
            raise DriverError(kind, self.kind, "start worker", str(error)) from error
        self._child = child
        assert child.output is not None
        asyncio.get_running_loop().add_reader(child.output, self._on_output, child)
        return child

    # ------------------------------------------------------------------ what the child says

    def _on_output(self, child: Child) -> None:
        try:
            lines = child.read_lines()
            if lines is None:
                self._on_end_of_output(child)
                return
            for line in lines:
                if child.error is None:
                    self._on_line(child, line)
        except DriverError as error:
            self._condemn(child, error)

    def _on_line(self, child: Child, line: bytes) -> None:
        message = wire.decode_message(line)
        child.started = True
        if isinstance(message, wire.Mark | wire.Done | wire.Value | wire.Missing):
            child.progress(self._clock.monotonic_seconds())
        if isinstance(message, wire.Mark):
            child.pending_call = f"{message.call} {message.target}".strip()
        elif isinstance(message, wire.Done):
            child.pending_call = None
            self._on_done(message)
        else:
            self.on_message(message)

    def _on_done(self, done: wire.Done) -> None:
        if self._answer is None or self._answer.done() or done.id != self._request:
            detail = f"answers request {done.id}, which was not asked"
            raise DriverError(ErrorKind.INVALID, self.kind, "message", detail)
        self._answer.set_result(done)

    def _on_end_of_output(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        if child.output is None:
            return
        loop.remove_reader(child.output)
        child.close_output()
        self._condemn(child, DriverError(ErrorKind.LOST, self.kind, "worker", "the worker died"))
        self._reap_soon(child, loop, 50)

    def _reap_soon(self, child: Child, loop: asyncio.AbstractEventLoop, attempts: int) -> None:
        """A process ends a moment after its pipes; whoever needs longer is seen by the next tick."""
        if self._child is child and not self._reaped(child) and attempts > 0:
            loop.call_later(_REAP_SECONDS, self._reap_soon, child, loop, attempts - 1)

    # ------------------------------------------------------------------ deadlines and ends

    def _watch(self, child: Child) -> None:
        """Count misses, name a stuck call, end what must end."""
        if self._reaped(child):
            return
        waiting_seconds = self._clock.monotonic_seconds() - child.progress_seconds
        if child.pending_call is not None or self._answer is not None:
            child.misses = int(waiting_seconds / self._call_deadline_seconds)
            child.stuck = child.misses >= 3 or waiting_seconds >= self._stuck_seconds
        if child.killed:
            return
        if child.error is not None and (child.stuck or not child.in_call):
            child.kill()
        elif child.stuck and waiting_seconds >= self._kill_seconds:
            seconds = f"{waiting_seconds:.0f} s"
            detail = f"{child.pending_call or 'read'} did not return in {seconds}; the worker was killed"
            self._condemn(child, DriverError(ErrorKind.TIMEOUT, self.kind, "read", detail))
            child.kill()

    def _condemn(self, child: Child, error: DriverError) -> None:
        """Believe nothing more of this child; the first reason counts."""
        if child.error is None:
            child.error = error
        child.close_input()
        self.on_change()

    def _reaped(self, child: Child) -> bool:
        """True once the process is gone; its end is then booked, once."""
        if not child.gone:
            return False
        if self._child is not child:
            return True
        self._child = None
        self._drain(child)
        error = child.error or DriverError(ErrorKind.LOST, self.kind, "worker", "the worker died")
        if self._parked is None and not self._leaving:
            self._restarts += 1
            self._back_off(None if child.leaving else _named(error, child))
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.on_change()
        return True

    def _drain(self, child: Child) -> None:
        """Take what a dead child still said (its pipe holds no more than a few reads), close the pipes."""
        child.close_input()
        for _ in range(64):
            if child.output is None:
                return
            self._on_output(child)
        self._on_end_of_output(child)

    def _back_off(self, error: tuple[ErrorKind, str, str] | None) -> None:
        ceiling_seconds = min(BACKOFF_LIMIT_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** min(self._failures, 20))
        self._failures += 1
        self._error = error or self._error
        self._not_before_seconds = self._clock.monotonic_seconds() + ceiling_seconds * self._entropy()

    # ------------------------------------------------------------------ leaving

    async def park(self, state: str) -> None:
        """Have the child leave and start no other until `unpark`; `state` (released, absent) is shown.

        Returns when the process is gone: every handle is closed and every library unloaded.
        Raises DriverError(timeout) when it is inside a call that does not return; it then leaves as
        soon as it can, and the parking stands.
        """
        self._parked = state
        await self._end_child(state)
        self._error = None
        self.on_change()

    def unpark(self) -> None:
        """Let the next `read` start a child again."""
        self._parked = None
        self.forgive()

    def forgive(self) -> None:
        """End the backoff: something has changed, so the next `read` may start a child."""
        self._failures = 0
        self._not_before_seconds = 0.0
        self.on_change()

    async def release(self) -> None:
        """Park as `released`: the driver can be reset or unloaded. Raises what `park` raises."""
        await self.park("released")

    def resume(self) -> None:
        """End the release."""
        self.unpark()

    async def replace(self, reason: str) -> None:
        """Have the child leave; a `read` after the backoff starts one with a fresh library.

        Raises what `park` raises.
        """
        await self._end_child(reason)

    async def stop(self) -> None:
        """End the child and start no other. Raises nothing.

        A child inside a call that does not return is left; the kernel kills it when the daemon ends.
        """
        self._leaving = True
        with contextlib.suppress(DriverError):
            await self._end_child("stopping")

    async def _end_child(self, reason: str) -> None:
        child = self._child
        if child is None:
            return
        child.leaving = True
        self._condemn(child, DriverError(ErrorKind.BUSY, self.kind, "end worker", reason))
        loop = asyncio.get_running_loop()
        for _ in range(2):
            until_seconds = loop.time() + self._stop_seconds
            while not self._reaped(child) and loop.time() < until_seconds:
                await asyncio.sleep(_REAP_SECONDS)
            self._watch(child)
            if self._reaped(child):
                return
        detail = f"{child.pending_call or 'the worker'} has not returned yet"
        raise DriverError(ErrorKind.TIMEOUT, self.kind, "end worker", detail)


def _named(error: DriverError, child: Child) -> tuple[ErrorKind, str, str]:
    """Kind, named cause and sentence for the status."""
    if error.kind is ErrorKind.LOST:
        return error.kind, "died", f"{error.detail} ({child.end})"
    return error.kind, "other", error.detail
