"""The eBPF program that tells our packets: it matches when skb->priority has our HTB major, and does no more.

Loaded by bpf(2) itself: five instructions need no toolchain. Not direct-action: the mirred action behind it
must redirect, because an ifb drops what the program would redirect. Needs CAP_BPF and CAP_NET_ADMIN.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

from nodeagent.errors import DriverError, ErrorKind, kind_of
from nodeagent.traffic import HTB_MAJOR

SYSCALLS = {"x86_64": 321, "aarch64": 280}
"""Number of bpf(2) by machine; both are little-endian, like the instructions below."""
TARGET, NAME = "eBPF matcher", b"nodeagent_prio"

_PROG_LOAD, _OBJ_GET_INFO_BY_FD, _SCHED_CLS = 5, 15, 3
_PRIORITY_AT = 32
"""Offset of `priority` in struct __sk_buff."""
_INFO_BYTES, _TAG = 40, slice(8, 16)
_LOAD_ATTRIBUTES = struct.Struct("=IIQQIIQII16s")
_INFO_ATTRIBUTES = struct.Struct("=IIQ")
_INSTRUCTION = struct.Struct("<BBhi")
_KINDS = {errno.ENOSYS: ErrorKind.ABSENT, errno.EINVAL: ErrorKind.INVALID, errno.EAGAIN: ErrorKind.BUSY}


def program() -> bytes:
    """The instructions: r1 is the packet, r0 the answer (-1: match, 0: none)."""
    return b"".join(
        _INSTRUCTION.pack(*one)
        for one in (
            (0x61, 0x12, _PRIORITY_AT, 0),  # r2 = r1->priority
            (0x77, 0x02, 0, 16),            # r2 >>= 16
            (0xB7, 0x00, 0, 0),             # r0 = 0
            (0x55, 0x02, 1, HTB_MAJOR),     # if r2 != major: leave out the next one
            (0xB4, 0x00, 0, -1),            # r0 = 0xffffffff
            (0x95, 0x00, 0, 0),             # return r0
        )
    )  # fmt: skip


class Matcher:
    """The program in the kernel; loaded on first use, unloaded by `close` unless a filter holds it."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._tag = ""

    def load(self) -> tuple[int, str]:
        """File descriptor and tag of the program.

        Raises DriverError: denied (no CAP_BPF), absent (no such system call or number), invalid (refused).
        """
        if self._descriptor < 0:
            descriptor = _load()
            try:
                self._tag = _tag(descriptor)
            except DriverError:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
        return self._descriptor, self._tag

    def close(self) -> None:
        """Let go of the program; filters keep theirs."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _load() -> int:
    instructions = ctypes.create_string_buffer(program())
    license_ = ctypes.create_string_buffer(b"Apache-2.0")
    attributes = _LOAD_ATTRIBUTES.pack(
        _SCHED_CLS, len(program()) // _INSTRUCTION.size, ctypes.addressof(instructions),
        ctypes.addressof(license_), 0, 0, 0, 0, 0, NAME,
    )  # fmt: skip
    return _bpf(_PROG_LOAD, attributes, "load")


def _tag(descriptor: int) -> str:
    info = ctypes.create_string_buffer(_INFO_BYTES)
    attributes = _INFO_ATTRIBUTES.pack(descriptor, _INFO_BYTES, ctypes.addressof(info))
    _bpf(_OBJ_GET_INFO_BY_FD, attributes, "read tag")
    return info.raw[_TAG].hex()


def _bpf(command: int, attributes: bytes, op: str) -> int:
    machine = platform.machine()
    number = SYSCALLS.get(machine)
    if number is None or sys.byteorder != "little":
        detail = f"the number of bpf(2) is known for {' and '.join(SYSCALLS)}, not for {machine}"
        raise DriverError(ErrorKind.ABSENT, TARGET, op, detail)
    given = ctypes.create_string_buffer(attributes, len(attributes))
    libc = ctypes.CDLL(None, use_errno=True)
    number_, command_, size_ = map(ctypes.c_long, (number, command, len(attributes)))
    answer = libc.syscall(number_, command_, given, size_)
    if answer < 0:
        error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        needs = "; it needs CAP_BPF and CAP_NET_ADMIN" if isinstance(error, PermissionError) else ""
        raise DriverError(kind_of(error, _KINDS), TARGET, op, f"bpf(2): {error.strerror}{needs}")
    return int(answer)
