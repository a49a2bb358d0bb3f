"""Ends of flows that only benchmarks need: datagrams far beyond 1 Gbit/s, and echoes timed one by one.

As a program it is one end: `udp ADDRESS PORT SECONDS BITS_PER_SECOND` prints the payload bytes sent and the
seconds it took, `ping ADDRESS SECONDS` prints the milliseconds of each echo as JSON, null for a lost one.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tests.agent import ROOT
from tests.netns.world import World

SEGMENT_BYTES = 1400
MOST_SEGMENTS = 44
SEND_PERIOD_SECONDS = 0.001
_UDP_SEGMENT = 103
"""One call sends many datagrams; not in the socket module."""
ECHO_PERIOD_SECONDS = 0.01
ECHO_WAIT_SECONDS = 1.0
_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_ECHO = struct.Struct("!BBHHH")


class Echoes(Struct, frozen=True, kw_only=True):
    """What one run of `ping` saw."""

    p50_milliseconds: float
    p99_milliseconds: float
    """Of those that came back."""
    lost_ratio: float


def start(world: World, namespace: str, *words: str) -> subprocess.Popen[Any]:
    """Begin one end in a namespace; it ends by itself, or with the world."""
    argv = [sys.executable, "-m", "tests.bench.shape_ends", *words]
    return world.start(namespace, argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def offered_bits_per_second(flow: subprocess.Popen[Any]) -> float:
    """Wait for `udp` to end; the payload that it offered."""
    size_bytes, took_seconds = flow.communicate(timeout=60)[0].split()
    return 8 * int(size_bytes) / float(took_seconds)


def echoes(flow: subprocess.Popen[Any]) -> Echoes:
    """Wait for `ping` to end. Raises RuntimeError when nearly nothing came back."""
    all_of_them = json.loads(flow.communicate(timeout=60)[0])
    back = sorted(one for one in all_of_them if one is not None)
    if len(back) < len(all_of_them) / 10:
        raise RuntimeError(f"of {len(all_of_them)} echoes {len(back)} came back")
    cuts = statistics.quantiles(back, n=100, method="inclusive")
    lost_ratio = 1 - len(back) / len(all_of_them)
    return Echoes(p50_milliseconds=cuts[49], p99_milliseconds=cuts[98], lost_ratio=lost_ratio)


# --------------------------------------------------------------------------- the ends


def _udp(address: str, port: int, seconds: float, bits_per_second: float) -> None:
    due_bytes = bits_per_second / 8 * SEND_PERIOD_SECONDS
    segments = max(1, min(MOST_SEGMENTS, int(due_bytes / SEGMENT_BYTES)))
    chunk, sent_bytes = bytes(segments * SEGMENT_BYTES), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, SEGMENT_BYTES)
        sender.connect((address, port))
        began_seconds = now_seconds = time.monotonic()
        while now_seconds < began_seconds + seconds:
            if 8 * sent_bytes <= bits_per_second * (now_seconds - began_seconds):
                with contextlib.suppress(ConnectionRefusedError):
                    sent_bytes += sender.send(chunk)
            else:
                time.sleep(SEND_PERIOD_SECONDS / 5)
            now_seconds = time.monotonic()
    sys.stdout.write(f"{sent_bytes} {now_seconds - began_seconds}\n")


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def _request(number: int) -> bytes:
    own = os.getpid() & 0xFFFF
    sum_ = _checksum(_ECHO.pack(_ECHO_REQUEST, 0, 0, own, number))
    return _ECHO.pack(_ECHO_REQUEST, 0, sum_, own, number)


def _ping(address: str, seconds: float) -> None:
    sent: list[float] = []
    back: dict[int, float] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as echo:
        echo.connect((address, 0))
        end_seconds = time.monotonic() + seconds
        while (now_seconds := time.monotonic()) < end_seconds + ECHO_WAIT_SECONDS:
            due_seconds = sent[-1] + ECHO_PERIOD_SECONDS if sent else now_seconds
            if now_seconds < end_seconds and now_seconds >= due_seconds:
                sent.append(time.monotonic())
                with contextlib.suppress(OSError):  # a full queue: the echo is lost
                    echo.send(_request(len(sent) - 1))
                continue
            wait_seconds = due_seconds - now_seconds if now_seconds < end_seconds else 0.05
            echo.settimeout(max(0.0005, wait_seconds))
            with contextlib.suppress(TimeoutError):
                answer = echo.recv(1500)
                kind, _, _, own, number = _ECHO.unpack_from(answer, 4 * (answer[0] & 0xF))
                if kind == _ECHO_REPLY and own == os.getpid() & 0xFFFF:
                    back[number] = 1000 * (time.monotonic() - sent[number])
    sys.stdout.write(json.dumps([back.get(number) for number in range(len(sent))]))


def main(words: Sequence[str]) -> None:
    """Run one end."""
    kind, *rest = words
    if kind == "udp":
        _udp(rest[0], int(rest[1]), float(rest[2]), float(rest[3]))
    else:
        _ping(rest[0], float(rest[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
