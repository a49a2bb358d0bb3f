"""The ops on egress shaping: ifb, HTB, classes, filters. One attempt each, idempotent, read back.

Nothing here decides what is wanted; the driver refuses what would lose packets (a filter without a ready
ifb, an ifb deleted under a filter) and whatever is not ours.

| kind            | target     | arguments              | does                                               |
|-----------------|------------|------------------------|----------------------------------------------------|
| `shape.ifb`     | nodeagent0 |                        | made, up, txqueuelen 1,000                         |
| `shape.htb`     | nodeagent0 | default                | our HTB as root qdisc; another root is replaced    |
| `class.put`     | 4e:MINOR   | fields of `ShapeClass` | made, or changed under running flows; with its     |
|                 |            |                        | queue when it is a leaf; invalid under another     |
|                 |            |                        | parent; a quantum is kept of leaves only           |
| `class.delete`  | 4e:MINOR   | minor                  | with its queue; absent is success; busy: children  |
| `filter.put`    | device     | tag target             | clsact where there is none, ours once and last;    |
|                 |            |                        | invalid: ifb or HTB not ready, clsact excluded,    |
|                 |            |                        | the last place taken, another tag here             |
| `filter.delete` | device     |                        | every one of ours, and clsact when we made it and  |
|                 |            |                        | nobody uses it; absent is success                  |
| `ifb.delete`    | nodeagent0 |                        | busy while anybody's filter leads there; absent is |
|                 |            |                        | success                                            |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import Op
from nodeagent.shape import IFB_NAME, ShapeClass


class Shaping(Protocol):
    """What writes tc; `drivers.tc.Shaper` is one. Each verb says whether it changed something."""

    async def ensure_ifb(self) -> bool:
        """Make the ifb ready."""

    async def ensure_htb(self, default_minor: int) -> bool:
        """Make our HTB its root."""

    async def put_class(self, wanted: ShapeClass) -> bool:
        """Make or change a class."""

    async def delete_class(self, minor: int) -> bool:
        """Delete a class."""

    async def ensure_filter(self, device: str, tag: str) -> bool:
        """Lead our packets of an uplink to the ifb."""

    async def delete_filter(self, device: str) -> bool:
        """Lead them there no more."""

    async def delete_ifb(self) -> bool:
        """Delete the ifb."""


class KernelShape:
    """Carries out the ops of the kernel executor that are on tc."""

    def __init__(self, shaping: Shaping) -> None:
        self._shaping = shaping
        self._verbs: dict[str, Callable[[Op], Awaitable[bool]]] = {
            "shape.ifb": lambda _: shaping.ensure_ifb(),
            "shape.htb": lambda op: shaping.ensure_htb(op.arguments["default"]),
            "class.put": self._put_class,
            "class.delete": lambda op: shaping.delete_class(op.arguments["minor"]),
            "filter.put": self._put_filter,
            "filter.delete": lambda op: shaping.delete_filter(op.target),
            "ifb.delete": lambda _: shaping.delete_ifb(),
        }

    def knows(self, op: Op) -> bool:
        """True for an op that `perform` can carry out."""
        return op.kind in self._verbs

    async def perform(self, op: Op) -> str:
        """Carry out one op; DriverError(invalid) for an op that this executor does not know."""
        verb = self._verbs.get(op.kind)
        if verb is None:
            raise DriverError(ErrorKind.INVALID, op.target, op.kind, "the shaping executor knows no such op")
        return "changed" if await verb(op) else "was so"

    async def _put_class(self, op: Op) -> bool:
        return await self._shaping.put_class(msgspec.convert(op.arguments, ShapeClass))

    async def _put_filter(self, op: Op) -> bool:
        if op.arguments["target"] != IFB_NAME:
            detail = f"a filter of ours leads to {IFB_NAME}, not to {op.arguments['target']!r}"
            raise DriverError(ErrorKind.INVALID, op.target, op.kind, detail)
        return await self._shaping.ensure_filter(op.target, op.arguments["tag"])
