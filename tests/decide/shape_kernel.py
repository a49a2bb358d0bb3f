"""A pure model of what tc does with the ops on classes and filters, as strict as the kernel itself.

It counts what is sent through each class, and says when redirected packets would be lost.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from nodeagent.model import Op
from nodeagent.shape import IFB_NAME, ClassCounter, ShapeClass, ShapeFilter, ShapeReading, ShapeState
from nodeagent.traffic import DEFAULT_MINOR
from tests.decide.mark_kernel import Refused

TAG = "5a6b7c8d9e0f1a2b"
KINDS = frozenset(
    {"shape.ifb", "shape.htb", "class.put", "class.delete", "filter.put", "filter.delete", "ifb.delete"}
)


TICK_NANOSECONDS = 64


def as_held(one: ShapeClass) -> ShapeClass:
    """What the kernel gives back: bursts in whole ticks of 64 ns, in 32 bits; a quantum of leaves alone."""
    return msgspec.structs.replace(
        one,
        burst_bytes=_in_ticks(one.burst_bytes, one.rate_bytes_per_second),
        cburst_bytes=_in_ticks(one.cburst_bytes, one.ceil_bytes_per_second),
        quantum_bytes=one.quantum_bytes if one.leaf_limit_bytes else 0,
    )


def _in_ticks(size_bytes: int, rate_bytes: int) -> int:
    ticks = -(-size_bytes * 10**9 // (rate_bytes * TICK_NANOSECONDS)) % 2**32
    return ticks * TICK_NANOSECONDS * rate_bytes // 10**9


class TrafficControl:
    """ifb, HTB, filters; `apply` carries out one op."""

    def __init__(self) -> None:
        self.ifb = self.htb = False
        self.classes: dict[int, ShapeClass] = {}
        self.filters: dict[str, ShapeFilter] = {}
        self.displaced: set[str] = set()
        self.counters: dict[int, ClassCounter] = {}
        self.blocked: dict[str, str] = {}
        self.missing: tuple[str, ...] = ()
        self.foreign = {"eth0": ["prio 1 cilium"]}
        self.ops: list[str] = []

    def apply(self, op: Op) -> None:
        """Carry out one op or raise Refused."""
        self.ops.append(op.kind)
        getattr(self, "_" + op.kind.replace(".", "_"))(op.target, **op.arguments)

    def read(self) -> ShapeReading:
        """Everything of ours, as it would be read back."""
        return ShapeReading(
            state=ShapeState(
                ifb=self.ifb,
                htb=self.htb,
                classes=tuple(sorted(map(as_held, self.classes.values()))),
                filters=tuple(sorted(self.filters.values())),
                displaced=tuple(sorted(self.displaced)),
            ),
            counters=dict(self.counters),
            leaf_kind="bfifo",
            tag="" if self.missing else TAG,
            blocked=dict(self.blocked),
            missing=self.missing,
        )

    def copy(self) -> TrafficControl:
        """The same state once more."""
        return copy.deepcopy(self)

    @property
    def loses(self) -> bool:
        """True while a filter leads to an ifb that is gone."""
        return bool(self.filters) and not self.ifb

    def send(self, minor: int, sent_bytes: int, **more: int) -> None:
        """Bytes pass a class and those above it; what has no class passes the default one."""
        at = minor if minor in self.classes else DEFAULT_MINOR
        while at in self.classes:
            seen = self.counters.get(at, ClassCounter())
            grown = {name: getattr(seen, name) + number for name, number in more.items()}
            self.counters[at] = msgspec.structs.replace(seen, bytes=seen.bytes + sent_bytes, **grown)
            at = self.classes[at].parent

    def spoil(self, how: str) -> None:
        """What others do to our state."""
        if how == "delete ifb":
            self._forget_tree()
            self.ifb = False
        elif how == "delete htb":
            self._forget_tree()
        elif how == "delete clsact":
            self.filters.clear()
            self.displaced.clear()
        elif how == "delete a class" and self.classes:
            self._drop(max(self.classes))
        elif how == "foreign filter behind" and self.filters:
            self.displaced.add(next(iter(self.filters)))
        elif how == "foreign program" and self.filters:
            device, one = next(iter(self.filters.items()))
            self.filters[device] = msgspec.structs.replace(one, tag="0" * 16)
        elif how == "re-rate" and self.classes:
            minor = min(self.classes)
            self.classes[minor] = msgspec.structs.replace(self.classes[minor], rate_bytes_per_second=1)
        elif how == "orphan" and self.htb:
            self.classes.setdefault(0x777, ShapeClass(
                minor=0x777, parent=0, rate_bytes_per_second=1, ceil_bytes_per_second=1, burst_bytes=1,
                cburst_bytes=1, quantum_bytes=1, leaf_limit_bytes=1,
            ))  # fmt: skip
        elif how == "old uplink" and self.ifb:
            self.filters["old0"] = ShapeFilter(device="old0", tag=TAG)

    def _forget_tree(self) -> None:
        self.htb = False
        self.classes.clear()
        self.counters.clear()

    def _drop(self, minor: int) -> None:
        for child in [m for m, one in self.classes.items() if one.parent == minor]:
            self._drop(child)
        self.classes.pop(minor, None)
        self.counters.pop(minor, None)

    # ------------------------------------------------------------------ ops

    def _shape_ifb(self, name: str) -> None:
        assert name == IFB_NAME
        self.ifb = True

    def _shape_htb(self, name: str, default: int) -> None:
        if not self.ifb or default != DEFAULT_MINOR:
            raise Refused(f"no {name}")
        if not self.htb:
            self._forget_tree()
            self.htb = True

    def _class_put(self, _: str, **fields: Any) -> None:
        one = ShapeClass(**fields)
        before = self.classes.get(one.minor)
        if not self.htb or (one.parent and one.parent not in self.classes):
            raise Refused("no parent")
        if before is not None and before.parent != one.parent:
            raise Refused("a class does not change its parent")
        if one.leaf_limit_bytes and any(other.parent == one.minor for other in self.classes.values()):
            raise Refused("it has children")
        rates = one.rate_bytes_per_second, one.burst_bytes
        if min(rates) < 1 or (one.leaf_limit_bytes and one.quantum_bytes < 1):
            raise Refused("no rate, burst or quantum")
        self.classes[one.minor] = one
        self.counters.setdefault(one.minor, ClassCounter())

    def _class_delete(self, _: str, minor: int) -> None:
        if any(one.parent == minor for one in self.classes.values()):
            raise Refused("it has children")
        self.classes.pop(minor, None)
        self.counters.pop(minor, None)

    def _filter_put(self, device: str, tag: str, target: str) -> None:
        if not (self.ifb and self.htb and DEFAULT_MINOR in self.classes):
            raise Refused("what it leads to is not there")
        if device in self.blocked:
            raise Refused(self.blocked[device])
        self.filters[device] = ShapeFilter(device=device, tag=tag, target=target)
        self.displaced.discard(device)

    def _filter_delete(self, device: str) -> None:
        self.filters.pop(device, None)
        self.displaced.discard(device)

    def _ifb_delete(self, name: str) -> None:
        if self.filters:
            raise Refused(f"a filter leads to {name}")
        self._forget_tree()
        self.ifb = False


SPOILS = (
    "delete ifb", "delete htb", "delete clsact", "delete a class", "foreign filter behind", "foreign program",
    "re-rate", "orphan", "old uplink",
)  # fmt: skip
