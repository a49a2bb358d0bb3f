"""Tries, one by one, what shaping needs of the kernel; only for a network namespace that is thrown away.

It leaves everything that it makes on `lo`, so it must never run in a namespace that anybody uses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nodeagent.drivers.tc import kernel
from nodeagent.drivers.tc.matcher import Matcher
from nodeagent.drivers.tc.reading import LEAF_KINDS
from nodeagent.drivers.tc.write import opened
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.shape import IFB_NAME, ShapeClass
from nodeagent.traffic import DEFAULT_MINOR, KernelFeature

DEVICE = "lo"
FEATURES = ("ifb", "HTB", "HTB leaf queue", "BPF on skb->priority", "clsact", "BPF filter that redirects")
WITHOUT = "without it nothing is shaped"
_NEEDS = {
    "HTB leaf queue": ("HTB",),
    "BPF filter that redirects": ("BPF on skb->priority", "clsact"),
}
_CLASS = ShapeClass(
    minor=DEFAULT_MINOR, parent=0, rate_bytes_per_second=10**6, ceil_bytes_per_second=10**6,
    burst_bytes=1 << 16, cburst_bytes=1 << 16, quantum_bytes=1500, leaf_limit_bytes=1 << 16,
)  # fmt: skip


async def try_features() -> tuple[KernelFeature, ...]:
    """What works, in the order of `FEATURES`; none of them is needed for marking and counting."""
    found: dict[str, KernelFeature] = {}
    trial = _Trial()
    for name, attempt in zip(FEATURES, trial.attempts(), strict=True):
        broken = [need for need in _NEEDS.get(name, ()) if not found[need].works]
        found[name] = await _tried(name, attempt) if not broken else KernelFeature(
            name=name, works=None, needed=False, detail=f"not tried: {broken[0]} does not work",
        )  # fmt: skip
    trial.close()
    return tuple(found.values())


def untried(why: str) -> tuple[KernelFeature, ...]:
    """All features, with the reason why none was tried."""
    return tuple(KernelFeature(name=name, works=None, needed=False, detail=why) for name in FEATURES)


async def _tried(name: str, attempt: Callable[[], Awaitable[str]]) -> KernelFeature:
    try:
        return KernelFeature(name=name, works=True, needed=False, detail=await attempt())
    except DriverError as error:
        detail = f"{WITHOUT} ({error.detail or error})"
        return KernelFeature(name=name, works=False, needed=False, detail=detail)


class _Trial:
    def __init__(self) -> None:
        self._matcher = Matcher()

    def attempts(self) -> tuple[Callable[[], Awaitable[str]], ...]:
        """In the order of `FEATURES`; each gives what was found."""
        return (self._ifb, self._htb, self._leaf, self._program, self._clsact, self._filter)

    def close(self) -> None:
        self._matcher.close()

    async def _ifb(self) -> str:
        async with opened("make ifb", IFB_NAME) as writer:
            await writer.make_ifb(IFB_NAME, 1)
        return "can be made"

    async def _htb(self) -> str:
        async with opened("make HTB", DEVICE) as writer:
            await writer.make_htb(await _index(), DEFAULT_MINOR)
        return "can be made"

    async def _leaf(self) -> str:
        async with opened("make leaf", DEVICE) as writer:
            index = await _index()
            await writer.put_class(index, _CLASS)
            for kind in LEAF_KINDS:
                if await writer.put_leaf(index, _CLASS.minor, kind, _CLASS.leaf_limit_bytes):
                    return kind
        raise DriverError(ErrorKind.ABSENT, DEVICE, "make leaf", f"neither {' nor '.join(LEAF_KINDS)}")

    async def _program(self) -> str:
        return f"tag {self._matcher.load()[1]}"

    async def _clsact(self) -> str:
        async with opened("make clsact", DEVICE) as writer:
            await writer.make_clsact(await _index())
        return "can be made"

    async def _filter(self) -> str:
        program, _ = self._matcher.load()
        index = await _index()
        async with opened("put filter", DEVICE) as writer:
            await writer.put_filter(index, 1, program, index)
        return "cls_bpf with act_mirred"


async def _index() -> int:
    found = await kernel.link(DEVICE)
    if found is None:
        raise DriverError(ErrorKind.ABSENT, DEVICE, "find device", "no such device")
    return found.ifindex
