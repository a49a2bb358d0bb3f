"""What a node does not use, it does not pay for."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyroute2", "iptc", "httpx", "pynvml", "nodeagent.drivers.ipset", "nodeagent.drivers.tc")


def test_the_daemon_starts_without_what_only_some_nodes_need() -> None:
    """Netlink, iptables, HTTPS and GPU libraries are loaded when pods or GPUs are known, not before."""
    script = f"import sys, nodeagent.daemon; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
