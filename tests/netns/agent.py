"""The real daemon inside a world's node, told of pods by a file; its memory is what it counted.

Only the pauses between readings are shorter than in production; no part is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nodeagent.drivers.store import Store
from nodeagent.errors import DriverError
from nodeagent.memory import Memory
from nodeagent.traffic_memory import PodCount, Tally
from tests.agent import QUICK, ROOT, toml
from tests.netns.world import World

NODE_NAME = "net-node-1"
STOP_SECONDS = 15.0
READY = '"nodeagent_event": "ready"'
POLL_SECONDS = 0.05
PERIODS = {"observe.marks.PERIOD_SECONDS": 60.0, "act.saver.LAZY_SECONDS": 0.1}
"""Constants of the daemon under test: what was counted is on disk at once."""
COMPARE = {
    **PERIODS, "observe.marks.PERIOD_SECONDS": 0.15, "observe.marks.GAP_SECONDS": 0.1,
    "observe.network.PERIOD_SECONDS": 0.15, "observe.network.GAP_SECONDS": 0.1,
    "observe.network.COST_RATIO": 1.0, "observe.network.SETTLE_SECONDS": 0.02, "cycle.GAP_SECONDS": 0.05,
}  # fmt: skip
"""And a minute's compare several times a second."""

Pod = dict[str, Any]


def pod(name: str, *addresses: str, namespace: str = "team", uid: str = "", **more: Any) -> Pod:
    """One v1.Pod; `more`: phase, host_network, limit, guarantee (annotations)."""
    uid = uid or str(uuid.uuid5(uuid.NAMESPACE_OID, f"{namespace}/{name}"))
    annotations = {
        f"nodeagent.io/internet-egress-{what}": more[what] for what in ("limit", "guarantee") if what in more
    }
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": uid, "annotations": annotations},
        "spec": {"hostNetwork": more.get("host_network", False)},
        "status": {"phase": more.get("phase", "Running"), "podIPs": [{"ip": one} for one in addresses]},
    }


def uid_of(one: Pod) -> str:
    """metadata.uid"""
    return str(one["metadata"]["uid"])


