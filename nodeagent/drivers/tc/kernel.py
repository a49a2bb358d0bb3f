"""What of ours tc holds, object by object: raw reads of links, qdiscs, classes and filters of one namespace.

Lists of tc do not say that they changed while they were read, so each is dumped while its changes are heard:
a list that changed is read again, a part is never returned.
"""

from __future__ import annotations

import struct
import sys
from typing import NamedTuple

from nodeagent.rtnetlink import GET_LINK, Message, dump, get, parse_attributes
from nodeagent.shape import ClassCounter

INGRESS_SLOT, EGRESS, INGRESS, ROOT = 0xFFFFFFF1, 0xFFFFFFF3, 0xFFFFFFF2, 0xFFFFFFFF
"""Parents: where clsact or ingress stands, the two sides of clsact, the root."""
TC_GROUP = 0x8
"""Multicast group of tc, as a mask."""
REDIRECT = 1
"""Mirred: redirect to the egress of a device."""
FQ_CODEL_MEMORY = 2
"""fq_codel limits the memory of packets, about twice their bytes."""

_GET_QDISC, _GET_CLASS, _GET_FILTER, _GET_CHAIN = 38, 42, 46, 102
_TC, _LINK, _ATTRIBUTE = struct.Struct("=BxxxiIII"), struct.Struct("=BxHiII"), struct.Struct("=HH")
_HTB_CLASS, _HTB_INIT = struct.Struct("=BBHhHIBBHhHIIIIII"), struct.Struct("=IIIII")
_MIRRED, _XSTATS = struct.Struct("=IIiiiiI"), struct.Struct("=III")
_UP, _TICK_NANOSECONDS = 0x1, 64
_NANOSECONDS = 10**9
_KIND, _OPTIONS, _XSTATS_AT, _STATS, _CHAIN, _INGRESS_BLOCK, _EGRESS_BLOCK = 1, 2, 4, 7, 11, 13, 14
_BASIC, _QUEUE, _PACKETS64 = 1, 3, 8


class Link(NamedTuple):
    """A device, as far as it matters here."""

    ifindex: int
    kind: str
    up: bool
    mtu_bytes: int
    queue_packets: int
    gso_max_bytes: int
    gso_max_segments: int


class Qdisc(NamedTuple):
    """One qdisc."""

    ifindex: int
    handle: int
    parent: int
    kind: str
    default: int
    """Minor of the default class of HTB."""
    limit_bytes: int
    """Longest queue of a bfifo or fq_codel, else 0."""
    shared: int
    """Number of a block of filters that other devices share; 0: none."""


class Class(NamedTuple):
    """One HTB class."""

    handle: int
    parent: int
    rate_bytes: int
    ceil_bytes: int
    burst_bytes: int
    cburst_bytes: int
    quantum_bytes: int
    counter: ClassCounter


class Filter(NamedTuple):
    """One filter; of those not ours only the place is known."""

    handle: int
    info: int
    """Preference in the upper 16 bits, protocol in the lower."""
    kind: str
    chain: int
    name: str = ""
    tag: str = ""
    direct: bool = False
    """It is direct-action."""
    redirect_index: int = 0
    """Interface that its only action redirects to; 0: none."""

    @property
    def preference(self) -> int:
        """Place among the filters; a higher one comes later."""
        return self.info >> 16


class Mirred(NamedTuple):
    """An action that hands packets to a device."""

    how: int
    """`REDIRECT`, or a mirror, or to its ingress."""
    ifindex: int


