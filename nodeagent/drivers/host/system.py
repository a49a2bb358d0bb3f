"""Small reads of the host: the PCI bus, the NVIDIA kernel driver, the clock's discipline, the kubelet.

Every read is bounded in size, the kubelet's also in time. Nothing is judged and nothing is written.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import time
from pathlib import Path

import h11

from nodeagent.errors import DriverError, ErrorKind, kind_of
from nodeagent.model import NODE
from nodeagent.signals import ClockSync, KernelDriver, KubeletHealth, PciGpus
from nodeagent.wire import HostArguments

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")
_STUB_DRIVERS = ("pci-stub", "pciback")
_FILE_LIMIT_BYTES = 65536
_DRIVER_VERSION = re.compile(r"\s(\d{3,4}(?:\.\d{1,4}){1,3})\s")
_KUBELET_FILES = ("var/lib/kubelet/config.yaml", "var/lib/kubelet/kubeconfig", "etc/kubernetes/kubelet.conf")
_ANSWER_LIMIT_BYTES = 4096

_TIME_ERROR = 5
_STA_UNSYNC = 0x0040

_KINDS = {
    errno.ENOTDIR: ErrorKind.ABSENT,
    errno.EOPNOTSUPP: ErrorKind.ABSENT,
    errno.EBUSY: ErrorKind.BUSY,
    errno.ESTALE: ErrorKind.LOST,
    errno.EIO: ErrorKind.LOST,
    errno.ENODEV: ErrorKind.LOST,
    errno.ENXIO: ErrorKind.LOST,
    errno.ENOTCONN: ErrorKind.LOST,
    errno.ECONNABORTED: ErrorKind.LOST,
    errno.ETIMEDOUT: ErrorKind.TIMEOUT,
}


def driver_error(error: OSError, target: str, op: str) -> DriverError:
    """The DriverError of a failed system call."""
    kind = kind_of(error, _KINDS)
    return DriverError(kind, target, op, error.strerror or str(error))


def read_bounded(path: Path, limit_bytes: int = _FILE_LIMIT_BYTES) -> bytes:
    """At most `limit_bytes` of a file. Raises DriverError."""
    try:
        with path.open("rb", buffering=0) as file:
            parts, size = [], 0
            while size < limit_bytes and (part := file.read(limit_bytes - size)):
                parts.append(part)
                size += len(part)
            return b"".join(parts)
    except OSError as error:
        raise driver_error(error, str(path), "read") from error


def pci_gpus(arguments: HostArguments) -> PciGpus:
    """NVIDIA display and 3D controllers in sysfs, which the kernel keeps without touching the device.

    Raises DriverError: absent without a PCI bus.
    """
    root = Path(arguments.sys_root, "bus/pci/devices")
    try:
        devices = sorted(root.iterdir())
    except OSError as error:
        raise driver_error(error, str(root), "list") from error
    return PciGpus(addresses=tuple(device.name.lower() for device in devices if _is_gpu(device)))


def _is_gpu(device: Path) -> bool:
    try:
        vendor = read_bounded(device / "vendor").decode("ascii", "replace").strip().lower()
        if vendor != _NVIDIA:
            return False
        pci_class = read_bounded(device / "class").decode("ascii", "replace").strip().lower()
    except DriverError:
        return False  # the device vanished between listing and reading
    return pci_class.startswith(_DISPLAY_CLASSES) and not _is_given_away(device)


def _is_given_away(device: Path) -> bool:
    """True for a slice of a GPU (SR-IOV) and for a device kept for a virtual machine: the NVIDIA driver
    enumerates neither."""
    try:
        driver = (device / "driver").readlink().name
    except OSError:
        driver = ""
    return os.path.lexists(device / "physfn") or "vfio" in driver or driver in _STUB_DRIVERS


def kernel_driver(arguments: HostArguments) -> KernelDriver:
    """Version of the loaded NVIDIA module. Raises DriverError: absent when none is loaded."""
    path = Path(arguments.proc_root, "driver/nvidia/version")
    text = read_bounded(path).decode("utf-8", "replace")
    line = next((line for line in text.splitlines() if line.startswith("NVRM version")), "")
    found = _DRIVER_VERSION.search(line + " ")
    if found is None:
        raise DriverError(ErrorKind.INVALID, str(path), "read", f"no version in {line[:120]!r}")
    return KernelDriver(version=found[1])


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock_sync(_arguments: HostArguments) -> ClockSync:
    """The kernel's own opinion of its wall clock, by adjtimex without changing it. Raises DriverError."""
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        number = ctypes.get_errno()
        raise driver_error(OSError(number, os.strerror(number)), NODE, "adjtimex")
    return ClockSync(
        synchronized=state != _TIME_ERROR and not timex.status & _STA_UNSYNC,
        estimated_error_seconds=timex.esterror / 1e6,
        max_error_seconds=timex.maxerror / 1e6,
    )


def kubelet_health(arguments: HostArguments) -> KubeletHealth:
    """GET /healthz on loopback. No answer from an installed kubelet is an answer: not healthy.

    Raises DriverError: absent when nothing listens and no kubelet is installed here.
    """
    address = ("127.0.0.1", arguments.kubelet_port)
    until_seconds = time.monotonic() + arguments.kubelet_deadline_seconds
    try:
        with socket.create_connection(address, arguments.kubelet_deadline_seconds) as connection:
            status, body = _get(connection, until_seconds)
    except TimeoutError:
        detail = f"no answer in {arguments.kubelet_deadline_seconds:g} s"
        return KubeletHealth(healthy=False, detail=detail)
    except OSError as error:
        if isinstance(error, ConnectionRefusedError) and not kubelet_installed(arguments.host_root):
            detail = "nothing listens and no kubelet is installed"
            raise DriverError(ErrorKind.ABSENT, NODE, "kubelet healthz", detail) from error
        return KubeletHealth(healthy=False, detail=(error.strerror or str(error)).lower())
    except h11.RemoteProtocolError as error:
        return KubeletHealth(healthy=False, detail=f"the answer is no HTTP: {error}")
    text = " ".join(body.decode("utf-8", "replace").split())[:200]
    return KubeletHealth(healthy=status == 200, detail=f"HTTP {status} {text}".strip())


def kubelet_installed(host_root: str) -> bool:
    """True where a kubelet has left its configuration."""
    return any(os.path.lexists(Path(host_root, name)) for name in _KUBELET_FILES)


def _get(connection: socket.socket, until_seconds: float) -> tuple[int, bytes]:
    """Status and the beginning of the body. Raises OSError, TimeoutError, h11.RemoteProtocolError."""
    http = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=_ANSWER_LIMIT_BYTES)
    headers = [("Host", "127.0.0.1"), ("Connection", "close")]
    connection.sendall(http.send(h11.Request(method="GET", target="/healthz", headers=headers)) or b"")
    http.send(h11.EndOfMessage())
    status, body = 0, b""
    while len(body) < _ANSWER_LIMIT_BYTES:
        event = http.next_event()
        if event is h11.NEED_DATA:
            left_seconds = until_seconds - time.monotonic()
            if left_seconds <= 0:
                raise TimeoutError
            connection.settimeout(left_seconds)
            http.receive_data(connection.recv(_ANSWER_LIMIT_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            break
    return status, body
