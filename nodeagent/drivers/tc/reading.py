"""Puts what the kernel holds of ours in tc together into one `ShapeReading`; writes nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nodeagent.drivers.tc import kernel
from nodeagent.drivers.tc.kernel import EGRESS, INGRESS, INGRESS_SLOT, ROOT, Class, Filter, Link, Qdisc
from nodeagent.drivers.tc.write import FILTER_NAME, HANDLE, PREFERENCE
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.shape import IFB_NAME, ClassCounter, ShapeClass, ShapeFilter, ShapeState
from nodeagent.traffic import DEFAULT_MINOR

QUEUE_PACKETS = 1000
"""Least txqueuelen of the ifb."""
LEAF_KINDS = ("fq_codel", "bfifo")
"""Best first."""
_MINOR = 0xFFFF


class Held(NamedTuple):
    """A reading, but for what the program's loader knows."""

    state: ShapeState
    counters: dict[int, ClassCounter]
    leaf_kind: str
    blocked: dict[str, str]


async def read() -> Held:
    """Everything of ours, whole; raises DriverError."""
    ifb = await find_ifb()
    index = ifb.ifindex if ifb is not None else -1
    qdiscs = await kernel.qdiscs(index)
    htb = is_own_htb(next((one for one in qdiscs if one.ifindex == index and one.parent == ROOT), None))
    leaves = {one.parent & _MINOR: one for one in qdiscs if one.ifindex == index and one.kind in LEAF_KINDS}
    classes = await kernel.classes(index) if htb else []
    filters, displaced = await _own_filters(qdiscs, index)
    return Held(
        state=ShapeState(
            ifb=ifb is not None and is_ready(ifb), htb=htb,
            classes=tuple(sorted(shape_class(one, leaves.get(one.handle & _MINOR)) for one in classes)),
            filters=tuple(sorted(filters)), displaced=tuple(sorted(displaced)),
        ),
        counters={one.handle & _MINOR: one.counter for one in classes},
        leaf_kind=min((one.kind for one in leaves.values()), key=LEAF_KINDS.index, default=""),
        blocked=dict(_blocked(qdiscs)),
    )


async def find_ifb() -> Link | None:
    """Our ifb; None when there is no device of that name. invalid: it is something else."""
    found = await kernel.link(IFB_NAME)
    if found is not None and found.kind != "ifb":
        detail = f"that device is of kind {found.kind or 'none'}, ours is an ifb: rename or delete it"
        raise DriverError(ErrorKind.INVALID, IFB_NAME, "find ifb", detail)
    return found


def is_ready(ifb: Link) -> bool:
    """What is redirected to it gets on."""
    return ifb.up and ifb.queue_packets >= QUEUE_PACKETS


def is_own_htb(root: Qdisc | None) -> bool:
    """The root qdisc is our HTB."""
    return (
        root is not None and root.kind == "htb" and root.handle == HANDLE and root.default == DEFAULT_MINOR
    )


def shape_class(held: Class, leaf: Qdisc | None) -> ShapeClass:
    """A class as one asks for it. The kernel keeps a quantum of leaves only: of others it is 0."""
    return ShapeClass(
        minor=held.handle & _MINOR, parent=0 if held.parent in (ROOT, HANDLE) else held.parent & _MINOR,
        rate_bytes_per_second=held.rate_bytes, ceil_bytes_per_second=held.ceil_bytes,
        burst_bytes=held.burst_bytes, cburst_bytes=held.cburst_bytes,
        quantum_bytes=held.quantum_bytes if leaf is not None else 0,
        leaf_limit_bytes=leaf.limit_bytes if leaf is not None else 0,
    )  # fmt: skip


def own(filters: Iterable[Filter]) -> list[Filter]:
    """Ours, by the name that we gave."""
    return [one for one in filters if one.kind == "bpf" and one.name == FILTER_NAME]


def is_last_alone(filters: list[Filter]) -> bool:
    """Ours is there once, in the last place, and nothing stands behind it."""
    first_chain = [one for one in filters if one.chain == 0]
    mine = own(filters)
    return len(mine) == 1 and mine[0].preference == PREFERENCE and first_chain[-1:] == mine


def excluded(there: Qdisc) -> str:
    """Why no filter of ours can stand behind this qdisc; "" when it can."""
    if there.kind == "ingress":
        return "its `ingress` qdisc excludes clsact: delete it, or let its owner use clsact"
    if there.shared:
        return f"its clsact shares filter block {there.shared} with other devices: give it a block of its own"
    return ""


async def _own_filters(qdiscs: Iterable[Qdisc], ifb_index: int) -> tuple[list[ShapeFilter], list[str]]:
    found: list[ShapeFilter] = []
    displaced: list[str] = []
    for there in qdiscs:
        if there.parent != INGRESS_SLOT or there.kind != "clsact":
            continue
        filters = await kernel.filters(there.ifindex, EGRESS)
        mine = own(filters)
        name = _name(there.ifindex) if mine else ""
        if not name:
            continue
        found.append(shape_filter(name, mine[-1], ifb_index))
        if not is_last_alone(filters):
            displaced.append(name)
        await asyncio.sleep(0)
    return found, displaced


async def leading_to(ifb: Link) -> list[str]:
    """Devices with a filter, anybody's, that hands packets to the ifb: on clsact's sides or on ingress."""
    found: list[str] = []
    for there in await kernel.qdiscs(ifb.ifindex):
        if there.parent == INGRESS_SLOT:
            sides = (EGRESS, INGRESS) if there.kind == "clsact" else (INGRESS,)
            if any([await kernel.leads_to(ifb.ifindex, there.ifindex, side) for side in sides]):
                found.append(_name(there.ifindex))
            await asyncio.sleep(0)
    return sorted(found)


def shape_filter(device: str, held: Filter, ifb_index: int) -> ShapeFilter:
    """A filter as one asks for it; a wrong action leads nowhere, that is to ""."""
    leads = not held.direct and held.redirect_index
    target = "" if not leads else IFB_NAME if held.redirect_index == ifb_index else _name(held.redirect_index)
    return ShapeFilter(device=device, tag=held.tag, target=target)


def _blocked(qdiscs: Iterable[Qdisc]) -> Iterator[tuple[str, str]]:
    for there in qdiscs:
        why = excluded(there) if there.parent == INGRESS_SLOT else ""
        name = _name(there.ifindex) if why else ""
        if name:
            yield name, why


def _name(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:
        return ""
