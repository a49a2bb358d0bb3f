"""The programs of the iptables package: found, run with a deadline, their refusals told apart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

from msgspec import Struct

from nodeagent.drivers.iptables.reading import EMPTY, TABLE
from nodeagent.drivers.iptables.text import SavedTable, parse_save
from nodeagent.errors import DriverError, ErrorKind

DEADLINE_SECONDS = 10.0
LOCK_WAIT_SECONDS = 2
"""For -w: nft has no lock and ignores it, legacy waits that long."""
SEARCH = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin"
"""After PATH: a unit's PATH may lack the sbin folders."""
PROGRAM = {4: "iptables", 6: "ip6tables"}
_NAMES = {4: "/proc/net/ip_tables_names", 6: "/proc/net/ip6_tables_names"}
_DETAIL_CHARACTERS = 300

# Exit 4 is every refusal of the kernel alike, so the words decide.
_KINDS = (
    (ErrorKind.DENIED, ("Permission denied", "you must be root", "Operation not permitted")),
    (ErrorKind.BUSY, ("holding the xtables lock", "Resource temporarily unavailable", "does a matching rule",
                      "Interrupted system call", "Device or resource busy")),
    (ErrorKind.ABSENT, ("doesn't exist", "does not exist", "Couldn't load", "No such file or directory",
                        "Protocol not supported", "Operation not supported", "No chain/target/match",
                        "invalid value")),
)  # fmt: skip


class Backend(Struct, frozen=True, kw_only=True):
    """Which iptables this host uses, and why."""

    name: str
    """nft | legacy"""
    reason: str
    """One sentence fragment for people."""
    prefix: dict[int, str]
    """Family -> path of its programs without `-save` and `-restore`."""


def found(name: str) -> str:
    """Path of a program; "" when the host has none of that name."""
    return shutil.which(name) or shutil.which(name, path=SEARCH) or ""


def kind_of(text: str) -> ErrorKind:
    """The kind of what a program or the library said."""
    for kind, signs in _KINDS:
        if any(sign in text for sign in signs):
            return kind
    return ErrorKind.INVALID


async def run(argv: list[str], op: str, stdin: str = "", deadline_seconds: float = DEADLINE_SECONDS) -> str:
    """The standard output of a program that ends well.

    Raises DriverError: absent (no such program, or it lacks something), denied, busy, invalid, timeout.
    """
    name = Path(argv[0]).name
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        kind = ErrorKind.DENIED if isinstance(error, PermissionError) else ErrorKind.ABSENT
        raise DriverError(kind, argv[0], op, error.strerror or str(error)) from error
    try:
        async with asyncio.timeout(deadline_seconds):
            output, said = await process.communicate(stdin.encode())
    except TimeoutError as error:
        raise DriverError(ErrorKind.TIMEOUT, name, op, f"no end after {deadline_seconds:g} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        reason = " ".join(said.decode("utf-8", "replace").split())
        detail = f"exit {process.returncode}: {reason[:_DETAIL_CHARACTERS]}"
        raise DriverError(kind_of(reason), name, op, detail)
    return output.decode("utf-8", "replace")


async def saved(backend: str, prefix: str, family: int, table: str = "") -> tuple[SavedTable, ...]:
    """The tables of one family, with counters; all that exist, or the one named.

    A legacy table that nobody has used is not asked for, since asking makes the kernel create it.
    """
    if backend == "legacy" and table and table not in _legacy_tables(family):
        return ()
    argv = [f"{prefix}-save", "-c", *(["-t", table] if table else [])]
    text = await run(argv, "read rules")
    try:
        return parse_save(text)
    except ValueError as error:
        raise DriverError(ErrorKind.INVALID, Path(argv[0]).name, "read rules", str(error)) from error


async def saved_mangle(backend: Backend, family: int) -> SavedTable:
    """The mangle table of one family; an empty one where there is none."""
    tables = await saved(backend.name, backend.prefix[family], family, TABLE)
    return next((table for table in tables if table.name == TABLE), EMPTY)


def _legacy_tables(family: int) -> list[str]:
    try:
        return Path(_NAMES[family]).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return []
    except OSError as error:
        kind = ErrorKind.DENIED if isinstance(error, PermissionError) else ErrorKind.INVALID
        raise DriverError(kind, _NAMES[family], "read rules", error.strerror or "") from error
