"""A function in a child process inside a network namespace: its result or its exception comes back."""

from __future__ import annotations

import asyncio
import copyreg
import ctypes
import inspect
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from nodeagent.errors import DriverError

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)

# An exception is pickled by its `args`, and this one is made of other things than its text.
copyreg.pickle(DriverError, lambda error: (DriverError, (error.kind, error.target, error.op, error.detail)))


def write_text(path: str, text: str) -> None:
    """For a setting under /proc/sys of the namespace that the caller is in."""
    Path(path).write_text(text, encoding="ascii")


def enter(namespace: Path, *, sysfs: bool = True) -> None:
    """Put this process into the namespace for good; with /sys of that namespace for itself alone."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    _check(_libc.setns(descriptor, _CLONE_NEWNET), "setns")
    os.close(descriptor)
    if sysfs:
        _check(_libc.unshare(_CLONE_NEWNS), "unshare")
        _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "make mounts private")
        _check(_libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None), "mount /sys")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def in_child(namespace: Path, environment: dict[str, str], function: Callable[..., Any],
             arguments: tuple[Any, ...], timeout_seconds: float) -> Any:
    """Call `function` in a fork of this process inside `namespace`; a coroutine function is run to its end.

    Raises what it raised; RuntimeError when the child died or took longer than `timeout_seconds`.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(writer, namespace, environment, function, arguments)
    os.close(writer)
    try:
        answer = _answer(reader, timeout_seconds)
    finally:
        os.close(reader)
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if not answer:
        raise RuntimeError(f"{function.__name__} died in {namespace.name} or took over {timeout_seconds} s")
    result, error = pickle.loads(answer)
    if error is not None:
        raise error
    return result


def _child(writer: int, namespace: Path, environment: dict[str, str], function: Callable[..., Any],
           arguments: tuple[Any, ...]) -> NoReturn:
    """Never returns into the test that was forked: whatever happens, the process ends here."""
    try:
        answer = _outcome(namespace, environment, function, arguments)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)


def _outcome(namespace: Path, environment: dict[str, str], function: Callable[..., Any],
             arguments: tuple[Any, ...]) -> bytes:
    try:
        os.environ.update(environment)
        enter(namespace)
        result = function(*arguments)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return pickle.dumps((result, None))
    except BaseException as error:
        try:
            error.add_note("".join(traceback.format_exception(error)))
            answer = pickle.dumps((None, error))
            pickle.loads(answer)
            return answer
        except Exception:
            return pickle.dumps((None, RuntimeError("".join(traceback.format_exception(error)))))


def _answer(reader: int, timeout_seconds: float) -> bytes:
    end_seconds, answer = time.monotonic() + timeout_seconds, b""
    while select.select([reader], [], [], max(0.0, end_seconds - time.monotonic()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            return answer
        answer += part
    return b""
