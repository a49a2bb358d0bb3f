"""Entries as bytes of netlink messages: read without the library's slow decoder, written with its encoder."""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
from pyroute2.netlink.nfnetlink import ipset as kernel
from pyroute2.netlink.nfnetlink import nfgen_msg

from nodeagent.drivers.ipset.nouns import COMMENT_BYTES, SetEntry, SetSpec
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import Counter

MAX_KNOWN = 8192
"""Entries remembered as decoded: those of a thousand dual-stack pods in both directions."""
PROTOCOL = 6
"""Of requests; every kernel since 2.6.39 takes it."""
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


class Partial(Exception):
    """A dump that was interrupted or lacks entries."""


ListMessage: Any = type(
    "ListMessage",
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


def decoded(held: bytes) -> Iterator[SetEntry]:
    """Entries of an IPSET_ATTR_ADT; Partial when one cannot be read."""
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
            raise Partial from error


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
    """Type and payload of each netlink attribute; Partial when the bytes end inside one."""
    at = 0
    while at < len(data):
        if at + _HEADER.size > len(data):
            raise Partial
        size, kind = _HEADER.unpack_from(data, at)
        if size < _HEADER.size or at + size > len(data):
            raise Partial
        yield kind & 0x3FFF, data[at + _HEADER.size : at + size]
        at += (size + 3) & ~3


def numeric(entry: SetEntry) -> tuple[bytes, int]:
    """What sorts entries by address, then by the length of the prefix."""
    return _number(entry.value)


@functools.lru_cache(maxsize=MAX_KNOWN)
def _number(value: str) -> tuple[bytes, int]:
    address, _, length = value.partition("/")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_pton(family, address), int(length or 0)


def address(spec: SetSpec, value: str) -> list[Any]:
    """Attributes that name an entry; DriverError(invalid) for what the set cannot hold."""
    try:
        network = ipaddress.ip_network(value)
    except ValueError as error:
        raise DriverError(ErrorKind.INVALID, spec.name, "write set", f"{value!r}: {error}") from error
    if network.version != spec.family or (spec.kind == "hash:ip" and "/" in value):
        wanted = "an address" if spec.kind == "hash:ip" else "a prefix"
        detail = f"{value!r} is not {wanted} of IPv{spec.family}"
        raise DriverError(ErrorKind.INVALID, spec.name, "write set", detail)
    text = str(network.network_address)
    named: list[Any] = [["IPSET_ATTR_IP_FROM", {"attrs": [[_ADDRESS[spec.family], text]]}]]
    if spec.kind == "hash:net":
        named.append(["IPSET_ATTR_CIDR", network.prefixlen])
    return named


def encoded(spec: SetSpec, entry: SetEntry) -> list[Any]:
    """Attributes of a whole entry; DriverError(invalid) for what the set cannot hold."""
    attributes = address(spec, entry.value)
    if spec.comment:
        if len(entry.comment.encode()) > COMMENT_BYTES:
            detail = f"the comment of {entry.value} has over {COMMENT_BYTES} bytes"
            raise DriverError(ErrorKind.INVALID, spec.name, "add entries", detail)
        attributes.append(["IPSET_ATTR_COMMENT", entry.comment])
    if spec.skbinfo:
        attributes.append(["IPSET_ATTR_SKBMARK", (entry.mark, entry.mark_mask)])
        attributes.append(["IPSET_ATTR_SKBPRIO", (entry.priority >> 16, entry.priority & 0xFFFF)])
    return attributes


def batch(name: str, encoded: list[list[Any]]) -> Any:
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
