"""How soon and at what cost the agent's marks follow the pods: first sync, compare, one pod, restart.

The real daemon at its own pace in a private node. Processor time is that of the daemon, its workers and
every command that they ran and waited for, less what the same daemon uses in the same time with nothing
to do.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from nodeagent.shape import IFB_NAME
from tests import processes
from tests.netns.agent import NetAgent, Pod, pod, uid_of
from tests.netns.test_e2e_lifecycle import writes_of_a_run
from tests.netns.world import World

PODS = 250
SYNCS = 3
COMPARES = 10
ADDED = 10
ADDED_SECONDS = 1.5
"""From one pod to the next: the entry is written, and all is read back, well within it."""
IDLE_SECONDS = 6.0
LATENCY_PODS = 50
QUIET_SECONDS = 3.0
"""After a plan the kernel is read back; then nothing is due for a minute."""
DEADLINE_SECONDS = 20.0
POLL_SECONDS = 0.002
CLASS_MADE = re.compile(r"nlmsg_type=(RTM_NEWTCLASS|0x28)\b")
"""As strace shows it, by name or by number."""
SETS = {4: ("nodeagent-out4", "nodeagent-in4"), 6: ("nodeagent-out6", "nodeagent-in6")}


class Figures(Struct, frozen=True, kw_only=True):
    """What one backend needed."""

    sync_milliseconds: float
    """Median of the syncs."""
    compare_milliseconds: float
    added_milliseconds: float
    latency_seconds: float
    """95th percentile."""


def dual_stack(number: int) -> Pod:
    """One of many pods, with an address of each family."""
    address = f"10.244.{4 + number // 200}.{1 + number % 200}"
    return pod(f"p{number}", address, f"fd00:244:1::1:{number:x}")


def lines_wanted(pods: list[Pod]) -> dict[str, set[tuple[str, str]]]:
    """Set -> address and uid of each entry that it must hold."""
    wanted: dict[str, set[tuple[str, str]]] = {name: set() for names in SETS.values() for name in names}
    for one in pods:
        for entry in one["status"]["podIPs"]:
            for name in SETS[6 if ":" in entry["ip"] else 4]:
                wanted[name].add((entry["ip"], uid_of(one)))
    return wanted


def held(name: str) -> set[tuple[str, str]]:
    """Address and uid of each entry in a set, as the kernel has them."""
    done = subprocess.run(["ipset", "save", name], capture_output=True, text=True, timeout=30, check=False)
    words = [line.split() for line in done.stdout.splitlines() if line.startswith("add ")]
    return {(line[2], line[line.index("comment") + 1].strip('"').rpartition("/")[2]) for line in words}


def unshaped(names: Iterable[str]) -> int:
    """Entries in these sets without a class, or whose class is not there."""
    words = ["tc", "class", "show", "dev", IFB_NAME]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    classes = set(re.findall(r"^class htb (\S+) ", done.stdout, re.MULTILINE))
    count = 0
    for name in names:
        words = ["ipset", "save", name]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        for line in done.stdout.splitlines():
            if line.startswith("add "):
                found = re.search(r"skbprio (\w+):(\w+)", line)
                count += found is None or f"{int(found[1], 16):x}:{int(found[2], 16):x}" not in classes
    return count


def publish(fresh: str, path: str, wanted: dict[str, set[tuple[str, str]]], shapes: bool = False) -> float:
    """Put the file in its place; seconds until every set holds what is wanted, and with `shapes` until each
    pod has a class. Runs inside the node."""
    began_seconds = time.monotonic()
    Path(fresh).replace(path)
    for name, entries in wanted.items():
        while not entries <= held(name):
            if time.monotonic() > began_seconds + DEADLINE_SECONDS:
                raise RuntimeError(f"{name} does not hold what is wanted after {DEADLINE_SECONDS} s")
            time.sleep(POLL_SECONDS)
    while shapes and unshaped(name for name in wanted if "-out" in name):
        if time.monotonic() > began_seconds + DEADLINE_SECONDS:
            raise RuntimeError(f"not every pod has a class after {DEADLINE_SECONDS} s")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began_seconds


class Bench:
    """One daemon on one node, told of pods."""

    def __init__(self, world: World, backend: str, budget: str = "") -> None:
        """`budget`: [network] internet_budget; "": nothing is shaped."""
        self.world, self._shapes = world, bool(budget)
        self.agent = NetAgent(world, backend, {}, internet_budget=budget)

    def start(self) -> None:
        """Start the daemon and wait until it answers and has nothing to do."""
        self.agent.start()
        self.agent.wait((self.agent.folder / "s.sock").exists, "the daemon answers")
        time.sleep(QUIET_SECONDS)

    def tell(self, pods: list[Pod], new: list[Pod]) -> float:
        """Make the list visible; seconds until the entries of `new` are read back."""
        fresh = self.agent.folder / "pods.new"
        fresh.write_text(json.dumps({"kind": "PodList", "apiVersion": "v1", "items": pods}))
        path = self.agent.folder / "pods.json"
        words = (str(fresh), str(path), lines_wanted(new), self._shapes)
        return float(self.world.inside("node", publish, *words))

    def compare(self) -> None:
        """Have all be read and compared now, as it is every minute."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE_SECONDS)
            connection.connect(str(self.agent.folder / "s.sock"))
            connection.sendall(b"GET /v1/net/diff HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise RuntimeError(f"no compare: {answer[:300]!r}")

    def cpu_seconds(self) -> float:
        """User and system time of the daemon, of what it started, and of what that has run and waited for."""
        pids = [self.agent.pid]
        for pid in pids:
            pids += processes.children(pid)
        return sum(used_seconds(pid) for pid in pids)

    def cost_milliseconds(self, times: int, act: Callable[[int], object]) -> float:
        """Processor time of one `act`, above what the daemon uses by itself in the time it takes."""
        idle_before, idle_began = self.cpu_seconds(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        idle_rate = (self.cpu_seconds() - idle_before) / (time.monotonic() - idle_began)
        before, began = self.cpu_seconds(), time.monotonic()
        for number in range(times):
            act(number)
        used = self.cpu_seconds() - before - idle_rate * (time.monotonic() - began)
        return 1000 * used / times


def used_seconds(pid: int) -> float:
    """Of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def first_sync_seconds(world: World, backend: str, pods: list[Pod], budget: str) -> float:
    """A fresh node and an agent that waits for pods: the list appears, all entries are read back."""
    bench = Bench(world, backend, budget)
    bench.start()
    try:
        return bench.tell(pods, pods)
    finally:
        bench.agent.stop()
        bench.agent.cli("net", "cleanup")


@functools.cache
def figures(backend: str, budget: str = "") -> Figures:
    """All but the restart, on one backend (nft | legacy); with a budget every pod has a class."""
    pods = [dual_stack(number) for number in range(PODS)]
    with World() as world:
        syncs = [first_sync_seconds(world, backend, pods, budget) for _ in range(SYNCS)]
        bench = Bench(world, backend, budget)
        bench.start()
        bench.tell(pods, pods)
        time.sleep(QUIET_SECONDS)
        compare = bench.cost_milliseconds(COMPARES, lambda _: bench.compare())

        def add(_: int) -> None:
            end_seconds = time.monotonic() + ADDED_SECONDS
            pods.append(dual_stack(len(pods)))
            bench.tell(pods, pods[-1:])
            time.sleep(max(0.0, end_seconds - time.monotonic()))

        added = bench.cost_milliseconds(ADDED, add)
        delays = []
        for _ in range(LATENCY_PODS):
            time.sleep(random.uniform(0.05, 0.4))
            pods.append(dual_stack(len(pods)))
            delays.append(bench.tell(pods, pods[-1:]))
        bench.agent.stop()
    return Figures(
        sync_milliseconds=1000 * statistics.median(syncs), compare_milliseconds=compare,
        added_milliseconds=added, latency_seconds=statistics.quantiles(delays, n=20, method="inclusive")[18],
    )


@functools.cache
def restart_writes(backend: str, budget: str = "") -> float:
    """System calls of a second run with the same pods that write to the kernel's tables, tc included."""
    if shutil.which("strace") is None:
        raise RuntimeError("needs strace: apt-get install strace")
    pods = [dual_stack(number) for number in range(PODS)]
    with World() as world:
        agent = NetAgent(world, backend, internet_budget=budget)
        agent.pods(*pods)
        outs = [names[0] for names in SETS.values()]

        def is_shaped() -> bool:
            return not budget or world.inside("node", unshaped, outs) == 0

        first = writes_of_a_run(agent, pods, is_shaped)
        classes = sum(bool(CLASS_MADE.search(line)) for line in first)
        if not first or classes < (PODS if budget else 0):
            raise RuntimeError("the first run wrote too little, so the second proves nothing")
        return float(len(writes_of_a_run(agent, pods, is_shaped)))
