"""Flows that last: TCP as fast as it goes, UDP at a given rate with numbers, and a sink that keeps time.

As a program it is one end: `sink PORT FILE`, `tcp ADDRESS PORT SECONDS [SOURCE]`,
`udp ADDRESS PORT SECONDS RATE SIZE`.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.agent import ROOT
from tests.netns.world import World

PORT = 7100
CHUNK_BYTES = 1 << 18
SAMPLE_SECONDS = 0.02
SO_RCVBUFFORCE = 33
"""Beyond the limit of the host; not in the socket module."""
_NUMBER = struct.Struct("!Q")


class Sample(NamedTuple):
    """What a sink had received at one moment."""

    at_seconds: float
    """CLOCK_MONOTONIC, the same in all namespaces."""
    tcp_bytes: int
    udp_bytes: int
    udp_packets: int
    """Different numbers."""
    udp_highest: int
    """Highest number; -1: none yet."""

    @property
    def lost_packets(self) -> int:
        """Numbers below the highest that did not come."""
        return self.udp_highest + 1 - self.udp_packets


class Sink:
    """A receiver in one namespace; the world ends it."""

    def __init__(self, world: World, namespace: str, port: int = PORT) -> None:
        self.port = port
        self._path = world.folder / f"sink-{namespace}-{port}"
        argv = [sys.executable, "-m", "tests.netns.flows", "sink", str(port), str(self._path)]
        world.start(namespace, argv, cwd=ROOT)
        end_seconds = time.monotonic() + 10
        while not self._path.exists() or not self.samples():
            if time.monotonic() > end_seconds:
                raise RuntimeError(f"no sink in {namespace}")
            time.sleep(SAMPLE_SECONDS)

    def samples(self) -> list[Sample]:
        """All so far, oldest first."""
        whole = self._path.read_text().rpartition("\n")[0]
        return [Sample(float(at), *map(int, rest)) for at, *rest in map(str.split, whole.splitlines())]

    def latest(self) -> Sample:
        """The newest."""
        return self.samples()[-1]

    def bits_per_second(self, since_seconds: float, until_seconds: float, kind: str = "tcp_bytes") -> float:
        """Mean rate of payload between two moments."""
        held = [one for one in self.samples() if since_seconds <= one.at_seconds <= until_seconds]
        took_seconds = held[-1].at_seconds - held[0].at_seconds
        return 8 * (getattr(held[-1], kind) - getattr(held[0], kind)) / took_seconds


def start_tcp(
    world: World, namespace: str, address: str, seconds: float, *, source: str = "", port: int = PORT
) -> subprocess.Popen[Any]:
    """Begin a TCP flow that ends by itself, from one of the namespace's addresses."""
    return _start(world, namespace, "tcp", address, str(port), str(seconds), source)


def start_udp(
    world: World, namespace: str, address: str, seconds: float, bits_per_second: float, *,
    size_bytes: int = 1000, port: int = PORT,
) -> subprocess.Popen[Any]:
    """Begin numbered datagrams that end by themselves; the last line of its output is how many were sent."""
    words = ("udp", address, str(port), str(seconds), str(bits_per_second), str(size_bytes))
    return _start(world, namespace, *words, stdout=subprocess.PIPE, text=True)


def sent_packets(flow: subprocess.Popen[Any]) -> int:
    """Wait for a UDP flow to end; the datagrams that it sent."""
    return int(flow.communicate(timeout=120)[0].split()[-1])


def _start(world: World, namespace: str, *words: str, **options: Any) -> subprocess.Popen[Any]:
    return world.start(namespace, [sys.executable, "-m", "tests.netns.flows", *words], cwd=ROOT, **options)


# --------------------------------------------------------------------------- the ends


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _tcp(address: str, port: int, seconds: float, source: str) -> None:
    chunk, end_seconds = bytes(CHUNK_BYTES), time.monotonic() + seconds
    own = (source, 0) if source else None
    with contextlib.suppress(OSError), socket.create_connection((address, port), 10, own) as connection:
        connection.settimeout(1.0)
        while time.monotonic() < end_seconds:
            with contextlib.suppress(TimeoutError):
                connection.send(chunk)


def _udp(address: str, port: int, seconds: float, bits_per_second: float, size_bytes: int) -> None:
    gap_seconds, number = 8 * size_bytes / bits_per_second, 0
    with socket.socket(_family(address), socket.SOCK_DGRAM) as sender:
        began_seconds = time.monotonic()
        while (now_seconds := time.monotonic()) < began_seconds + seconds:
            due = int((now_seconds - began_seconds) / gap_seconds) + 1
            while number < due:
                with contextlib.suppress(ConnectionRefusedError):
                    sender.sendto(_NUMBER.pack(number).ljust(size_bytes, b"x"), (address, port))
                number += 1
            time.sleep(min(gap_seconds, 0.002))
    sys.stdout.write(f"{number}\n")


class _Receiving:
    """The sink's loop."""

    def __init__(self, port: int, path: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._buffer = bytearray(1 << 20)
        self._tcp_bytes = self._udp_bytes = 0
        self._numbers: set[int] = set()
        self._highest = -1
        self._path = Path(path)
        listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
        datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        datagrams.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)
        datagrams.bind(("::", port))
        for one, then in ((listener, self._accept), (datagrams, self._datagram)):
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ, then)

    def run(self) -> None:
        """For ever."""
        due_seconds = time.monotonic()
        with self._path.open("w", buffering=1) as file:
            while True:
                for key, _ in self._selector.select(SAMPLE_SECONDS):
                    key.data(key.fileobj)
                now_seconds = time.monotonic()
                if now_seconds >= due_seconds:
                    due_seconds = now_seconds + SAMPLE_SECONDS
                    numbers = f"{len(self._numbers)} {self._highest}"
                    file.write(f"{now_seconds} {self._tcp_bytes} {self._udp_bytes} {numbers}\n")

    def _accept(self, listener: socket.socket) -> None:
        connection = listener.accept()[0]
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, self._stream)

    def _stream(self, connection: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            got = 0
            with contextlib.suppress(ConnectionError):
                got = connection.recv_into(self._buffer)
            if got == 0:
                self._selector.unregister(connection)
                connection.close()
            self._tcp_bytes += got

    def _datagram(self, receiver: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                got = receiver.recv_into(self._buffer)
                self._udp_bytes += got
                number = _NUMBER.unpack_from(self._buffer)[0]
                self._numbers.add(number)
                self._highest = max(self._highest, number)


def main(words: Sequence[str]) -> None:
    """Run one end."""
    kind, *rest = words
    if kind == "sink":
        _Receiving(int(rest[0]), rest[1]).run()
    elif kind == "tcp":
        _tcp(rest[0], int(rest[1]), float(rest[2]), rest[3])
    else:
        _udp(rest[0], int(rest[1]), float(rest[2]), float(rest[3]), int(rest[4]))


if __name__ == "__main__":
    main(sys.argv[1:])
