"""Pods that come, end, hand their address on, and an agent that restarts or dies: entries and counts."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.netns import traffic
from tests.netns.agent import COMPARE, PERIODS, NetAgent, Pod, pod, uid_of
from tests.netns.conftest import MakeWorld
from tests.netns.world import BACKENDS, INTERNET, POD_A, POD_B, World

pytestmark = pytest.mark.root
FIRST = pod("first", POD_A[4], POD_A[6])
SECOND = pod("second", POD_A[4], POD_A[6])
OTHER = pod("other", POD_B[4], POD_B[6], namespace="shop")
KILLS = 6
CALLS = "sendto,sendmsg,setsockopt,unshare,clone,clone3,fork,vfork"
WRITES = re.compile(
    r"IPSET_CMD_(CREATE|DESTROY|FLUSH|RENAME|SWAP|ADD|DEL)\b|NFT_MSG_(NEW|DEL)|NFNL_MSG_BATCH_BEGIN"
    r"|IP6?T_SO_SET_(REPLACE|ADD)|RTM_(NEW|DEL|SET)(LINK|QDISC|TCLASS|TFILTER|CHAIN)"
    r"|nlmsg_type=0x(60[2-69a]|a0[0235689bce]|a1[24]|1[013]|2[4589cd]|6[45])\b"
)
"""By name and, where strace did not see of which protocol the socket is, by number."""
CLASS_WRITE = re.compile(r"RTM_NEWTCLASS|nlmsg_type=0x28\b")


def burst(world: World, namespace: str, count: int = 20) -> None:
    """Some internet packets of both families."""
    for family in (4, 6):
        world.inside(namespace, traffic.datagrams, INTERNET[family], count)


def internet_out(agent: NetAgent) -> dict[str, int]:
    """Namespace -> internet bytes out, as saved."""
    return {name: tally.internet_out_bytes for name, tally in agent.memory().traffic.namespaces.items()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reused_address_inherits_nothing(world: World, backend: str) -> None:
    """Its next pod starts at zero, in the kernel and in the sums; what the first one sent stays counted."""
    world.neighbours(backend)
    agent = NetAgent(world, backend)
    agent.pods(FIRST)
    agent.start().settle(FIRST)
    burst(world, "pod-a")
    agent.look()
    sent_bytes = agent.tally(FIRST).internet_out_bytes
    assert sent_bytes == 20 * (1028 + 1048)

    agent.pods(SECOND)
    agent.settle(SECOND)
    agent.look()
    assert agent.tally(SECOND).internet_out_bytes == 0
    burst(world, "pod-a", 3)
    agent.look()

    assert agent.tally(SECOND).internet_out_bytes == 3 * (1028 + 1048)
    assert agent.tally(FIRST).internet_out_bytes == sent_bytes
    assert internet_out(agent) == {"team": 23 * (1028 + 1048)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_finished_pod_loses_its_entries(world: World, backend: str) -> None:
    """Both families, both sets, while its neighbour keeps what it has; the namespace's sum stays."""
    world.neighbours(backend)
    agent = NetAgent(world, backend)
    agent.pods(FIRST, OTHER)
    agent.start().settle(FIRST, OTHER)
    burst(world, "pod-a")
    agent.look()
    ended = pod("first", POD_A[4], POD_A[6], phase="Succeeded")

    agent.pods(ended, OTHER)
    agent.wait(lambda: POD_A[4] not in agent.entries("nodeagent-in4"), "the entry goes", 5)
    agent.look()

    for family in (4, 6):
        for name in ("in", "out"):
            assert agent.entries(f"nodeagent-{name}{family}") == {
                POD_B[family]: f"shop/other/{uid_of(OTHER)}"
            }
    assert internet_out(agent)["team"] == 20 * (1028 + 1048)


