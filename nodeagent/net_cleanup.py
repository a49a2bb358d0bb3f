"""`nodeagent net cleanup`: takes every rule, chain and set of ours away, and all of ours in tc.

Needs no configuration, no pods and no memory: what bears our prefix is ours. While it removes it holds the
agent's lock, so that none starts in between. Foreign rules, sets and filters are out of reach of its drivers.
Rules go first: then no packet has a class, and none is on its way through the ifb when that goes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from nodeagent.drivers.ipset import IpSets
from nodeagent.drivers.iptables import choose_backend, open_rules
from nodeagent.drivers.iptables.programs import Backend, found, saved_mangle
from nodeagent.drivers.iptables.reading import reading_of
from nodeagent.drivers.lock import InstanceLock
from nodeagent.drivers.tc import Shaper
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.shape import IFB_NAME
from nodeagent.traffic import FAMILIES

NAMES = ("iptables-nft", "iptables-legacy")
PLAIN = "iptables"
TRIES = 5
DRAIN_SECONDS = 0.2
"""What the ifb still holds gets on in this time: four times its longest queue."""
RETRY_SECONDS = 0.5
"""Between tries of what is busy: another program writes rules."""


class Cleanup(Struct, kw_only=True):
    """What was removed, or would be, one line each; what was not, with the reason."""

    removed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    denied: bool = False
    """Something failed for want of permission."""


def cleanup(socket: str, *, dry_run: bool, force: bool) -> Cleanup:
    """Remove everything of ours; `dry_run`: only say what.

    Raises DriverError: busy while an agent holds the lock beside `socket` (unless `force`), denied.
    """
    with contextlib.nullcontext() if dry_run else _alone(Path(socket).with_name("nodeagent.lock"), force):
        return asyncio.run(_clean(dry_run))


@contextlib.contextmanager
def _alone(lock_path: Path, force: bool) -> Iterator[None]:
    """Hold the agent's lock; without its folder no agent runs, and none is made."""
    lock: InstanceLock | None = None
    if lock_path.parent.is_dir():
        try:
            lock = InstanceLock(str(lock_path))
        except DriverError as error:
            if not (force and error.kind is ErrorKind.BUSY):
                raise
    try:
        yield
    finally:
        if lock is not None:
            lock.close()


async def _clean(dry_run: bool) -> Cleanup:
    done = Cleanup()
    for backend in await _backends(done):
        for family in FAMILIES:
            await _clean_rules(backend, family, done, dry_run)
    await _clean_shape(done, dry_run)
    await _clean_sets(done, dry_run)
    return done


async def _backends(done: Cleanup) -> list[Backend]:
    """Both iptables where both are installed; a host without any has no rules of ours."""
    paths = [path for path in map(found, NAMES) if path] or [path for path in [found(PLAIN)] if path]
    backends = []
    for path in paths:
        try:
            backends.append(await choose_backend(path))
        except DriverError as error:
            _note(done, error)
    return backends


async def _clean_rules(backend: Backend, family: int, done: Cleanup, dry_run: bool) -> None:
    where = f"{Path(backend.prefix[family]).name} -t mangle"
    try:
        state = reading_of(await saved_mangle(backend, family), family)
        jumps = (*state.state.jumps, *state.stray)
        lines = [f"{where} -D {jump.chain} {jump.arguments}" for jump in jumps]
        lines += [f"{where} -X {chain}" for chain in state.state.chains]
        if lines and not dry_run:
            await _until_free(backend, family)
        done.removed += lines
    except DriverError as error:
        _note(done, error)


async def _until_free(backend: Backend, family: int) -> None:
    writer = open_rules(backend)
    for left in reversed(range(TRIES)):
        try:
            await writer.remove(family)
            return
        except DriverError as error:
            if error.kind is not ErrorKind.BUSY or not left:
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def _clean_shape(done: Cleanup, dry_run: bool) -> None:
    shaper = Shaper()
    try:
        held = (await shaper.read()).state
        for device in dict.fromkeys(one.device for one in held.filters):
            if not dry_run:
                await shaper.delete_filter(device)
            done.removed.append(f"tc filter del dev {device} egress (ours alone)")
        if await shaper.has_ifb():
            if not dry_run:
                await asyncio.sleep(DRAIN_SECONDS)
                await shaper.delete_ifb()
            done.removed.append(f"ip link delete {IFB_NAME}")
    except DriverError as error:
        _note(done, error)
    finally:
        shaper.close()


async def _clean_sets(done: Cleanup, dry_run: bool) -> None:
    sets = IpSets()
    try:
        names = sorted(await sets.read())
    except DriverError as error:
        if error.kind is not ErrorKind.ABSENT:  # a kernel without ipset holds none
            _note(done, error)
        return
    for name in names:
        try:
            if not dry_run:
                await sets.destroy(name)
            done.removed.append(f"ipset destroy {name}")
        except DriverError as error:
            _note(done, error)


def _note(done: Cleanup, error: DriverError) -> None:
    done.failed.append(str(error))
    done.denied = done.denied or error.kind is ErrorKind.DENIED
