"""What tc should hold of ours: one ifb with the HTB tree budget > namespace > pod, a filter on each uplink.

Nothing is wanted before the first complete pod list and the first look at tc of this process. Without a
budget an empty state is wanted. Where the kernel lacks what shaping needs nothing is, and that is said.
Rates are bytes/s here, because the kernel's are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from nodeagent.decide.limits import ShapeOptions
from nodeagent.model import Now
from nodeagent.shape import ROOT_MINOR, ShapeClass, ShapeFilter, ShapeReading, ShapeState
from nodeagent.shape_memory import ShapeMemory, Shares
from nodeagent.traffic import DEFAULT_MINOR, FIRST_MINOR, LinkState
from nodeagent.traffic_memory import Claim, MarkMemory

LEAST_BURST_BYTES = 65_536
BURSTS_A_SECOND = 200
"""A burst is 5 ms of the rate. Whole numbers throughout: it must be read back as it was asked for."""
LONGEST_BURST_SECONDS = 200
"""The kernel keeps a burst as time in 32 bits of 64 ns, 274 s: at less than 2.6 kbit/s a burst is shorter."""
QUANTA_A_SECOND = 1_000
MOST_QUANTUM_BYTES = 60_000
QUEUES_A_SECOND = 20
"""A leaf's queue is 50 ms of its limit."""
LEAST_LEAF_BYTES = 16_384
MOST_LEAF_BYTES = 1 << 30
"""fq_codel's memory limit, twice a queue, ends at 2 GiB in the kernel."""
LEAST_RATE_BYTES = 1_000
"""Rate per second of a class without a guarantee: the kernel has no rate 0."""


def begin_run(memory: ShapeMemory) -> ShapeMemory:
    """Memory as just loaded: pods and kernel must be read anew before anything is written."""
    return msgspec.structs.replace(memory, listed=False, scanned=False)


def observe(
    options: ShapeOptions, memory: ShapeMemory, now: Now, *,
    links: LinkState | None, reading: ShapeReading | None,
) -> ShapeMemory:
    """Take in what was read; None stands for what was not, and changes nothing."""
    if memory.boot_id != now.at.boot_id:
        memory = ShapeMemory(boot_id=now.at.boot_id)
    memory = msgspec.structs.replace(memory, budget_bits_per_second=options.budget_bits_per_second)
    if not options.budget_bits_per_second:
        memory = msgspec.structs.replace(memory, listed=False, own={}, shares={}, bad=(), scaled_ratio=1.0)
    if links is not None and links.uplinks:
        mtu_bytes = max(uplink.mtu for uplink in links.uplinks)
        memory = msgspec.structs.replace(memory, mtu_bytes=mtu_bytes)
    if reading is not None:
        lacks_program = not reading.tag and not reading.missing
        lacking = ("our eBPF program cannot be loaded",) if lacks_program else reading.missing
        memory = msgspec.structs.replace(
            memory, scanned=True, missing=lacking, blocked=dict(reading.blocked),
            tag=reading.tag or memory.tag,
        )
    return memory


def at_work(memory: ShapeMemory) -> bool:
    """True when something is, or is to be, shaped here."""
    return bool(memory.budget_bits_per_second) and memory.listed and memory.scanned and not memory.missing


def wish(memory: ShapeMemory, marks: MarkMemory) -> ShapeState | None:
    """What is wanted, or None while too little is known, or possible, to want anything."""
    if not memory.budget_bits_per_second:
        return ShapeState() if memory.scanned else None
    if not (at_work(memory) and marks.linked):
        return None
    filters = (
        ShapeFilter(device=device, tag=memory.tag)
        for device in marks.uplinks if device not in memory.blocked
    )
    return ShapeState(
        ifb=True, htb=True, classes=classes(memory, marks), filters=tuple(sorted(filters)),
    )


def shaped(memory: ShapeMemory, marks: MarkMemory) -> dict[str, tuple[Claim, Shares]]:
    """Uid -> the pod and its shares, of each pod that is to have a class of its own."""
    claims = {claim.uid: claim for claim in marks.holders}
    return {
        uid: (claim, memory.shares[uid])
        for uid, claim in sorted(claims.items())
        if claim.minor >= FIRST_MINOR and uid in memory.shares and claim.namespace in memory.namespace_minors
    }