class NetAgent:
    """One daemon on the node of a world; the world ends it."""

    def __init__(
        self, world: World, backend: str, periods: dict[str, float] | None = None, **network: Any
    ) -> None:
        """`backend`: nft | legacy; `periods`: constants of the daemon, COMPARE unless given."""
        self.world, self.backend = world, backend
        self.folder = world.folder / f"agent-{uuid.uuid4().hex[:6]}"
        self.state_file = self.folder / "memory.json"
        self.log_path = self.folder / "agent.log"
        self.process: subprocess.Popen[Any] | None = None
        self._periods = COMPARE if periods is None else periods
        self._sections: dict[str, dict[str, Any]] = {}
        self._make(network)

    def _make(self, network: dict[str, Any]) -> None:
        proc = self.folder / "proc"
        proc.mkdir(parents=True)
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                (proc / entry.name).symlink_to(entry)
        (proc / "1").symlink_to("/proc/self")  # the host's namespace is the one that the daemon runs in
        sections: dict[str, dict[str, Any]] = {
            "node": {"name": NODE_NAME, "state_file": str(self.state_file), "proc_root": str(proc)},
            "gpu": {"enabled": "false"},
            "pods": {"source": "file", "file": str(self.folder / "pods.json")},
            "network": {"iptables_path": str(shutil.which(f"iptables-{self.backend}")), **network},
            "status": {"socket": str(self.folder / "s.sock"), "metrics_listen": ""},
        }
        sections |= {name: dict(keys) for name, keys in QUICK.items() if name.startswith("checks")}
        self._sections = sections
        self.configure()

    def configure(self, **network: Any) -> None:
        """Write the configuration, with these keys of [network] changed."""
        self._sections["network"] |= network
        (self.folder / "nodeagent.toml").write_text(toml(self._sections))

    def reload(self) -> None:
        """Have the daemon read its configuration again."""
        os.kill(self.pid, signal.SIGHUP)

    # -- life

    def start(self, under: Sequence[str] = (), *, dies_at: int | None = None) -> NetAgent:
        """Start the daemon, `under` a command that starts it; returns at once."""
        patches = [f"{name}={value}" for name, value in self._periods.items()]
        module = ("quick_daemon",) if dies_at is None else ("dying_daemon", str(dies_at))
        argv = [*under, sys.executable, "-m", f"tests.netns.{module[0]}", *module[1:], *patches, "--",
                "--config", str(self.folder / "nodeagent.toml"), "run"]
        environment = {**self.world.environment, "PYTHONPATH": str(ROOT)}
        self._ready_before = len(self.logged(READY))
        with self.log_path.open("ab") as log:
            self.process = self.world.start("node", argv, env=environment, stdout=log, stderr=log, cwd=ROOT)
        return self

    @property
    def pid(self) -> int:
        """Of the daemon."""
        assert self.process is not None
        return self.process.pid

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal the daemon and wait for its end."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(STOP_SECONDS)

    def is_ready(self) -> bool:
        """True once the daemon of the latest start has judged for the first time."""
        return len(self.logged(READY)) > self._ready_before

    def is_alive(self) -> bool:
        """True while the daemon runs."""
        return self.process is not None and self.process.poll() is None

    def died(self) -> bool:
        """True for a daemon that was killed; AssertionError with its log when it ended otherwise."""
        assert self.process is not None
        assert self.process.wait(STOP_SECONDS) == -signal.SIGKILL, self.log()
        return True

    def pods(self, *pods: Pod) -> None:
        """Replace the list of pods in one step, as an updater of the file would."""
        fresh = self.folder / "pods.new"
        fresh.write_text(json.dumps({"kind": "PodList", "apiVersion": "v1", "items": list(pods)}))
        fresh.replace(self.folder / "pods.json")

    # -- what it knows and made

    def memory(self) -> Memory:
        """What it has saved; an empty Memory before the first save."""
        with contextlib.suppress(DriverError):
            return Store(str(self.state_file)).load(NODE_NAME)[0]
        return Memory()

    def tally(self, one: Pod) -> Tally:
        """Bytes of a pod; zeros before it is known."""
        traffic = self.memory().traffic
        count = traffic.pods.get(uid_of(one)) or traffic.retired.get(uid_of(one))
        return count.tally if count else PodCount(namespace="", name="").tally

    def entries(self, name: str) -> dict[str, str]:
        """Address -> comment of the entries that the kernel holds in a set of ours."""
        text = self.world.command("node", "ipset", "save", name, check=False)
        return dict(re.findall(rf'^add {name} (\S+) .*?comment "([^"]*)"', text, re.MULTILINE))

    def mangle(self, family: int = 4) -> list[str]:
        """Lines of our chains and jumps in mangle, without counters."""
        program = "iptables" if family == 4 else "ip6tables"
        text = self.world.command("node", f"{program}-{self.backend}-save", "-t", "mangle")
        return [line.partition(" [")[0] for line in text.splitlines() if "NODEAGENT-" in line]

    def whole(self) -> str:
        """Everything of ours in the kernel as text, without counters."""
        sets = [name for name in self.world.command("node", "ipset", "list", "-n").split()
                if name.startswith("nodeagent-")]
        texts = [self.world.command("node", "ipset", "save", name) for name in sorted(sets)]
        lines = [line for text in texts for line in sorted(text.splitlines())]
        lines += [line for family in (4, 6) for line in self.mangle(family)]
        return "\n".join(re.sub(r" (packets|bytes) \d+", "", line) for line in lines)

    def is_settled(self, *pods: Pod, uplinks: int = 1) -> bool:
        """True when every pod's addresses have their entries, and the jumps of both families stand."""
        for family in (4, 6):
            held = self.entries(f"nodeagent-out{family}")
            for one in pods:
                wanted = [a["ip"] for a in one["status"]["podIPs"] if (":" in a["ip"]) == (family == 6)]
                if any(not held.get(address, "").endswith(uid_of(one)) for address in wanted):
                    return False
            rules = [line for line in self.mangle(family) if line.startswith("-A")]
            if sum("-j NODEAGENT-" in rule for rule in rules) != 4 * uplinks + 1:
                return False
        return True

    def settle(self, *pods: Pod, deadline_seconds: float = 60) -> None:
        """Wait until the kernel holds what these pods need."""
        self.wait(lambda: self.is_settled(*pods), "the kernel holds what is wanted", deadline_seconds)

    def wait(self, holds: Callable[[], object], what: str, deadline_seconds: float = 40) -> None:
        """Return once `holds` is true; AssertionError with the daemon's log otherwise."""
        end_seconds = time.monotonic() + deadline_seconds
        while not holds():
            if time.monotonic() > end_seconds:
                raise AssertionError(f"not within {deadline_seconds:g} s: {what}\n{self.log()}")
            time.sleep(POLL_SECONDS)

    def look(self) -> None:
        """Wait for counters younger than this call: the second reading that ends later also began later."""
        for _ in range(2):
            asked_seconds = time.monotonic()
            self.wait(lambda since=asked_seconds: self._is_read_since(since), "links and marks are read")

    def _is_read_since(self, since_seconds: float) -> bool:
        traffic = self.memory().traffic
        times = traffic.marks_read_seconds, traffic.links_read_seconds
        return all(at is not None and at > since_seconds for at in times)

    def cli(self, *arguments: str, check: bool = True) -> str:
        """Run a `nodeagent` command on the node; what it printed. An exit code other than 0 raises."""
        argv = (sys.executable, "-m", "nodeagent", "--config", str(self.folder / "nodeagent.toml"))
        return self.world.command("node", *argv, *arguments, check=check)

    def log(self) -> str:
        """The last lines that the daemon wrote."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(line[:600] for line in lines[-25:])

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Log entries of one kind, oldest first."""
        found: list[dict[str, Any]] = []
        if not self.log_path.exists():
            return found
        for line in self.log_path.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if event in line:
                    found.append(entry)
        return found