def ticks(size_bytes: int, rate_bytes: int) -> int:
    """Time that a burst takes at a rate, in the kernel's units of 64 ns, rounded up; at most 32 bits."""
    whole = -(-size_bytes * _NANOSECONDS // (rate_bytes * _TICK_NANOSECONDS))
    return min(whole, (1 << 32) - 1)


def burst_bytes(time_ticks: int, rate_bytes: int) -> int:
    """The burst that `ticks` was made of, exact up to 125 Mbit/s and for whole ticks; else the next above."""
    return time_ticks * _TICK_NANOSECONDS * rate_bytes // _NANOSECONDS


# --------------------------------------------------------------------------- reads


async def link(name: str) -> Link | None:
    """A device by name; None when there is none."""
    label = name.encode() + b"\0"
    wanted = _ATTRIBUTE.pack(4 + len(label), 3) + label
    answer = await get(GET_LINK, _LINK.pack(0, 0, 0, 0, 0) + wanted + b"\0" * (-len(wanted) % 4))
    if answer is None:
        return None
    _, _, index, flags, _ = _LINK.unpack_from(answer.data, answer.at)
    held = answer.attributes(_LINK.size)
    information = _nested(held.get(18, b""))
    return Link(
        ifindex=index, kind=_text(information.get(1, b"")), up=bool(flags & _UP),
        mtu_bytes=_number(held.get(4)), queue_packets=_number(held.get(13)),
        gso_max_bytes=_number(held.get(41)), gso_max_segments=_number(held.get(40)),
    )


async def qdiscs(own_index: int) -> list[Qdisc]:
    """All of the device `own_index`, and every clsact and ingress."""
    def concerns(type_: int, message: Message) -> bool:
        _, index, _, parent, _ = _TC.unpack_from(message.data, message.at)
        return type_ in (36, 37) and (index == own_index or parent == INGRESS_SLOT)

    messages = await dump(_GET_QDISC, _TC.pack(0, 0, 0, 0, 0), watch=TC_GROUP, concerns=concerns)
    return [qdisc for message in messages if (qdisc := _qdisc(message, own_index)) is not None]


async def qdisc(index: int, parent: int) -> Qdisc | None:
    """The qdisc at one place; None when there is none, or only the kernel's default."""
    answer = await get(_GET_QDISC, _TC.pack(0, index, 0, parent, 0))
    found = None if answer is None else _qdisc(answer, index)
    return found if found is not None and found.handle else None


async def classes(index: int) -> list[Class]:
    """All HTB classes of a device."""
    def concerns(type_: int, message: Message) -> bool:
        return 36 <= type_ <= 41 and _TC.unpack_from(message.data, message.at)[1] == index

    messages = await dump(_GET_CLASS, _TC.pack(0, index, 0, 0, 0), watch=TC_GROUP, concerns=concerns)
    return [one for message in messages if (one := _class(message)) is not None]


async def class_(index: int, handle: int) -> Class | None:
    """One HTB class; None when it is not there."""
    answer = await get(_GET_CLASS, _TC.pack(0, index, handle, 0, 0))
    return None if answer is None else _class(answer)


async def filters(index: int, side: int) -> list[Filter]:
    """The filters of one side of a device's clsact, in their order."""
    messages = await _filter_messages(index, side)
    return [one for message in messages if (one := _filter(message)).handle]


async def _filter_messages(index: int, side: int) -> list[Message]:
    def concerns(type_: int, message: Message) -> bool:
        changed = _TC.unpack_from(message.data, message.at)[1]
        return type_ in (36, 37, 44, 45) and changed in (index, -1)  # -1: of a shared block

    return await dump(_GET_FILTER, _TC.pack(0, index, 0, side, 0), watch=TC_GROUP, concerns=concerns)


async def chains(index: int, side: int) -> list[int]:
    """Numbers of the chains on one side of a device's clsact; ABSENT on kernels before 4.19."""
    messages = await dump(_GET_CHAIN, _TC.pack(0, index, 0, side, 0))
    return [_number(message.attributes(_TC.size).get(_CHAIN)) for message in messages]


async def leads_to(target_index: int, index: int, side: int) -> bool:
    """Whether a filter on this side of a device's clsact or ingress hands packets to a device by mirred.

    Of any kind and anybody's. A list of actions would be shorter, but it leaves a trace in each of them.
    """
    found = (
        _mirred(action) for message in await _filter_messages(index, side)
        for option in _nested(message.attributes(_TC.size).get(_OPTIONS, b"")).values()
        for action in _nested(option).values()
    )  # fmt: skip
    return any(one is not None and one.ifindex == target_index for one in found)


# --------------------------------------------------------------------------- decoding


def _qdisc(message: Message, own_index: int) -> Qdisc | None:
    _, index, handle, parent, _ = _TC.unpack_from(message.data, message.at)
    if index != own_index and parent != INGRESS_SLOT:
        return None
    held = message.attributes(_TC.size)
    kind, options = _text(held.get(_KIND, b"")), held.get(_OPTIONS, b"")
    default = limit_bytes = 0
    if kind == "htb":
        initial = _nested(options).get(2, b"")
        default = _HTB_INIT.unpack(initial)[2] if len(initial) == _HTB_INIT.size else 0
    elif kind == "bfifo":
        limit_bytes = _number(options[:4])
    elif kind == "fq_codel":
        limit_bytes = _number(_nested(options).get(9)) // FQ_CODEL_MEMORY
    shared = _number(held.get(_EGRESS_BLOCK)) or _number(held.get(_INGRESS_BLOCK))
    return Qdisc(index, handle, parent, kind, default, limit_bytes, shared)


def _class(message: Message) -> Class | None:
    _, _, handle, parent, _ = _TC.unpack_from(message.data, message.at)
    held = message.attributes(_TC.size)
    options = _nested(held.get(_OPTIONS, b""))
    if _text(held.get(_KIND, b"")) != "htb" or len(options.get(1, b"")) != _HTB_CLASS.size:
        return None
    fields = _HTB_CLASS.unpack(options[1])
    rate, ceil, (burst, cburst, quantum) = fields[5], fields[11], fields[12:15]
    rate, ceil = _number(options.get(6)) or rate, _number(options.get(7)) or ceil
    return Class(
        handle=handle, parent=parent, rate_bytes=rate, ceil_bytes=ceil, burst_bytes=burst_bytes(burst, rate),
        cburst_bytes=burst_bytes(cburst, ceil), quantum_bytes=quantum, counter=_counter(held),
    )


def _counter(held: dict[int, bytes]) -> ClassCounter:
    stats = _nested(held.get(_STATS, b""))
    basic, queue = stats.get(_BASIC, b""), stats.get(_QUEUE, b"")
    lends, borrows, _ = _XSTATS.unpack(held.get(_XSTATS_AT, b"")[: _XSTATS.size].ljust(_XSTATS.size, b"\0"))
    _, backlog, drops, _, overlimits = struct.unpack("=IIIII", queue[:20].ljust(20, b"\0"))
    return ClassCounter(
        bytes=_number(basic[:8]), packets=_number(stats.get(_PACKETS64)) or _number(basic[8:12]),
        drops=drops, overlimits=overlimits, backlog_bytes=backlog, lends=lends, borrows=borrows,
    )


def _filter(message: Message) -> Filter:
    _, _, handle, _, info = _TC.unpack_from(message.data, message.at)
    held = message.attributes(_TC.size)
    kind, chain = _text(held.get(_KIND, b"")), _number(held.get(_CHAIN))
    if kind != "bpf":
        return Filter(handle, info, kind, chain)
    options = _nested(held.get(_OPTIONS, b""))
    return Filter(
        handle, info, kind, chain, name=_text(options.get(7, b"")), tag=options.get(10, b"").hex(),
        direct=bool(_number(options.get(8)) & 1), redirect_index=_redirect(_nested(options.get(1, b""))),
    )


def _redirect(actions: dict[int, bytes]) -> int:
    found = _mirred(next(iter(actions.values()))) if len(actions) == 1 else None
    return found.ifindex if found is not None and found.how == REDIRECT else 0


def _mirred(action: bytes) -> Mirred | None:
    held = _nested(action)
    parameters = _nested(held.get(2, b"")).get(2, b"")
    if _text(held.get(1, b"")) != "mirred" or len(parameters) < _MIRRED.size:
        return None
    *_, how, index = _MIRRED.unpack_from(parameters)
    return Mirred(how=how, ifindex=index)


def _nested(data: bytes) -> dict[int, bytes]:
    return parse_attributes(data, 0, len(data))


def _number(raw: bytes | None) -> int:
    return int.from_bytes(raw, sys.byteorder) if raw else 0


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "replace")
