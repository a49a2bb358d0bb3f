"""How soon a fault is a taint on the Node object of a real API server."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from tests.agent import quick_to_clear
from tests.bench.budget import Budget
from tests.kube import api
from tests.kube.node_agent import GPU_TAINT, NodeAgent
from tests.kube.plane import ControlPlane, binaries, missing

RUNS = 30
FIRST_IDLE_SECONDS, IDLE_SECONDS = 180.0, 4.0
"""Before the first fault, and between the others."""
DEADLINE_SECONDS = 30.0
NODE_NAME = "gpu-a17"
GPU = 1
TAINTS = "jsonpath={.spec.taints[*].key}{'\\n'}"


class Watcher:
    """`kubectl get node --watch`: when our taint came and went, as somebody else sees it."""

    def __init__(self, plane: ControlPlane) -> None:
        kubectl = [*plane.capsule.prefix(), str(binaries() / "kubectl"), f"--kubeconfig={plane.kubeconfig}"]
        words = [*kubectl, "get", "node", NODE_NAME, "--watch", "-o", TAINTS]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self._changed = threading.Condition()
        self._is_tainted = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._is_tainted = GPU_TAINT in line
                self._changed.notify_all()

    def wait(self, *, tainted: bool) -> None:
        """Return when the watch has shown it. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_tainted == tainted, DEADLINE_SECONDS):
                raise TimeoutError(f"the Node was never seen with tainted = {tainted}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._thread.join()


def taint_seconds() -> float:
    """95th percentile from an Xid 79 in the kernel log to the taint in somebody's watch; idle before each."""
    if reason := missing():
        raise RuntimeError(reason)
    delays: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ControlPlane() as plane:
        plane.admin(api.Api.post, api.NODES, api.node(NODE_NAME, **{"kubernetes.io/hostname": NODE_NAME}))
        one = NodeAgent(plane, NODE_NAME, Path(folder))
        one.agent.configure({**one.sections, **quick_to_clear("xid")})
        one.patches({})
        watcher = Watcher(plane)
        try:
            for number in range(RUNS):
                # Anew each time: so many faults in minutes are more than one daemon's budget of writes.
                one.agent.start()
                one.agent.wait_until(lambda s: s["api"]["state"] == "connected", "the Node is watched")
                time.sleep(IDLE_SECONDS if number else FIRST_IDLE_SECONDS)
                began_seconds = time.monotonic()
                one.agent.kernel_log.xid(one.agent.pci(GPU), 79, "GPU has fallen off the bus.")
                watcher.wait(tainted=True)
                delays.append(time.monotonic() - began_seconds)
                one.agent.cli("gpu", "repaired", one.agent.pci(GPU), "--reason", "swapped")
                watcher.wait(tainted=False)
                one.agent.stop()
        finally:
            watcher.close()
            one.agent.close()
    return statistics.quantiles(delays, n=20, method="inclusive")[18]


BUDGETS = (
    Budget(
        name="taint", what="Xid 79 in the kernel log to the taint in a watch of the Node, p95 of 30", bound=1,
        unit="s", digits=2, slow=True, measure=taint_seconds,
    ),
)
