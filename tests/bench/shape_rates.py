"""How well limits hold, from 1 Mbit/s to 5 Gbit/s, and what a full internet share costs cluster traffic.

The real daemon shapes a pod of a private node; the kernel's own class counters and the receiver are asked,
never the daemon.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import statistics
import time
from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from tests.bench import shape_ends
from tests.netns import flows, shaped
from tests.netns.agent import NetAgent, Pod, pod
from tests.netns.flows import Sink
from tests.netns.shaped import Class
from tests.netns.world import INSIDE, INTERNET, POD_A, POD_B, World

LIMITS = {"1M": 1e6, "10M": 10e6, "20M": 20e6, "100M": 100e6, "1G": 1e9, "5G": 5e9}
"""Annotation -> bits per second."""
KINDS = ("tcp", "udp")
BUDGET = "20G"
FIRST_SECONDS = 1.0
SETTLED_SECONDS = 3.0
"""After the first packet; from then on a limit is measured."""
MEASURED_SECONDS = 10.0
FLOW_SECONDS = SETTLED_SECONDS + MEASURED_SECONDS + 1.5
OFFERED_RATIO = 1.5
"""Of the limit, by UDP."""
DISCARD_PORT = 9
DISCARD = f"""
table ip discard {{
    chain in {{
        type filter hook prerouting priority -500; policy accept;
        udp dport {DISCARD_PORT} drop
    }}
}}
"""
"""Where datagrams end at the receiver."""
LEAST_BURST_BYTES, BURST_SECONDS = 65_536, 0.005
"""As docs/shaping.md states them."""
LEAST_QUEUE_BYTES, QUEUE_SECONDS = 16_384, 0.05
LONGEST_PACKET_BYTES = 65_536
"""Before it is cut into segments; one that is longer than the queue is dropped."""
PAIRS = 20
TURN_SECONDS, PAUSE_SECONDS = 0.8, 0.25
FULL_RATIO = 0.9
"""Of the budget: below it the internet share was not full."""


class Held(Struct, frozen=True, kw_only=True):
    """How one limit held against one kind of traffic; each as a part of the limit."""

    limit: str
    kind: str
    """tcp | udp"""
    wire_ratio: float
    """Bytes of the HTB class over ten seconds."""
    payload_ratio: float | None
    """Received by the peer in the same time; TCP only."""
    first_ratio: float
    """Bytes of the class in the first second, as a part of limit and one burst."""
    allowed_ratio: float
    """The same with the one packet more that HTB sends while a token is left."""
    offered_ratio: float | None
    """Payload that the sender offered; UDP only: TCP offers what it can."""


def burst_bits(bits_per_second: float) -> float:
    """One burst of a limit."""
    return 8 * max(LEAST_BURST_BYTES, bits_per_second / 8 * BURST_SECONDS)


def packet_bits(bits_per_second: float) -> float:
    """The longest packet that a limit's queue takes."""
    queue_bytes = max(LEAST_QUEUE_BYTES, bits_per_second / 8 * QUEUE_SECONDS)
    return 8 * min(LONGEST_PACKET_BYTES, queue_bytes)


@contextlib.contextmanager
def shaped_node(*pods: Pod, budget: str) -> Iterator[tuple[World, NetAgent]]:
    """A node whose agent shapes these pods at its own pace."""
    with World(masquerade=True) as world:
        world.command("outside", "nft", "-f", "-", stdin=DISCARD)
        agent = NetAgent(world, "nft", shaped.PRODUCTION_PERIODS, internet_budget=budget)
        agent.pods(*pods)
        agent.start()
        shaped.settle(agent, *pods)
        yield world, agent


@functools.cache
def limits() -> tuple[Held, ...]:
    """Every limit with each kind of traffic."""
    found = []
    one = pod("a", POD_A[4], POD_A[6], limit="1M")
    with shaped_node(one, budget=BUDGET) as (world, agent):
        sink, class_id = Sink(world, "outside"), shaped.class_of(agent, one)
        for limit, bits_per_second in LIMITS.items():
            agent.pods(pod("a", POD_A[4], POD_A[6], limit=limit))
            agent.wait(partial(_is_limited, agent, one, bits_per_second), f"limit {limit}")
            for kind in KINDS:
                found.append(_held(world, sink, class_id, limit, kind))
    return tuple(found)


def _is_limited(agent: NetAgent, one: Pod, bits_per_second: float) -> bool:
    return shaped.limit_of(agent, one) == bits_per_second


