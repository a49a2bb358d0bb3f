"""Shapers side by side: none, ours, the CNI bandwidth plugin, HTB at the uplink's root with a filter a pod.

Every variant is a node of its own, and all send in turns, so that each ratio is of two neighbours in time.
The others are told to limit the same pod to the same rate; what they cannot tell apart, they limit too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from tests.bench import net_packets, shape_ends
from tests.bench.shape_ends import Echoes
from tests.netns import flows, shaped
from tests.netns.agent import NetAgent, pod
from tests.netns.flows import Sink
from tests.netns.world import INTERNET, POD_A, POD_B, World

PODS = 250
LIMIT, LIMIT_BITS = "20M", 20_000_000
BUDGET = "10G"
PLUGIN = Path(os.environ.get("CNI_PATH", "/usr/lib/cni")) / "bandwidth"
SMALL_BURST_BITS = 8 * 65_536
"""As ours."""
RUNTIME_BURST_BITS = 2**32 - 1
"""As containerd asks for."""
SETTLED_SECONDS = 3.0
MEASURED_SECONDS = 10.0
FLOW_SECONDS = SETTLED_SECONDS + MEASURED_SECONDS + 2.5
HELD_BACK = "cni"
"""It limits cluster packets too, and its burst is too small to let a measurement pass."""
VARIANTS = ("none", "ours", "cni", "cni-runtime", "u32")
SETTLE_SECONDS = 60.0


class Shaper(Struct, frozen=True, kw_only=True):
    """What one variant does to a limited pod and to its neighbour."""

    packets_per_second: float
    """Cluster packets of the limited pod that arrive, 64-byte, as fast as one core sends."""
    packets_ratio: float | None
    """Forwarded in the same time of the core, as a part of those without a shaper; median of paired rounds.
    None where the limit holds them back."""
    first_bits: float
    """Payload of an internet TCP flow in its first second."""
    bits_per_second: float
    """Over ten seconds, after three."""
    own: Echoes
    """Of the limited pod to the internet, meanwhile."""
    neighbour: Echoes


def missing() -> str:
    """Why it cannot be measured here, with the command that changes it; "" when it can."""
    if PLUGIN.exists():
        return ""
    return f"needs {PLUGIN}: apt-get install containernetworking-plugins (or set CNI_PATH)"


@functools.cache
def measured() -> dict[str, Shaper]:
    """All variants; without the plugin those that do without it, and stderr says what is left out and why."""
    variants: tuple[str, ...] = VARIANTS
    if why := missing():
        sys.stderr.write(f"the CNI bandwidth plugin is left out: {why}\n")
        variants = tuple(one for one in VARIANTS if not one.startswith("cni"))
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(net_packets.sender())
        worlds = {variant: stack.enter_context(_node(variant)) for variant in variants}
        free = {variant: world for variant, world in worlds.items() if variant != HELD_BACK}
        paired: dict[str, tuple[float, float | None]] = {**_paired(program, free)}
        if HELD_BACK in worlds:
            paired[HELD_BACK] = _held_back(program, worlds[HELD_BACK]), None
        found = {}
        for variant, world in worlds.items():
            first_bits, rate, own, neighbour = _under_load(world)
            found[variant] = Shaper(
                packets_per_second=paired[variant][0], packets_ratio=paired[variant][1],
                first_bits=first_bits, bits_per_second=rate, own=own, neighbour=neighbour,
            )
    return found


def own_packets_ratio() -> float:
    """Cluster packets a second with our shaping, as a part of those with nothing."""
    ratio = measured()["ours"].packets_ratio
    if ratio is None:
        raise RuntimeError("cluster packets were dropped")
    return ratio


# --------------------------------------------------------------------------- the nodes


@contextlib.contextmanager
def _node(variant: str) -> Iterator[World]:
    """Without masquerade: at the uplink's root a pod's own address must still be there to be matched."""
    with World() as world:
        world.command("inside", "nft", "-f", "-", stdin=net_packets.SINK)
        if variant == "ours":
            _ours(world)
        elif variant == "cni":
            _plugin(world, SMALL_BURST_BITS)
        elif variant == "cni-runtime":
            _plugin(world, RUNTIME_BURST_BITS)
        elif variant == "u32":
            _u32(world)
        yield world


def _ours(world: World) -> None:
    """Our agent has shaped as many pods, and ended."""
    a, b, *others = net_packets.pods_of(PODS)
    a, b = pod("p0", POD_A[4], POD_A[6], limit=LIMIT), pod("p1", POD_B[4], POD_B[6])
    agent = NetAgent(world, "nft", shaped.PRODUCTION_PERIODS, internet_budget=BUDGET)
    agent.pods(a, b, *others)
    agent.start().settle(a, b, *others, deadline_seconds=SETTLE_SECONDS)
    shaped.settle(agent, a, b)
    agent.stop()


def _plugin(world: World, burst_bits: int) -> None:
    """What a runtime asks of the plugin when it adds pod-a."""
    sandbox = f"/run/netns/{world.name('pod-a')}"
    asked = {
        "cniVersion": "0.4.0", "name": "bench", "type": "bandwidth",
        "runtimeConfig": {"bandwidth": {"egressRate": LIMIT_BITS, "egressBurst": burst_bits}},
        "prevResult": {
            "cniVersion": "0.4.0", "interfaces": [{"name": "vetha"}, {"name": "eth0", "sandbox": sandbox}],
            "ips": [{"version": "4", "address": f"{POD_A[4]}/32", "interface": 1}],
        },
    }
    words = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "bench", "CNI_NETNS": sandbox, "CNI_IFNAME": "eth0",
             "CNI_PATH": str(PLUGIN.parent)}
    environment = [f"{name}={value}" for name, value in words.items()]
    world.command("node", "env", *environment, str(PLUGIN), stdin=json.dumps(asked))


def _u32(world: World) -> None:
    """A class and a filter with an own preference for each pod; the last is that of pod-a."""
    addresses = [one["status"]["podIPs"][0]["ip"] for one in net_packets.pods_of(PODS)]
    lines = ["qdisc add dev eth0 root handle 1: htb default ffff",
             "class add dev eth0 parent 1: classid 1:ffff htb rate 100gbit quantum 60000"]
    internet = f"{INTERNET[4]}/32"
    for number, address in enumerate(reversed(addresses), 1):
        lines += [
            f"class add dev eth0 parent 1: classid 1:{number:x} htb"
            f" rate {LIMIT_BITS}bit burst 64k cburst 64k quantum 1514",
            f"filter add dev eth0 parent 1: pref {number} protocol ip u32 match ip src {address}/32"
            f" match ip dst {internet} flowid 1:{number:x}",
        ]
    world.command("node", "tc", "-batch", "-", stdin="\n".join(lines) + "\n")


# --------------------------------------------------------------------------- what is measured


def _paired(program: str, worlds: dict[str, World]) -> dict[str, tuple[float, float]]:
    """Packets in a second of the core, and as a part of those with nothing, of nodes that drop none."""
    net_packets.send(program, list(worlds.values()), 1)  # neighbours are resolved, caches are warm
    before = [net_packets.received(world) for world in worlds.values()]
    found = net_packets.send(program, list(worlds.values()), net_packets.ROUNDS)
    costs = [[nanoseconds / packets for packets, nanoseconds in rounds] for rounds in found]
    paired: dict[str, tuple[float, float]] = {}
    for (variant, world), counted, rounds, own in zip(worlds.items(), before, found, costs, strict=True):
        sent, arrived = sum(packets for packets, _ in rounds), net_packets.received(world) - counted
        if arrived < (1 - net_packets.MOST_LOST) * sent:
            raise RuntimeError(f"{variant}: of {sent} packets {arrived} arrived: drops are not forwarding")
        ratio = statistics.median(base / mine for base, mine in zip(costs[0], own, strict=True))
        paired[variant] = 1e9 / statistics.median(own), ratio
    return paired


def _held_back(program: str, world: World) -> float:
    """Packets a second that arrive where the limit makes the sender wait: by the clock, not by the core."""
    before, began_seconds = net_packets.received(world), time.monotonic()
    net_packets.send(program, [world], 1)
    return (net_packets.received(world) - before) / (time.monotonic() - began_seconds)


def _under_load(world: World) -> tuple[float, float, Echoes, Echoes]:
    """First second and ten later ones of a TCP flow to the internet; echoes of both pods in these ten."""
    sink = Sink(world, "outside")
    flows.start_tcp(world, "pod-a", INTERNET[4], FLOW_SECONDS)
    end_seconds = time.monotonic() + 10
    while sink.latest().tcp_bytes == 0:
        if time.monotonic() > end_seconds:
            raise RuntimeError("no flow to the internet")
        time.sleep(0.01)
    samples = sink.samples()
    idle = next(one for one, after in itertools.pairwise(samples) if after.tcp_bytes)
    time.sleep(SETTLED_SECONDS)
    first = [one for one in sink.samples() if one.at_seconds <= idle.at_seconds + 1.0][-1]
    began_seconds = time.monotonic()
    pings = [shape_ends.start(world, name, "ping", INTERNET[4], str(MEASURED_SECONDS))
             for name in ("pod-a", "pod-b")]
    time.sleep(MEASURED_SECONDS)
    rate = sink.bits_per_second(began_seconds, began_seconds + MEASURED_SECONDS)
    own, neighbour = (shape_ends.echoes(flow) for flow in pings)
    return 8.0 * first.tcp_bytes, rate, own, neighbour
