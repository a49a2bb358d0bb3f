"""Writes our share of tc: the ifb with its HTB, and one filter on each uplink; reads each write back.

Foreign qdiscs, classes and filters are never changed, an `ingress` qdisc is never replaced. A clsact is
deleted only when an empty chain in it says that we made it (`write.CLSACT_CHAIN`, made right after it; the
kernel keeps that mark over a restart of the agent) and no filter and no other chain stands on either side.
When another agent has come to use a clsact of ours, only the mark goes: it is theirs from then on.
"""

from __future__ import annotations

import contextlib
from typing import NoReturn

from msgspec.structs import replace

from nodeagent.drivers.tc import kernel, reading
from nodeagent.drivers.tc.kernel import EGRESS, INGRESS, INGRESS_SLOT, ROOT, Link, burst_bytes, ticks
from nodeagent.drivers.tc.matcher import Matcher
from nodeagent.drivers.tc.write import CLSACT_CHAIN, HANDLE, PREFERENCE, Writer, opened
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.shape import IFB_NAME, ShapeClass, ShapeFilter, ShapeReading
from nodeagent.traffic import class_id


class Shaper:
    """Every verb is one attempt, idempotent, and says whether it changed something.

    Raises DriverError: absent (no such device, class or kernel feature), denied, busy (a list changed while
    it was read; it is in use), invalid (refused, or read back as something else), timeout.
    """

    def __init__(self, matcher: Matcher | None = None) -> None:
        self._matcher = matcher or Matcher()
        self._leaf_kind = ""

    def close(self) -> None:
        """Let go of the program; filters keep theirs."""
        self._matcher.close()

    async def read(self) -> ShapeReading:
        """Everything of ours, whole, with counters. `leaf_kind` is "" before the first leaf was seen."""
        held = await reading.read()
        self._leaf_kind = held.leaf_kind or self._leaf_kind
        tag = ""
        missing: tuple[str, ...] = ()
        try:
            _, tag = self._matcher.load()
        except DriverError as error:
            missing = (f"the eBPF program that tells our packets cannot be loaded: {error.detail}",)
        return ShapeReading(
            state=held.state, counters=held.counters, leaf_kind=self._leaf_kind, tag=tag,
            blocked=held.blocked, missing=missing,
        )

    # ------------------------------------------------------------------ ifb and HTB

    async def has_ifb(self) -> bool:
        """True when our ifb is there, usable or not."""
        return await reading.find_ifb() is not None

    async def ensure_ifb(self) -> bool:
        """The ifb is there, up, with room for 1,000 packets."""
        found = await reading.find_ifb()
        if found is not None and reading.is_ready(found):
            return False
        async with opened("make ifb", IFB_NAME) as writer:
            if found is None:
                await writer.make_ifb(IFB_NAME, reading.QUEUE_PACKETS)
                found = await self._ifb("make ifb")
                await writer.silence(found.ifindex)
            room_packets = max(found.queue_packets, reading.QUEUE_PACKETS)
            await writer.set_link(found.ifindex, up=True, queue_packets=room_packets)
        if not reading.is_ready(await self._ifb("make ifb")):
            _refuse(IFB_NAME, "make ifb", "it does not come up")
        return True

    async def delete_ifb(self) -> bool:
        """Delete the ifb with its classes; busy while a filter leads there, anybody's: it would lose all."""
        found = await reading.find_ifb()
        if found is None:
            return False
        held = (await reading.read()).state
        if held.filters:
            detail = f"a filter of ours leads to it from {', '.join(one.device for one in held.filters)}"
            raise DriverError(ErrorKind.BUSY, IFB_NAME, "delete ifb", detail)
        if others := await reading.leading_to(found):
            detail = f"a filter that is not ours leads to it from {', '.join(others)}: delete that first"
            raise DriverError(ErrorKind.BUSY, IFB_NAME, "delete ifb", detail)
        async with opened("delete ifb", IFB_NAME) as writer:
            await writer.delete_link(found.ifindex)
        return True

    async def ensure_htb(self, default_minor: int) -> bool:
        """Our HTB is the ifb's root qdisc; another root, ours with another default too, is deleted first."""
        ifb = await self._ifb("make HTB")
        root = await kernel.qdisc(ifb.ifindex, ROOT)
        if reading.is_own_htb(root) and root is not None and root.default == default_minor:
            return False
        async with opened("make HTB", IFB_NAME) as writer:
            if root is not None:
                await writer.delete_qdisc(ifb.ifindex, ROOT)
            await writer.make_htb(ifb.ifindex, default_minor)
        if not reading.is_own_htb(await kernel.qdisc(ifb.ifindex, ROOT)):
            _refuse(IFB_NAME, "make HTB", "the root qdisc reads back as another")
        return True

    # ------------------------------------------------------------------ classes

    async def put_class(self, wanted: ShapeClass) -> bool:
        """Make the class or change its numbers under running flows, with its queue when it is a leaf.

        invalid: it stands under another parent (the kernel moves no class: delete it first).
        """
        ifb, target, op = await self._ifb("put class"), class_id(wanted.minor), "put class"
        wanted = as_held(wanted)
        before = await self._class(ifb, wanted.minor)
        if before == wanted:
            return False
        if before is not None and before.parent != wanted.parent:
            _refuse(target, op, f"it stands under {class_id(before.parent)}: delete it first")
        if before is None and wanted.parent and await self._class(ifb, wanted.parent) is None:
            # The kernel would put it beside the root class, outside of the budget.
            detail = f"its parent {class_id(wanted.parent)} is not there"
            raise DriverError(ErrorKind.ABSENT, target, op, detail)
        async with opened(op, target) as writer:
            await writer.put_class(ifb.ifindex, wanted)
            if wanted.leaf_limit_bytes:
                await self._put_leaf(writer, ifb, wanted)
            elif before is not None and before.leaf_limit_bytes:
                await writer.delete_qdisc(ifb.ifindex, HANDLE | wanted.minor)
        after = await self._class(ifb, wanted.minor)
        if after != wanted:
            _refuse(target, op, f"it reads back otherwise: {_differences(wanted, after)}")
        return True

    async def delete_class(self, minor: int) -> bool:
        """Delete a class with its queue; absent is success. busy: it has children."""
        ifb = await reading.find_ifb()
        if ifb is None or await kernel.class_(ifb.ifindex, HANDLE | minor) is None:
            return False
        async with opened("delete class", class_id(minor)) as writer:
            await writer.delete_class(ifb.ifindex, minor)
        return True

    async def _class(self, ifb: Link, minor: int) -> ShapeClass | None:
        held = await kernel.class_(ifb.ifindex, HANDLE | minor)
        if held is None:
            return None
        leaf = await kernel.qdisc(ifb.ifindex, HANDLE | minor)
        usable = leaf if leaf is not None and leaf.kind in reading.LEAF_KINDS else None
        return reading.shape_class(held, usable)

    async def _put_leaf(self, writer: Writer, ifb: Link, wanted: ShapeClass) -> None:
        kinds = (self._leaf_kind,) if self._leaf_kind else reading.LEAF_KINDS
        for kind in kinds:
            if await writer.put_leaf(ifb.ifindex, wanted.minor, kind, wanted.leaf_limit_bytes):
                self._leaf_kind = kind
                return
        self._leaf_kind = ""
        detail = f"this kernel has no queue for leaves: {' or '.join(kinds)}"
        raise DriverError(ErrorKind.ABSENT, class_id(wanted.minor), "put class", detail)

    # ------------------------------------------------------------------ filters

    async def ensure_filter(self, device: str, tag: str) -> bool:
        """Our filter stands once, last of the device's clsact egress, and leads to the ifb.

        invalid: nothing to lead to, an `ingress` qdisc or a shared block excludes it, a foreign filter has
        the last place, our program has another tag here.
        """
        op = "put filter"
        program, own_tag = self._matcher.load()
        if tag != own_tag:
            _refuse(device, op, f"the tag of our program is {own_tag} here, asked for is {tag}")
        ifb, uplink = await self._ready_ifb(device, op), await kernel.link(device)
        if uplink is None:
            raise DriverError(ErrorKind.ABSENT, device, op, "no such device")
        there = await kernel.qdisc(uplink.ifindex, INGRESS_SLOT)
        if why := reading.excluded(there) if there is not None else "":
            _refuse(device, op, why)
        wanted = ShapeFilter(device=device, tag=tag)
        if there is not None and await self._stands(wanted, uplink, ifb):
            return False
        async with opened(op, device) as writer:
            if there is None:
                await writer.make_clsact(uplink.ifindex)
            await _fit(writer, ifb, uplink)
            await self._put_filter(writer, device, uplink, ifb, program)
        if not await self._stands(wanted, uplink, ifb):
            _refuse(device, op, "it does not read back as written")
        return True

    async def delete_filter(self, device: str) -> bool:
        """Delete every filter of ours on the device, and its clsact when that is ours and nobody uses it."""
        uplink = await kernel.link(device)
        if uplink is None:
            return False
        there = await kernel.qdisc(uplink.ifindex, INGRESS_SLOT)
        if there is None or there.kind != "clsact" or there.shared:
            return False
        mine = reading.own(await kernel.filters(uplink.ifindex, EGRESS))
        async with opened("delete filter", device) as writer:
            for one in mine:
                await writer.delete_filter(uplink.ifindex, one.info, one.handle, one.chain)
            released = await _release_clsact(writer, uplink)
        return bool(mine) or released

    async def _put_filter(self, writer: Writer, device: str, uplink: Link, ifb: Link, program: int) -> None:
        held = await kernel.filters(uplink.ifindex, EGRESS)
        mine = reading.own(held)
        last = [one for one in held if one.preference == PREFERENCE and one.chain == 0]
        kept = last[-1] if last else None
        if kept is not None and kept not in mine:  # of one preference the newest comes first
            _refuse(device, "put filter", f"a foreign filter has the last place, preference {PREFERENCE}")
        await writer.put_filter(uplink.ifindex, kept.handle if kept else 1, program, ifb.ifindex)
        for one in mine:
            if one is not kept:
                await writer.delete_filter(uplink.ifindex, one.info, one.handle, one.chain)

    async def _stands(self, wanted: ShapeFilter, uplink: Link, ifb: Link) -> bool:
        held = await kernel.filters(uplink.ifindex, EGRESS)
        if not reading.is_last_alone(held):
            return False
        return reading.shape_filter(wanted.device, reading.own(held)[0], ifb.ifindex) == wanted

    async def _ready_ifb(self, device: str, op: str) -> Link:
        """The ifb, when what is led to it gets on."""
        ifb = await reading.find_ifb()
        if ifb is None or not ifb.up:
            _refuse(device, op, f"{IFB_NAME} is not up: every packet led there would be lost")
        if not reading.is_own_htb(await kernel.qdisc(ifb.ifindex, ROOT)):
            _refuse(device, op, f"{IFB_NAME} has no HTB of ours")
        return ifb

    async def _ifb(self, op: str) -> Link:
        found = await reading.find_ifb()
        if found is None:
            raise DriverError(ErrorKind.ABSENT, IFB_NAME, op, "the ifb is not there")
        return found


