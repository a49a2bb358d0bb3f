"""What marking costs a packet: a pod's small datagrams to another node, forwarded on one core.

Every variant is a node of its own, made before the first round, and one program sends from all of them in
short turns, so that each ratio is of two neighbours in time. It never touches the machine's own tables.
"""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from tests.netns.agent import NetAgent, Pod, pod
from tests.netns.world import INSIDE, POD_A, World

PODS = (10, 250, 1000)
ROUNDS = 15
SLICES = 12
SLICE_MICROSECONDS = 20_000
"""A round is a quarter of a second for each variant, in slices."""
SEND_SECONDS = 120.0
FRAME_BYTES = 64
PAYLOAD_BYTES = FRAME_BYTES - 14 - 20 - 8
PORT = 9
SOURCE = Path(__file__).with_name("net_sender.c")
SETTLE_SECONDS = 60.0
MOST_LOST = 0.02
SINK = f"""
table ip sink {{
    chain in {{
        type filter hook prerouting priority -500; policy accept;
        udp dport {PORT} counter drop
    }}
}}
"""
"""Where the packets end at the peer: before it answers that nobody listens."""


class Variant(Struct, frozen=True):
    """One node: with nothing, with the agent's marks, or with a list of one rule a pod."""

    kind: str
    """none | ours | linear"""
    pods: int


NONE = Variant("none", 0)
VARIANTS = (NONE, *(Variant(kind, pods) for kind in ("ours", "linear") for pods in PODS))


class Packets(Struct, frozen=True):
    """Nanoseconds a packet by variant, one number a round."""

    rounds: dict[Variant, list[float]]

    def nanoseconds(self, variant: Variant) -> float:
        """Median."""
        return statistics.median(self.rounds[variant])

    def ratio(self, variant: Variant, base: Variant) -> float:
        """Packets a second of a variant as a part of those of another: median of the paired rounds."""
        pairs = zip(self.rounds[variant], self.rounds[base], strict=True)
        return statistics.median(other / own for own, other in pairs)


def pods_of(count: int) -> list[Pod]:
    """So many dual-stack pods; the first is the one that sends."""
    others = [
        pod(f"p{n}", f"10.244.{4 + n // 200}.{1 + n % 200}", f"fd00:244:1::1:{n:x}") for n in range(1, count)
    ]
    return [pod("p0", POD_A[4], POD_A[6]), *others]


def linear_rules(count: int) -> str:
    """One MARK rule a pod, as agents without sets have; the sender's is the last."""
    addresses = [one["status"]["podIPs"][0]["ip"] for one in pods_of(count)]
    rules = [f"-A FORWARD -s {a} -j MARK --set-mark {n + 1}" for n, a in enumerate(reversed(addresses))]
    return "\n".join(["*mangle", *rules, "COMMIT", ""])


@contextlib.contextmanager
def node(variant: Variant, backend: str) -> Iterator[World]:
    """A world whose node is as the variant says; the agent has ended and left its marks."""
    with World() as world:
        world.command("inside", "nft", "-f", "-", stdin=SINK)
        if variant.kind == "ours":
            pods = pods_of(variant.pods)
            agent = NetAgent(world, backend, {})
            agent.pods(*pods)
            agent.start().settle(*pods, deadline_seconds=SETTLE_SECONDS)
            agent.stop()
            assert agent.is_settled(*pods), "the marks stand without the agent"
        elif variant.kind == "linear":
            world.restore(backend, 4, linear_rules(variant.pods))
        yield world


@contextlib.contextmanager
def sender() -> Iterator[str]:
    """The compiled program."""
    with tempfile.TemporaryDirectory(prefix="nodeagent-bench-") as folder:
        program = f"{folder}/net_sender"
        subprocess.run(["gcc", "-O2", "-Wall", "-o", program, str(SOURCE)], check=True, timeout=60)
        yield program


def received(world: World) -> int:
    """Datagrams that came to their end at the peer, as its kernel counted them."""
    text = world.command("inside", "nft", "list", "table", "ip", "sink")
    return int(text.partition("packets ")[2].split()[0])


def send(program: str, worlds: Sequence[World], rounds: int) -> list[list[tuple[int, int]]]:
    """Send from every node in turn; by node and round, packets sent and nanoseconds of the core used."""
    core = str(max(os.sched_getaffinity(0)))
    sizes = (PORT, PAYLOAD_BYTES, rounds, SLICES, SLICE_MICROSECONDS, core)
    namespaces = [f"/run/netns/{world.name('pod-a')}" for world in worlds]
    argv = [program, INSIDE[4], *map(str, sizes), *namespaces]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SEND_SECONDS, check=True)
    found: list[list[tuple[int, int]]] = [[] for _ in worlds]
    for line in done.stdout.splitlines():
        number, packets, nanoseconds = map(int, line.split())
        found[number].append((packets, nanoseconds))
    return found


@functools.cache
def measured(backend: str) -> Packets:
    """All variants on one backend (nft | legacy), their slices interleaved."""
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(sender())
        worlds = [stack.enter_context(node(variant, backend)) for variant in VARIANTS]
        send(program, worlds, 1)  # neighbours are resolved, caches are warm
        before = [received(world) for world in worlds]
        found = send(program, worlds, ROUNDS)
        for world, counted, rounds in zip(worlds, before, found, strict=True):
            sent, arrived = sum(packets for packets, _ in rounds), received(world) - counted
            if arrived < (1 - MOST_LOST) * sent:
                raise RuntimeError(f"of {sent} packets {arrived} arrived: drops are not forwarding")
    spent = ([nanoseconds / packets for packets, nanoseconds in rounds] for rounds in found)
    return Packets(dict(zip(VARIANTS, spent, strict=True)))


def marked_ratio(backend: str) -> float:
    """Packets a second with 250 marked pods, as a part of those with nothing."""
    return measured(backend).ratio(Variant("ours", 250), NONE)


def growth_ratio(backend: str) -> float:
    """Packets a second with 1,000 marked pods, as a part of those with 10."""
    return measured(backend).ratio(Variant("ours", 1000), Variant("ours", 10))
