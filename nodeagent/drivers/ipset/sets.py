"""Our ipsets by netlink: whole sets read back, entries written with everything that they carry.

Never touches a set that is not ours, and never takes half a dump for a set. Writing an entry that is
already there keeps its counters but wipes each of mark, priority and comment that is not sent again, so
all of them are always sent.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Any

from pyroute2 import AsyncIPSet
from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_IPSET
from pyroute2.netlink.nfnetlink import ipset as kernel

from nodeagent.drivers.ipset.entries import (
    ListMessage,
    Partial,
    address,
    batch,
    decoded,
    encoded,
    numeric,
)
from nodeagent.drivers.ipset.nouns import NAME_BYTES, SetEntry, SetReading, SetSpec
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.netlink_attempt import attempt
from nodeagent.traffic import SET_PREFIX

DEADLINE_SECONDS = 10.0
TRIES = 3
"""Of one dump, when it was interrupted or lacks entries."""
BATCH_ENTRIES = 50
"""Entries in one message: the kernel takes many at once, and its answer repeats the message."""
_REVISIONS = {
    "hash:ip": {"plain": 0, "counters": 1, "comment": 2, "skbinfo": 4},
    "hash:net": {"plain": 2, "counters": 3, "comment": 4, "skbinfo": 6},
}
"""Revision of each set type that brought a feature; other agents' older tools choke on higher ones."""
_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
_FLAGS = {
    "counters": kernel.IPSET_FLAG_WITH_COUNTERS,
    "comment": kernel.IPSET_FLAG_WITH_COMMENT,
    "skbinfo": kernel.IPSET_FLAG_WITH_SKBINFO,
}
_KINDS = {
    kernel.IPSET_ERR_FIND_TYPE: ErrorKind.ABSENT, kernel.IPSET_ERR_BUSY: ErrorKind.BUSY,
    kernel.IPSET_ERR_REFERENCED: ErrorKind.BUSY,
}
"""By ipset's own numbers."""


class IpSets:
    """Every verb is one attempt on a socket of its own and raises DriverError.

    Its kinds: absent (no such set, no such set type), denied, busy (in use, or a dump that could not be
    read whole), invalid, timeout. A name that is not ours is invalid.
    """

    async def read(self) -> dict[str, SetReading]:
        """Every set of ours by name, whole; busy when one could not be read whole."""
        async with _session("read sets", SET_PREFIX + "*") as sets:
            names = await _names(sets)
            return {name: reading for name in names if (reading := await _read_whole(sets, name)) is not None}

    async def ensure(self, spec: SetSpec) -> bool:
        """Create the set unless it is there; True when it was created. invalid: it has another header."""
        _expect_own(spec.name)
        async with _session("create set", spec.name) as sets:
            present = await _read_whole(sets, spec.name, kernel.IPSET_FLAG_LIST_HEADER)
            revision = _revision(spec, *await sets.get_supported_revisions(spec.kind, _FAMILY[spec.family]))
        if present is not None:
            if present.spec != spec:
                detail = f"it is there as {_words(present.spec)}, wanted is {_words(spec)}"
                raise DriverError(ErrorKind.INVALID, spec.name, "create set", detail)
            return False
        async with _session("create set", spec.name, revision) as sets:
            await sets.create(
                spec.name, stype=spec.kind, family=_FAMILY[spec.family], counters=spec.counters,
                comment=spec.comment, skbinfo=spec.skbinfo, maxelem=spec.max_elements,
            )  # fmt: skip
        return True

    async def add(self, spec: SetSpec, entries: Iterable[SetEntry]) -> None:
        """Add entries; of one that is there, replace mark, priority and comment and keep the counters."""
        await self._change(spec, kernel.IPSET_CMD_ADD, [encoded(spec, entry) for entry in entries])

    async def delete(self, spec: SetSpec, values: Iterable[str]) -> None:
        """Delete entries; one that is not there is no error."""
        await self._change(spec, kernel.IPSET_CMD_DEL, [address(spec, value) for value in values])

    async def destroy(self, name: str) -> None:
        """Remove a set; one that is not there is no error. busy: a rule names it."""
        _expect_own(name)
        async with _session("destroy set", name) as sets:
            try:
                await sets.destroy(name)
            except NetlinkError as error:
                if error.code != errno.ENOENT:
                    raise

    async def _change(self, spec: SetSpec, command: int, entries: list[list[Any]]) -> None:
        _expect_own(spec.name)
        op = "add entries" if command == kernel.IPSET_CMD_ADD else "delete entries"
        if not entries:
            return
        async with _session(op, spec.name) as sets:
            for first in range(0, len(entries), BATCH_ENTRIES):
                some = entries[first : first + BATCH_ENTRIES]
                await sets.request(batch(spec.name, some), command, NLM_F_REQUEST | NLM_F_ACK)