@pytest.mark.parametrize("backend", BACKENDS)
def test_fifty_pods_have_their_entries_soon(world: World, backend: str) -> None:
    """Told one after another while the agent runs at its own pace, each is in the kernel within seconds."""
    world.neighbours(backend)
    agent = NetAgent(world, backend, PERIODS)
    agent.pods()
    agent.start().settle()
    pods: list[Pod] = []
    waits = []
    for number in range(5):
        pods += [pod(f"p{number}-{n}", f"10.244.1.{20 + 10 * number + n}") for n in range(10)]
        began_seconds = time.monotonic()
        agent.pods(*pods)
        agent.settle(*pods)
        waits.append(time.monotonic() - began_seconds)

    comments = {f"team/{one['metadata']['name']}/{uid_of(one)}" for one in pods}
    assert set(agent.entries("nodeagent-out4").values()) == comments and len(comments) == 50
    assert max(waits) < 5, waits


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_never_fall_whatever_kills_the_agent(world: World, backend: str) -> None:
    """kill -9 at random moments, amid additions, reuse, deletion: sums only rise, never above the truth."""
    world.neighbours(backend)
    traffic.watch(world, "pod-a")
    agent = NetAgent(world, backend, COMPARE)
    chance = random.Random(3)
    lists = [(FIRST, OTHER), (SECOND, OTHER), (OTHER,), (FIRST,)]
    seen: dict[str, int] = {}
    for turn in range(KILLS):
        now = lists[turn % len(lists)]
        agent.pods(*now)
        agent.start()
        burst(world, "pod-a", 5)
        if turn % 4 == 0:
            agent.settle(*now)
            agent.look()
        time.sleep(chance.uniform(0.2, 1.2))
        agent.stop(signal.SIGKILL)
        after = internet_out(agent)
        assert all(after.get(name, 0) >= size for name, size in seen.items()), (seen, after)
        seen = after

    agent.pods(FIRST, OTHER)
    agent.start().settle(FIRST, OTHER)
    burst(world, "pod-a", 5)
    agent.look()
    assert 0 < seen["team"] < internet_out(agent)["team"] <= traffic.seen(world, "pod-a")["internet_out"]


@pytest.mark.parametrize(("backend", "budget"), [("legacy", ""), ("nft", ""), ("nft", "10G")])
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
def test_a_restart_with_250_pods_writes_nothing(make_world: MakeWorld, backend: str, budget: str) -> None:
    """No write to ipset, iptables or tc among the agent's system calls; state and counters stand."""
    world = make_world()
    world.neighbours(backend)
    pods = [pod(f"p{n}", f"10.244.{3 + n // 200}.{1 + n % 200}", f"fd00:244:1::1:{n:x}") for n in range(250)]
    agent = NetAgent(world, backend, internet_budget=budget)
    agent.pods(*pods)

    first = writes_of_a_run(agent, pods)
    burst(world, "pod-a")
    held = world.dump()
    second = writes_of_a_run(agent, pods)

    assert first and second == []
    assert any(map(CLASS_WRITE.search, first)) is bool(budget)
    assert world.dump() == held
    assert agent.logged("op_failed") == []


def writes_of_a_run(
    agent: NetAgent, pods: list[Pod], holds: Callable[[], object] = lambda: True
) -> list[str]:
    """Run the agent until all is settled, `holds` is true, and all is read again; its system calls that write
    to the node's tables and to tc."""
    trace = agent.folder / "trace"
    agent.start(under=["strace", "-D", "-f", "-e", f"trace={CALLS}", "-o", str(trace)])
    agent.settle(*pods)
    agent.wait(holds, "the kernel holds the rest")
    agent.look()
    agent.stop()
    end = re.compile(rf"^{agent.pid} +\+\+\+ exited", re.MULTILINE)  # short numbers are padded
    agent.wait(lambda: end.search(trace.read_text(errors="replace")), "the trace is whole")
    lines = trace.read_text(errors="replace").splitlines()
    return [line for line in of_the_node(lines) if WRITES.search(line)]


def of_the_node(lines: list[str]) -> Iterator[str]:
    """The calls of processes that did not leave the node's network namespace (a probe of features does)."""
    elsewhere: set[str] = set()
    for line in lines:
        pid, _, call = line.partition(" ")
        if "unshare(CLONE_NEWNET" in call:
            elsewhere.add(pid)
        if pid not in elsewhere:
            yield line
        elif found := re.search(r"(?:fork|clone3?)\b.* = (\d+)$", call):
            elsewhere.add(found[1])