def _held(world: World, sink: Sink, class_id: str, limit: str, kind: str) -> Held:
    bits_per_second = LIMITS[limit]
    idle = _quiet(world, class_id)
    if kind == "tcp":
        flow = flows.start_tcp(world, "pod-a", INTERNET[4], FLOW_SECONDS)
    else:
        words = (INTERNET[4], str(DISCARD_PORT), str(FLOW_SECONDS), str(OFFERED_RATIO * bits_per_second))
        flow = shape_ends.start(world, "pod-a", "udp", *words)
    began, first = _first_second(world, class_id, idle)
    elapsed_seconds = first.at_seconds - began.at_seconds
    first_bits = 8 * (first.sent_bytes - began.sent_bytes)
    time.sleep(max(0.0, began.at_seconds + SETTLED_SECONDS - time.monotonic()))
    before = shaped.classes(world)[class_id]
    time.sleep(MEASURED_SECONDS)
    after = shaped.classes(world)[class_id]
    burst = bits_per_second * elapsed_seconds + burst_bits(bits_per_second)
    payload = sink.bits_per_second(before.at_seconds, after.at_seconds) if kind == "tcp" else None
    offered = shape_ends.offered_bits_per_second(flow) if kind == "udp" else None
    flow.wait(60)
    return Held(
        limit=limit, kind=kind, wire_ratio=shaped.bits_per_second(before, after) / bits_per_second,
        payload_ratio=None if payload is None else payload / bits_per_second,
        first_ratio=first_bits / burst, allowed_ratio=first_bits / (burst + packet_bits(bits_per_second)),
        offered_ratio=None if offered is None else offered / bits_per_second,
    )


def _quiet(world: World, class_id: str) -> Class:
    """Wait until nothing of an earlier flow leaves any more, and the bucket is full again."""
    before = shaped.classes(world)[class_id]
    while True:
        time.sleep(1.0)
        now = shaped.classes(world)[class_id]
        if now.sent_bytes == before.sent_bytes:
            return now
        before = now


def _first_second(world: World, class_id: str, idle: Class) -> tuple[Class, Class]:
    """The last look before the first packet, and the one a second later."""
    began, end_seconds = idle, time.monotonic() + 10
    while (now := shaped.classes(world)[class_id]).sent_bytes == idle.sent_bytes:
        if time.monotonic() > end_seconds:
            raise RuntimeError(f"nothing passes class {class_id}")
        began = now
    time.sleep(max(0.0, began.at_seconds + FIRST_SECONDS - time.monotonic()))
    return began, shaped.classes(world)[class_id]


def least_wire() -> float:
    """The lowest of all limits, in percent of the limit."""
    return 100 * min(one.wire_ratio for one in limits())


def most_wire() -> float:
    """The highest."""
    return 100 * max(one.wire_ratio for one in limits())


def least_payload() -> float:
    """The lowest of TCP."""
    return 100 * min(one.payload_ratio for one in limits() if one.payload_ratio is not None)


def most_first() -> float:
    """The highest first second."""
    return 100 * max(one.allowed_ratio for one in limits())


@functools.cache
def cluster_ratio() -> float:
    """Cluster TCP of a limited pod while the budget is full, as a part of that while it is idle."""
    pods = (pod("a", POD_A[4], POD_A[6], limit="20M"), pod("b", POD_B[4], POD_B[6], limit="20M"))
    seconds = 2 * PAIRS * (TURN_SECONDS + PAUSE_SECONDS) + 15
    with shaped_node(*pods, budget="30M") as (world, _):
        Sink(world, "outside")
        inside = Sink(world, "inside")
        senders = [flows.start_tcp(world, name, INTERNET[4], seconds) for name in ("pod-a", "pod-b")]
        flows.start_tcp(world, "pod-a", INSIDE[4], seconds)
        time.sleep(2.0)
        pairs = []
        for number in range(PAIRS):
            turn: dict[bool, float] = {}
            for full in (True, False) if number % 2 else (False, True):
                for sender in senders:
                    sender.send_signal(signal.SIGCONT if full else signal.SIGSTOP)
                time.sleep(PAUSE_SECONDS)
                turn[full] = _turn(world, inside, full)
            pairs.append(turn[True] / turn[False])
    return statistics.median(pairs)


def _turn(world: World, inside: Sink, full: bool) -> float:
    """Cluster bits per second of one turn, with the internet share as it was asked to be."""
    before = shaped.classes(world)["4e:1"]
    began_seconds = time.monotonic()
    time.sleep(TURN_SECONDS)
    rate = inside.bits_per_second(began_seconds, began_seconds + TURN_SECONDS)
    internet_ratio = shaped.bits_per_second(before, shaped.classes(world)["4e:1"]) / 30e6
    if (internet_ratio >= FULL_RATIO) != full:
        wanted = "full" if full else "idle"
        raise RuntimeError(f"the internet share is at {internet_ratio:.2f}, wanted is {wanted}")
    return rate
