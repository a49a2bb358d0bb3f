"""Our ipsets by netlink: whole sets read back, entries written with everything that they carry.

Never touches a set that is not ours, and never takes half a dump for a set. Writing an entry that is
already there keeps its counters but wipes each of mark, priority and comment that is not sent again, so
all of them are always sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import re
import socket
import struct
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct
from pyroute2 import AsyncIPSet
from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_IPSET, nfgen_msg
from pyroute2.netlink.nfnetlink import ipset as kernel

from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import SET_PREFIX, Counter

DEADLINE_SECONDS = 10.0
MAX_KNOWN = 8192
"""Entries remembered as decoded: those of a thousand dual-stack pods in both directions."""
TRIES = 3
"""Of one dump, when it was interrupted or lacks entries."""
BATCH_ENTRIES = 50
"""Entries in one message: the kernel takes many at once, and its answer repeats the message."""
PROTOCOL = 6
"""Of requests; every kernel since 2.6.39 takes it."""
NAME_BYTES = 31
COMMENT_BYTES = 255
_REVISIONS = {
    "hash:ip": {"plain": 0, "counters": 1, "comment": 2, "skbinfo": 4},
    "hash:net": {"plain": 2, "counters": 3, "comment": 4, "skbinfo": 6},
}
"""Revision of each set type that brought a feature; other agents' older tools choke on higher ones."""
_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
_ADDRESS = {4: "IPSET_ATTR_IPADDR_IPV4", 6: "IPSET_ATTR_IPADDR_IPV6"}
_HEADER, _PRIORITY, _MARK = struct.Struct("=HH"), struct.Struct(">HH"), struct.Struct(">II")
_IP, _CIDR, _BYTES, _PACKETS, _COMMENT, _SKBMARK, _SKBPRIO = 1, 3, 24, 25, 26, 27, 28
"""Attributes of an entry, as in the kernel's ip_set.h."""
_COUNTED = re.compile(
    rb"(.{12}|.{24})"
    + re.escape(struct.pack("=HH", 12, 0x4000 | _BYTES)) + rb"(.{8})"
    + re.escape(struct.pack("=HH", 12, 0x4000 | _PACKETS)) + rb"(.{8})(.*)",
    re.DOTALL,
)
"""An entry as kernels write it: address, bytes, packets, all else. Any other order is read more slowly."""
_NOTHING = bytes(8)
_FLAGS = {
    "counters": kernel.IPSET_FLAG_WITH_COUNTERS,
    "comment": kernel.IPSET_FLAG_WITH_COMMENT,
    "skbinfo": kernel.IPSET_FLAG_WITH_SKBINFO,
}
_KINDS = {
    errno.EPERM: ErrorKind.DENIED, errno.EACCES: ErrorKind.DENIED,
    errno.ENOENT: ErrorKind.ABSENT, errno.EPROTONOSUPPORT: ErrorKind.ABSENT,
    errno.EOPNOTSUPP: ErrorKind.ABSENT,
    errno.EINTR: ErrorKind.BUSY, errno.EAGAIN: ErrorKind.BUSY, errno.EBUSY: ErrorKind.BUSY,
    errno.ENOBUFS: ErrorKind.BUSY,
    kernel.IPSET_ERR_FIND_TYPE: ErrorKind.ABSENT, kernel.IPSET_ERR_BUSY: ErrorKind.BUSY,
    kernel.IPSET_ERR_REFERENCED: ErrorKind.BUSY,
}  # fmt: skip
"""By errno or ipset's own number; anything else is invalid."""


class SetSpec(Struct, frozen=True, kw_only=True):
    """The header of a set."""

    name: str
    kind: str = "hash:ip"
    """hash:ip | hash:net"""
    family: int = 4
    counters: bool = False
    comment: bool = False
    skbinfo: bool = False
    """Entries carry a mark and a priority."""
    max_elements: int = 65536


class SetEntry(Struct, frozen=True, kw_only=True):
    """One entry, whole."""

    value: str
    """Address, or prefix `address/length`, in canonical text form."""
    priority: int = 0
    """skb->priority: class major in the upper 16 bits, minor in the lower."""
    mark: int = 0
    mark_mask: int = 0
    """Bits of the packet mark that `mark` replaces; 0: none."""
    comment: str = ""
    counter: Counter = Counter()
    """As read; never written."""


