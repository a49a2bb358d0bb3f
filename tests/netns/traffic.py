"""Traffic of tests: what a pod sends and gets over TCP and UDP, and what its own kernel counted of it.

As a program it is the server: `python -m tests.netns.traffic PORT` takes and gives what is asked.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time

from tests.agent import ROOT
from tests.netns.world import INTERNET, World

PORT = 7000
COLUMNS = ("internet_out", "internet_in", "cluster_out", "cluster_in")
CHUNK_BYTES = 1 << 16

_COUNTERS = """
table inet seen {{
    counter internet_out {{ }}
    counter internet_in {{ }}
    counter cluster_out {{ }}
    counter cluster_in {{ }}
    chain out {{
        type filter hook output priority -500; policy accept;
        oif "lo" return
        ip daddr {four} counter name internet_out return
        ip6 daddr {six} counter name internet_out return
        counter name cluster_out
    }}
    chain in {{
        type filter hook prerouting priority -500; policy accept;
        iif "lo" return
        fib saddr type local return
        ip saddr {four} counter name internet_in return
        ip6 saddr {six} counter name internet_in return
        counter name cluster_in
    }}
}}
"""


def watch(world: World, namespace: str) -> None:
    """Count in the namespace's own kernel what leaves and arrives, internet and cluster apart."""
    text = _COUNTERS.format(four=INTERNET[4], six=INTERNET[6])
    world.command(namespace, "nft", "-f", "-", stdin=text)


def seen(world: World, namespace: str) -> dict[str, int]:
    """Bytes by column since `watch`."""
    text = world.command(namespace, "nft", "list", "counters")
    return {name: int(size) for name, size in re.findall(r"counter (\w+) \{\s*packets \d+ bytes (\d+)", text)}


def serve(world: World, namespace: str, port: int = PORT) -> None:
    """Start the server in a namespace; the world ends it."""
    world.start(namespace, [sys.executable, "-m", "tests.netns.traffic", str(port)], cwd=ROOT)
    world.inside(namespace, await_server, port)


def await_server(port: int) -> None:
    """Return when the server takes connections."""
    end_seconds = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end_seconds:
                raise
            time.sleep(0.02)


def exchange(address: str, send_bytes: int, receive_bytes: int, port: int = PORT) -> None:
    """Send and receive over one TCP connection."""
    with socket.create_connection((address, port), 10) as connection:
        connection.sendall(f"{send_bytes} {receive_bytes}\n".encode().rjust(32))
        _send(connection, send_bytes)
        _receive(connection, receive_bytes)


def datagrams(address: str, count: int, size_bytes: int = 1000, port: int = 9, interface: str = "") -> None:
    """Send UDP that nobody answers."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if interface:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        for _ in range(count):
            sender.sendto(b"x" * size_bytes, (address, port))


def _send(connection: socket.socket, size_bytes: int) -> None:
    chunk = b"x" * CHUNK_BYTES
    while size_bytes > 0:
        connection.sendall(chunk[:size_bytes])
        size_bytes -= min(size_bytes, CHUNK_BYTES)


def _receive(connection: socket.socket, size_bytes: int) -> None:
    while size_bytes > 0:
        got = len(connection.recv(min(size_bytes, CHUNK_BYTES)))
        if got == 0:
            raise OSError("the peer closed early")
        size_bytes -= got


def _answer(connection: socket.socket) -> None:
    with connection:
        head = connection.recv(32, socket.MSG_WAITALL)
        if len(head) == 32:
            incoming, outgoing = map(int, head.split())
            _receive(connection, incoming)
            _send(connection, outgoing)


def _serve(port: int) -> None:
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        while True:
            threading.Thread(target=_answer, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