# --------------------------------------------------------------------------- reading


async def _names(sets: Any) -> list[str]:
    names = []
    async for message in await sets.list(flags=kernel.IPSET_FLAG_LIST_SETNAME):
        _expect_whole(message)
        name = message.get_attr("IPSET_ATTR_SETNAME")
        if name.startswith(SET_PREFIX):
            names.append(name)
    return sorted(names)


async def _read_whole(sets: Any, name: str, flags: int | None = None) -> SetReading | None:
    """One set, or its header alone; None when it is not there (any more)."""
    for _ in range(TRIES):
        try:
            return await _read_once(sets, name, flags)
        except Partial:
            continue
        except NetlinkError as error:
            if error.code == errno.ENOENT:
                return None
            if error.code not in (errno.EINTR, errno.EAGAIN):
                raise
    raise DriverError(ErrorKind.BUSY, name, "read set", f"changed during each of {TRIES} reads")


async def _read_once(sets: Any, name: str, flags: int | None) -> SetReading | None:
    header: Any = None
    reported: int | None = None
    entries: list[SetEntry] = []
    async for message in await sets.list(name, flags=flags):
        _expect_whole(message)
        data = message.get_attr("IPSET_ATTR_DATA")
        if data is not None:
            header = message
            reported = data.get_attr("IPSET_ATTR_ELEMENTS")
        held = message.get_attr("IPSET_ATTR_ADT")
        if held is not None:
            entries += decoded(held)
    if header is None:
        return None
    if flags is None and reported is not None and reported != len(entries):
        raise Partial
    data = header.get_attr("IPSET_ATTR_DATA")
    return SetReading(
        spec=_spec(name, header, data),
        entries=tuple(sorted(entries, key=numeric)),
        references=data.get_attr("IPSET_ATTR_REFERENCES") or 0,
    )


def _expect_whole(message: Any) -> None:
    if message["header"]["flags"] & NLM_F_DUMP_INTR:
        raise Partial


def _spec(name: str, header: Any, data: Any) -> SetSpec:
    flags = data.get_attr("IPSET_ATTR_CADT_FLAGS") or 0
    return SetSpec(
        name=name,
        kind=header.get_attr("IPSET_ATTR_TYPENAME"),
        family=6 if header.get_attr("IPSET_ATTR_FAMILY") == socket.AF_INET6 else 4,
        max_elements=data.get_attr("IPSET_ATTR_MAXELEM"),
        **{feature: bool(flags & bit) for feature, bit in _FLAGS.items()},
    )


# --------------------------------------------------------------------------- writing


def _expect_own(name: str) -> None:
    if not name.startswith(SET_PREFIX) or len(name.encode()) > NAME_BYTES:
        detail = f"not a set of ours: a name of at most {NAME_BYTES} bytes that begins with {SET_PREFIX}"
        raise DriverError(ErrorKind.INVALID, name, "write set", detail)


def _revision(spec: SetSpec, lowest: int, highest: int) -> int:
    """The lowest revision of the set type that has what the set needs."""
    known = _REVISIONS[spec.kind]
    features = [name for name in ("counters", "comment", "skbinfo") if getattr(spec, name)]
    needed = max(known[name] for name in ("plain", *features))
    if needed > highest:
        detail = f"this kernel's {spec.kind} ends at revision {highest}, {', '.join(features)} need {needed}"
        raise DriverError(ErrorKind.ABSENT, spec.name, "create set", detail)
    return max(lowest, needed)


def _words(spec: SetSpec) -> str:
    features = " ".join(name for name in _FLAGS if getattr(spec, name))
    return f"{spec.kind} IPv{spec.family} of {spec.max_elements} {features}".rstrip()


@contextlib.asynccontextmanager
async def _session(op: str, target: str, revision: int | None = None) -> AsyncIterator[Any]:
    """A socket, a deadline, and every failure as a DriverError."""
    try:
        async with attempt(op, target, DEADLINE_SECONDS, _KINDS), AsyncIPSet(attr_revision=revision) as sets:
            sets.register_policy(NFNL_SUBSYS_IPSET << 8 | kernel.IPSET_CMD_LIST, ListMessage)
            yield sets
    except Partial as error:
        raise DriverError(ErrorKind.BUSY, target, op, "sets changed while they were listed") from error