class SetReading(Struct, frozen=True, kw_only=True):
    """One set as the kernel holds it."""

    spec: SetSpec
    entries: tuple[SetEntry, ...] = ()
    """By address, numerically."""
    references: int = 0
    """Rules that name it; such a set cannot be destroyed."""


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
        await self._change(spec, kernel.IPSET_CMD_ADD, [_encoded(spec, entry) for entry in entries])

    async def delete(self, spec: SetSpec, values: Iterable[str]) -> None:
        """Delete entries; one that is not there is no error."""
        await self._change(spec, kernel.IPSET_CMD_DEL, [_address(spec, value) for value in values])

    async def destroy(self, name: str) -> None:
        """Remove a set; one that is not there is no error. busy: a rule names it."""
        _expect_own(name)
        async with _session("destroy set", name) as sets:
            try:
                await sets.destroy(name)
            except NetlinkError as error:
                if error.code != errno.ENOENT:
                    raise

    async def _change(self, spec: SetSpec, command: int, encoded: list[list[Any]]) -> None:
        _expect_own(spec.name)
        op = "add entries" if command == kernel.IPSET_CMD_ADD else "delete entries"
        if not encoded:
            return
        async with _session(op, spec.name) as sets:
            for first in range(0, len(encoded), BATCH_ENTRIES):
                batch = encoded[first : first + BATCH_ENTRIES]
                await sets.request(_batch(spec.name, batch), command, NLM_F_REQUEST | NLM_F_ACK)


# --------------------------------------------------------------------------- reading


class _Partial(Exception):
    """A dump that was interrupted or lacks entries."""


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
        except _Partial:
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
            entries += _decoded(held)
    if header is None:
        return None
    if flags is None and reported is not None and reported != len(entries):
        raise _Partial
    data = header.get_attr("IPSET_ATTR_DATA")
    return SetReading(
        spec=_spec(name, header, data),
        entries=tuple(sorted(entries, key=_numeric)),
        references=data.get_attr("IPSET_ATTR_REFERENCES") or 0,
    )


def _expect_whole(message: Any) -> None:
    if message["header"]["flags"] & NLM_F_DUMP_INTR:
        raise _Partial


def _spec(name: str, header: Any, data: Any) -> SetSpec:
    flags = data.get_attr("IPSET_ATTR_CADT_FLAGS") or 0
    return SetSpec(
        name=name,
        kind=header.get_attr("IPSET_ATTR_TYPENAME"),
        family=6 if header.get_attr("IPSET_ATTR_FAMILY") == socket.AF_INET6 else 4,
        max_elements=data.get_attr("IPSET_ATTR_MAXELEM"),
        **{feature: bool(flags & bit) for feature, bit in _FLAGS.items()},
    )


_ListMessage: Any = type(
    "_ListMessage",
    (nfgen_msg,),
    {
        "cadt_data": kernel.ipset_msg.cadt_data,
        "nla_map": tuple(
            (name, {"IPSET_ATTR_ADT": "cdata", "IPSET_ATTR_DATA": "cadt_data"}.get(name, kind))
            for name, kind in kernel.ipset_msg.nla_map
        ),
    },
)
"""A message of a dump whose entries stay bytes: with the library's own decoder the sets of 250 pods take a
tenth of a second, with the one below a tenth of that."""


def _decoded(held: bytes) -> Iterator[SetEntry]:
    """Entries of an IPSET_ATTR_ADT; _Partial when one cannot be read."""
    for _, entry in _attributes(held):
        counted = _COUNTED.match(entry)
        try:
            if counted is None:
                yield _entry(entry)
                continue
            known, sent, packets = _entry(counted[1] + counted[4]), counted[2], counted[3]
            if sent == packets == _NOTHING:
                yield known
            else:
                counter = Counter(packets=int.from_bytes(packets, "big"), bytes=int.from_bytes(sent, "big"))
                yield msgspec.structs.replace(known, counter=counter)
        except (KeyError, IndexError, ValueError, struct.error) as error:
            raise _Partial from error


