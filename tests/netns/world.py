"""A node, its pods and their peers in private network namespaces, joined by veth; never the machine's own.

              outside (gateway, internet)          inside (another node, with a pod)
                 |  eth0            | eth1                    | eth0
                 |                  |                         |
    switch ------+------------------|-------------------------+--- (bridge)
                 |                  |
            node eth0          node eth1 (second uplink, on request)
            node vetha --- pod-a eth0      node vethb --- pod-b eth0

Everything is named after the process that made it, and goes away on exit, also after a failure; what a
killed run has left behind goes when the next world is made.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.netns import hoststate, neighbours, process

NAMES = ("node", "pod-a", "pod-b", "inside", "outside", "switch")
NODE = {4: "10.0.0.2", 6: "fd00:a::2"}
POD_A = {4: "10.244.1.10", 6: "fd00:244:1::10"}
POD_B = {4: "10.244.1.11", 6: "fd00:244:1::11"}
INSIDE = {4: "10.0.0.3", 6: "fd00:a::3"}
INSIDE_POD = {4: "10.244.2.10", 6: "fd00:244:2::10"}
INTERNET = {4: "198.51.100.7", 6: "2001:db8:ffff::7"}
INTERNET_SECOND = {4: "198.51.100.8", 6: "2001:db8:ffff::8"}
"""Reached over the second uplink where there is one, else over the first."""
PODS = {"pod-a": ("vetha", POD_A), "pod-b": ("vethb", POD_B)}
BACKENDS = ("legacy", "nft")
FAMILIES = (4, 6)
COMMANDS = {"ip": "iproute2", "tc": "iproute2", "iptables-nft": "iptables", "iptables-legacy": "iptables",
            "ipset": "ipset", "nft": "nftables", "nsenter": "util-linux"}
_NETNS = Path("/run/netns")
_PREFIX = "nanet"
_serial = itertools.count()

_SWITCH = """
link add br0 type bridge
link set br0 up
link set lo up
"""
_NODE = """
link set lo up
addr add 10.0.0.2/24 dev eth0
addr add fd00:a::2/64 dev eth0 nodad
link set eth0 up
route add default via 10.0.0.1 dev eth0
route add default via fd00:a::1 dev eth0
route add 10.244.2.0/24 via 10.0.0.3
route add fd00:244:2::/64 via fd00:a::3
"""
_INSIDE = """
link set lo up
addr add 10.244.2.10/32 dev lo
addr add fd00:244:2::10/128 dev lo nodad
addr add 10.0.0.3/24 dev eth0
addr add fd00:a::3/64 dev eth0 nodad
link set eth0 up
route add default via 10.0.0.1 dev eth0
route add default via fd00:a::1 dev eth0
route add 10.244.1.0/24 via 10.0.0.2
route add fd00:244:1::/64 via fd00:a::2
"""
_OUTSIDE = """
link set lo up
addr add 198.51.100.7/32 dev lo
addr add 198.51.100.8/32 dev lo
addr add 2001:db8:ffff::7/128 dev lo nodad
addr add 2001:db8:ffff::8/128 dev lo nodad
addr add 10.0.0.1/24 dev eth0
addr add fd00:a::1/64 dev eth0 nodad
link set eth0 up
route add 10.244.1.0/24 via 10.0.0.2
route add fd00:244:1::/64 via fd00:a::2
route add 10.244.2.0/24 via 10.0.0.3
route add fd00:244:2::/64 via fd00:a::3
"""
_SECOND_NODE = """
addr add 10.0.1.2/24 dev eth1
addr add fd00:b::2/64 dev eth1 nodad
link set eth1 up
route add default via 10.0.1.1 dev eth1 metric 2000
route add default via fd00:b::1 dev eth1 metric 2000
route add 198.51.100.8 via 10.0.1.1 dev eth1
route add 2001:db8:ffff::8 via fd00:b::1 dev eth1
"""
_SECOND_OUTSIDE = """
addr add 10.0.1.1/24 dev eth1
addr add fd00:b::1/64 dev eth1 nodad
link set eth1 up
"""
_POD = """
link set lo up
addr add {address4}/32 dev eth0
addr add {address6}/128 dev eth0 nodad
link set eth0 up
route add 10.244.1.1 dev eth0 scope link
route add default via 10.244.1.1 dev eth0
route add default via fe80::1 dev eth0
"""
_POD_HOST_SIDE = """
link set {link} up
addr add 10.244.1.1/32 dev {link}
addr add fe80::1/64 dev {link} nodad
route add {address4}/32 dev {link}
route add {address6}/128 dev {link}
"""


def missing() -> str:
    """Why no world can be made here, with the command that changes it; "" when one can."""
    if os.geteuid() != 0:
        return "needs root: run as root"
    absent = sorted({package for command, package in COMMANDS.items() if shutil.which(command) is None})
    return f"needs {' '.join(absent)}: apt-get install {' '.join(absent)}" if absent else ""


class World:
    """The namespaces from `with World() as w:` until its end."""

    def __init__(self, *, masquerade: bool = False, second_uplink: bool = False) -> None:
        """`masquerade`: the node hides its pods' addresses from all but the cluster."""
        self._masquerade, self._second_uplink = masquerade, second_uplink
        self.prefix = f"{_PREFIX}{os.getpid()}x{next(_serial)}-"
        self.folder = Path("/")
        self._started: list[subprocess.Popen[Any]] = []

    def name(self, namespace: str) -> str:
        """The name under /run/netns."""
        return self.prefix + namespace

    def __enter__(self) -> World:
        """Make everything; what was made before a failure is removed again."""
        _remove_left_behind()
        self.folder = Path(tempfile.mkdtemp(prefix=self.prefix))
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Remove everything."""
        self.close()

    def close(self) -> None:
        """End what runs in the namespaces, remove them; a second call does nothing."""
        for started in self._started:
            if started.poll() is None:
                started.kill()
            started.communicate()
        self._started.clear()
        for namespace in NAMES:
            _remove(self.name(namespace))
        if self.folder != Path("/"):
            shutil.rmtree(self.folder, ignore_errors=True)

    # ----------------------------------------------------------------- making

    def _make(self) -> None:
        for namespace in NAMES:
            _run("ip", "netns", "add", self.name(namespace))
        self._ip("switch", _SWITCH)
        for namespace in ("node", "inside", "outside"):
            self._ip("switch", self._veth(namespace, "eth0", "switch", namespace)
                     + f"link set {namespace} master br0\nlink set {namespace} up\n")
        for pod, (link, _) in PODS.items():
            self._ip("node", self._veth(pod, "eth0", "node", link))
        if self._second_uplink:
            self._ip("node", self._veth("node", "eth1", "outside", "eth1"))
        self._forwarding()
        self._addresses()
        if self._masquerade:
            for family, pods in ((4, "10.244.0.0/16"), (6, "fd00:244::/32")):
                inside = {4: "10.0.0.0/8", 6: "fd00::/8"}[family]
                rule = f"-A POSTROUTING -s {pods} ! -d {inside} -j MASQUERADE"
                self.restore("nft", family, f"*nat\n{rule}\nCOMMIT\n")

    def _veth(self, namespace: str, name: str, peer_namespace: str, peer: str) -> str:
        return (f"link add {peer} netns {self.name(peer_namespace)} type veth"
                f" peer name {name} netns {self.name(namespace)}\n")

    def _forwarding(self) -> None:
        for namespace in ("node", "inside", "outside"):
            for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
                self.inside(namespace, process.write_text, f"/proc/sys/net/{path}", "1")

    def _addresses(self) -> None:
        self._ip("outside", _OUTSIDE)
        self._ip("inside", _INSIDE)
        self._ip("node", _NODE)
        for pod, (link, addresses) in PODS.items():
            words = {"link": link, "address4": addresses[4], "address6": addresses[6]}
            self._ip("node", _POD_HOST_SIDE.format_map(words))
            self._ip(pod, _POD.format_map(words))
        if self._second_uplink:
            self._ip("outside", _SECOND_OUTSIDE)
            self._ip("node", _SECOND_NODE)

    def _ip(self, namespace: str, batch: str) -> None:
        _run("ip", "-n", self.name(namespace), "-batch", "-", stdin=batch)

    # ----------------------------------------------------------------- using

    @property
    def environment(self) -> dict[str, str]:
        """Of every process in this world: iptables' lock is a file of its own, not the machine's."""
        return {**os.environ, "XTABLES_LOCKFILE": str(self.folder / "xtables.lock"), "LC_ALL": "C"}

    def inside(self, namespace: str, function: Callable[..., Any], *arguments: Any,
               timeout_seconds: float = 60) -> Any:
        """What `function` gives, or raises, in a child process inside the namespace (a coroutine is run).

        Result and exception must be picklable; the child also sees the namespace in /sys.
        """
        return process.in_child(_NETNS / self.name(namespace), self.environment, function, arguments,
                                timeout_seconds)

    def argv(self, namespace: str, *argv: str) -> list[str]:
        """The command line that runs `argv` in the namespace (with /sys of that namespace)."""
        return ["ip", "netns", "exec", self.name(namespace), *argv]

    def command(self, namespace: str, *argv: str, stdin: str = "", check: bool = True) -> str:
        """Run to its end, at most 60 s; stdout. A failure raises with what it said, unless `check` is off."""
        return _run(*self.argv(namespace, *argv), stdin=stdin, check=check, env=self.environment)

    def start(self, namespace: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command that runs until it ends or the world does."""
        options.setdefault("env", self.environment)
        options.setdefault("start_new_session", True)  # a Ctrl-C is for the maker, which ends them in order
        # nsenter, not `ip netns exec`: the process that is started is the command itself.
        enter = ["nsenter", f"--net={_NETNS / self.name(namespace)}", "--", *argv]
        started = subprocess.Popen(enter, **options)
        self._started.append(started)
        return started

    def restore(self, backend: str, family: int, text: str, namespace: str = "node") -> None:
        """Feed `text` to iptables-BACKEND-restore --noflush."""
        program = "iptables" if family == 4 else "ip6tables"
        self.command(namespace, f"{program}-{backend}-restore", "--noflush", stdin=text)

    def neighbours(self, backend: str = "nft") -> None:
        """Put other agents' state on the node, as kube-proxy, portmap, Calico, Cilium, Docker leave it."""
        neighbours.install(self, backend)

    def dump(self) -> str:
        """The whole state of the node as text, without counters, to compare before and after."""
        return hoststate.dump(self)


def _run(*argv: str, stdin: str = "", check: bool = True, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False, env=env)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}\n{stdin}")
    return done.stdout


def _remove(name: str) -> None:
    if not (_NETNS / name).exists():
        return
    for pid in _run("ip", "netns", "pids", name, check=False).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    _run("ip", "netns", "delete", name, check=False)


def _remove_left_behind() -> None:
    """Namespaces of ours whose maker is dead: a run that was killed could not clean up."""
    for path in _NETNS.glob(f"{_PREFIX}*") if _NETNS.is_dir() else ():
        maker = re.match(rf"{_PREFIX}(\d+)x", path.name)
        if maker and not Path(f"/proc/{maker[1]}").exists():
            _remove(path.name)