def as_held(wanted: ShapeClass) -> ShapeClass:
    """The class as the kernel can hold it: bursts in whole ticks, no quantum of a class that is no leaf."""
    rate, ceil = wanted.rate_bytes_per_second, wanted.ceil_bytes_per_second
    return replace(
        wanted, burst_bytes=burst_bytes(ticks(wanted.burst_bytes, rate), rate),
        cburst_bytes=burst_bytes(ticks(wanted.cburst_bytes, ceil), ceil),
        quantum_bytes=wanted.quantum_bytes if wanted.leaf_limit_bytes else 0,
    )  # fmt: skip


def _differences(wanted: ShapeClass, held: ShapeClass | None) -> str:
    if held is None:
        return "it is not there"
    pairs = ((name, getattr(wanted, name), getattr(held, name)) for name in wanted.__struct_fields__)
    return ", ".join(f"{name} is {is_}, not {ought}" for name, ought, is_ in pairs if ought != is_)


async def _fit(writer: Writer, ifb: Link, uplink: Link) -> None:
    """Let the ifb take packets as large as the uplink does."""
    if uplink.mtu_bytes > ifb.mtu_bytes:
        await writer.set_link(ifb.ifindex, mtu_bytes=uplink.mtu_bytes)
    size_bytes = max(uplink.gso_max_bytes, ifb.gso_max_bytes)
    segments = max(uplink.gso_max_segments, ifb.gso_max_segments)
    if (size_bytes, segments) != (ifb.gso_max_bytes, ifb.gso_max_segments):
        # A kernel that does not let them grow cuts large packets before the ifb: slower, never wrong.
        with contextlib.suppress(DriverError):
            async with opened("fit ifb", IFB_NAME) as other:
                await other.set_gso(ifb.ifindex, size_bytes, segments)


async def _release_clsact(writer: Writer, uplink: Link) -> bool:
    """Delete the clsact when it is ours and empty; give it up when it is ours and another uses it."""
    try:
        found = {side: await kernel.chains(uplink.ifindex, side) for side in (EGRESS, INGRESS)}
    except DriverError:  # no chains in this kernel: it is not known whose clsact it is, so it stays
        return False
    if CLSACT_CHAIN not in found[EGRESS]:
        return False
    used = [one for side in (EGRESS, INGRESS) for one in await kernel.filters(uplink.ifindex, side)]
    if used or set(found[EGRESS]) - {0, CLSACT_CHAIN} or set(found[INGRESS]) - {0}:
        await writer.disown_clsact(uplink.ifindex)
    else:
        await writer.delete_qdisc(uplink.ifindex, INGRESS_SLOT)
    return True


def _refuse(target: str, op: str, detail: str) -> NoReturn:
    raise DriverError(ErrorKind.INVALID, target, op, detail)