@functools.lru_cache(maxsize=MAX_KNOWN)
def _entry(packed_entry: bytes) -> SetEntry:
    """One entry from its attributes; remembered, because all but the counters is as at the last read."""
    found = dict(_attributes(packed_entry))
    _, packed = next(_attributes(found[_IP]), (0, b""))
    address = ipaddress.ip_address(packed)
    major, minor = _PRIORITY.unpack(found[_SKBPRIO]) if _SKBPRIO in found else (0, 0)
    mark, mask = _MARK.unpack(found[_SKBMARK]) if _SKBMARK in found else (0, 0)
    return SetEntry(
        value=f"{address}/{found[_CIDR][0]}" if _CIDR in found else str(address),
        priority=major << 16 | minor,
        mark=mark,
        mark_mask=mask,
        comment=found.get(_COMMENT, b"").rstrip(b"\0").decode("utf-8", "replace"),
        counter=Counter(
            packets=int.from_bytes(found.get(_PACKETS, b""), "big"),
            bytes=int.from_bytes(found.get(_BYTES, b""), "big"),
        ),
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and payload of each netlink attribute; _Partial when the bytes end inside one."""
    at = 0
    while at < len(data):
        if at + _HEADER.size > len(data):
            raise _Partial
        size, kind = _HEADER.unpack_from(data, at)
        if size < _HEADER.size or at + size > len(data):
            raise _Partial
        yield kind & 0x3FFF, data[at + _HEADER.size : at + size]
        at += (size + 3) & ~3


def _numeric(entry: SetEntry) -> tuple[bytes, int]:
    return _number(entry.value)


@functools.lru_cache(maxsize=MAX_KNOWN)
def _number(value: str) -> tuple[bytes, int]:
    address, _, length = value.partition("/")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_pton(family, address), int(length or 0)


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


def _address(spec: SetSpec, value: str) -> list[Any]:
    try:
        network = ipaddress.ip_network(value)
    except ValueError as error:
        raise DriverError(ErrorKind.INVALID, spec.name, "write set", f"{value!r}: {error}") from error
    if network.version != spec.family or (spec.kind == "hash:ip" and "/" in value):
        wanted = "an address" if spec.kind == "hash:ip" else "a prefix"
        detail = f"{value!r} is not {wanted} of IPv{spec.family}"
        raise DriverError(ErrorKind.INVALID, spec.name, "write set", detail)
    text = str(network.network_address)
    encoded: list[Any] = [["IPSET_ATTR_IP_FROM", {"attrs": [[_ADDRESS[spec.family], text]]}]]
    if spec.kind == "hash:net":
        encoded.append(["IPSET_ATTR_CIDR", network.prefixlen])
    return encoded


def _encoded(spec: SetSpec, entry: SetEntry) -> list[Any]:
    encoded = _address(spec, entry.value)
    if spec.comment:
        if len(entry.comment.encode()) > COMMENT_BYTES:
            detail = f"the comment of {entry.value} has over {COMMENT_BYTES} bytes"
            raise DriverError(ErrorKind.INVALID, spec.name, "add entries", detail)
        encoded.append(["IPSET_ATTR_COMMENT", entry.comment])
    if spec.skbinfo:
        encoded.append(["IPSET_ATTR_SKBMARK", (entry.mark, entry.mark_mask)])
        encoded.append(["IPSET_ATTR_SKBPRIO", (entry.priority >> 16, entry.priority & 0xFFFF)])
    return encoded


def _batch(name: str, encoded: list[list[Any]]) -> Any:
    """One message for many entries, which the kernel wants numbered."""
    message = kernel.ipset_msg()
    entries = [
        ["IPSET_ATTR_DATA", {"attrs": [*entry, ["IPSET_ATTR_CADT_LINENO", number]]}]
        for number, entry in enumerate(encoded, 1)
    ]
    message["attrs"] = [
        ["IPSET_ATTR_PROTOCOL", PROTOCOL],
        ["IPSET_ATTR_SETNAME", name],
        ["IPSET_ATTR_LINENO", 0],
        ["IPSET_ATTR_ADT", {"attrs": entries}],
    ]
    return message


@contextlib.asynccontextmanager
async def _session(op: str, target: str, revision: int | None = None) -> AsyncIterator[Any]:
    """A socket, a deadline, and every failure as a DriverError."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS), AsyncIPSet(attr_revision=revision) as sets:
            sets.register_policy(NFNL_SUBSYS_IPSET << 8 | kernel.IPSET_CMD_LIST, _ListMessage)
            yield sets
    except TimeoutError as error:
        raise DriverError(ErrorKind.TIMEOUT, target, op, f"no answer after {DEADLINE_SECONDS:g} s") from error
    except _Partial as error:
        raise DriverError(ErrorKind.BUSY, target, op, "sets changed while they were listed") from error
    except NetlinkError as error:
        kind = _KINDS.get(error.code, ErrorKind.INVALID)
        raise DriverError(kind, target, op, str(error.args[-1])) from error
    except OSError as error:
        kind = _KINDS.get(error.errno or 0, ErrorKind.INVALID)
        raise DriverError(kind, target, op, error.strerror or str(error)) from error