def classes(memory: ShapeMemory, marks: MarkMemory) -> tuple[ShapeClass, ...]:
    """The whole tree, by minor. Rates of children never add up to more than their parent's."""
    budget_bytes = _bytes(memory.budget_bits_per_second)
    pods = shaped(memory, marks)
    rates, _ = rates_bytes({uid: shares for uid, (_, shares) in pods.items()}, budget_bytes)
    least_bytes = _least_rate_bytes(budget_bytes, len(pods))
    found = [
        _inner(ROOT_MINOR, 0, budget_bytes, budget_bytes),
        _leaf(DEFAULT_MINOR, ROOT_MINOR, least_bytes, budget_bytes, memory.mtu_bytes),
    ]
    sums: dict[int, int] = {}
    for uid, (claim, shares) in pods.items():
        parent = memory.namespace_minors[claim.namespace]
        ceil_bytes = min(_bytes(shares.limit_bits_per_second), budget_bytes)
        found.append(_leaf(claim.minor, parent, rates[uid], ceil_bytes, memory.mtu_bytes))
        sums[parent] = sums.get(parent, 0) + rates[uid]
    found += [
        _inner(minor, ROOT_MINOR, min(rate, budget_bytes), budget_bytes)
        for minor, rate in sums.items()
    ]
    return tuple(sorted(found))


def with_ratio(memory: ShapeMemory, marks: MarkMemory) -> ShapeMemory:
    """Memory with the share of the guarantees that the budget can give."""
    pods = {uid: shares for uid, (_, shares) in shaped(memory, marks).items()}
    _, ratio = rates_bytes(pods, _bytes(memory.budget_bits_per_second))
    return msgspec.structs.replace(memory, scaled_ratio=ratio)


def rates_bytes(pods: Mapping[str, Shares], budget_bytes: int) -> tuple[dict[str, int], float]:
    """Rate of each pod's class in bytes/s, and the share of the guarantees that it is.

    Each has a small rate; what the guarantees ask beyond it is cut alike where the budget has not enough.
    """
    least_bytes = _least_rate_bytes(budget_bytes, len(pods))
    floors, more = {}, {}
    for uid, shares in pods.items():
        ceil_bytes = min(_bytes(shares.limit_bits_per_second), budget_bytes)
        floors[uid] = min(least_bytes, ceil_bytes)
        wanted = min(_bytes(shares.guarantee_bits_per_second), ceil_bytes)
        more[uid] = max(0, wanted - floors[uid])
    left_bytes = max(0, budget_bytes - least_bytes - sum(floors.values()))
    asked_bytes = sum(more.values())
    if asked_bytes <= left_bytes:
        return {uid: floors[uid] + more[uid] for uid in pods}, 1.0
    cut = {uid: floors[uid] + more[uid] * left_bytes // asked_bytes for uid in pods}
    return cut, left_bytes / asked_bytes


def namespaces_of(memory: ShapeMemory, marks: MarkMemory) -> set[str]:
    """Namespaces that have, or are to have, a class."""
    claims: Iterable[Claim] = marks.holders
    return {claim.namespace for claim in claims if claim.uid in memory.shares and claim.minor >= FIRST_MINOR}


def _bytes(bits: int) -> int:
    """Bytes/s of bits/s, never 0 for a rate."""
    return max(1, bits // 8) if bits else 0


def _least_rate_bytes(budget_bytes: int, pods: int) -> int:
    """Rate of a class without a guarantee; all of them together take at most half of the budget."""
    return max(1, min(LEAST_RATE_BYTES, budget_bytes // (2 * (pods + 1))))


def burst_bytes(rate_bytes: int) -> int:
    """What may pass at once at this rate, in bytes/s."""
    return min(max(LEAST_BURST_BYTES, rate_bytes // BURSTS_A_SECOND), rate_bytes * LONGEST_BURST_SECONDS)


def _inner(minor: int, parent: int, rate: int, ceil: int) -> ShapeClass:
    """A class above others. Only leaves have a quantum: of others the kernel keeps none."""
    return ShapeClass(
        minor=minor, parent=parent, rate_bytes_per_second=rate, ceil_bytes_per_second=ceil,
        burst_bytes=burst_bytes(rate), cburst_bytes=burst_bytes(ceil), quantum_bytes=0,
    )


def _leaf(minor: int, parent: int, rate: int, ceil: int, mtu_bytes: int) -> ShapeClass:
    """A leaf's queue is sized by its limit: that is how fast it can drain."""
    return msgspec.structs.replace(
        _inner(minor, parent, rate, ceil),
        quantum_bytes=min(max(rate // QUANTA_A_SECOND, mtu_bytes), MOST_QUANTUM_BYTES),
        leaf_limit_bytes=min(max(ceil // QUEUES_A_SECOND, LEAST_LEAF_BYTES), MOST_LEAF_BYTES),
    )
