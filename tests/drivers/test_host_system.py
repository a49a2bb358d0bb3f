"""Small reads of the host: each from the place it is said to come from, and absent where there is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.drivers.host.system import clock_sync, kernel_driver, kubelet_health, pci_gpus
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.signals import KubeletHealth
from nodeagent.wire import HostArguments

# what /proc/driver/nvidia/version says, and the version in it
VERSIONS = [
    ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n",
     "535.104.05"),
    ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\nGCC version: 12.2\n",
     "550.54.15"),
    ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build", "580.95.05"),
    ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57\n", "470.57"),
    ("GCC version:  gcc version 12.2.0\n", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "version"), VERSIONS)
def test_the_kernel_driver_tells_its_version(tmp_path: Path, text: str, version: str | None) -> None:
    """Both flavours of the module are understood; anything else is invalid."""
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    (tmp_path / "driver/nvidia/version").write_text(text)
    arguments = HostArguments(proc_root=str(tmp_path))
    if version is not None:
        assert kernel_driver(arguments).version == version
        return
    with pytest.raises(DriverError) as failed:
        kernel_driver(arguments)
    assert failed.value.kind is ErrorKind.INVALID


def test_no_kernel_driver_is_absent(tmp_path: Path) -> None:
    """Without the file no NVIDIA module is loaded."""
    with pytest.raises(DriverError) as failed:
        kernel_driver(HostArguments(proc_root=str(tmp_path)))
    assert failed.value.kind is ErrorKind.ABSENT


# vendor, class, is it a GPU?
DEVICES = [
    ("0x10de", "0x030200", True), ("0x10de", "0x030000", True), ("0x10de", "0x068000", False),
    ("0x10de", "0x040300", False), ("0x1002", "0x030000", False), ("0x8086", "0x020000", False),
]


def test_the_pci_bus_shows_nvidia_display_controllers_only(tmp_path: Path) -> None:
    """3D and VGA controllers count, NVSwitches, audio functions and other vendors do not."""
    expected = []
    for number, (vendor, pci_class, is_gpu) in enumerate(DEVICES):
        address = f"0000:4{number}:00.0"
        device = tmp_path / "bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(pci_class + "\n")
        expected += [address] if is_gpu else []
    (tmp_path / "bus/pci/devices/0000:50:00.0").mkdir()  # vanished before it was read
    assert pci_gpus(HostArguments(sys_root=str(tmp_path))).addresses == tuple(expected)


@pytest.mark.parametrize(
    ("link", "target", "counted"),
    [
        ("driver", "../../drivers/nvidia", True),
        ("driver", "../../drivers/vfio-pci", False),
        ("driver", "../../drivers/nvgrace_gpu_vfio_pci", False),
        ("driver", "../../drivers/pci-stub", False),
        ("physfn", "../0000:4e:00.0", False),
        ("virtfn0", "../0000:4e:00.4", True),
    ],
)
def test_a_gpu_that_was_given_to_a_virtual_machine_is_not_missed(
    tmp_path: Path, link: str, target: str, counted: bool
) -> None:
    """What the NVIDIA driver will never enumerate must not be expected of it; a free one is."""
    device = tmp_path / "bus/pci/devices/0000:4e:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    (device / link).symlink_to(target)

    found = pci_gpus(HostArguments(sys_root=str(tmp_path))).addresses
    assert found == (("0000:4e:00.0",) if counted else ())


def test_no_pci_bus_is_absent(tmp_path: Path) -> None:
    """A machine without PCI has no such signal, rather than no GPUs."""
    with pytest.raises(DriverError) as failed:
        pci_gpus(HostArguments(sys_root=str(tmp_path)))
    assert failed.value.kind is ErrorKind.ABSENT


def test_the_kernel_says_how_well_its_clock_is_disciplined() -> None:
    """adjtimex answers anybody: errors in seconds, and an unsynchronised clock has a large maximum error."""
    read = clock_sync(HostArguments())
    assert 0 <= read.estimated_error_seconds < 3600
    assert 0 <= read.max_error_seconds < 3600
    assert read.synchronized or read.max_error_seconds > 0


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """A server on loopback that answers one request with these bytes; None: it never answers."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                if answer is None:
                    done.wait(30)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            done.set()
            thread.join()


def http(status: str, body: str) -> bytes:
    """A whole HTTP answer."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


# what listens on the port answers, and what comes of it
ANSWERS: list[tuple[str, bytes | None, KubeletHealth]] = [
    ("healthy", http("200 OK", "ok"), KubeletHealth(healthy=True, detail="HTTP 200 ok")),
    ("failing", http("500 Internal Server Error", "[-]syncloop failed\nhealthz check failed"),
     KubeletHealth(healthy=False, detail="HTTP 500 [-]syncloop failed healthz check failed")),
    ("long", http("500 X", "x" * 100_000), KubeletHealth(healthy=False, detail="HTTP 500 " + "x" * 200)),
    ("silent", None, KubeletHealth(healthy=False, detail="no answer in 0.5 s")),
]


@pytest.mark.parametrize(("answer", "expected"), [row[1:] for row in ANSWERS], ids=[r[0] for r in ANSWERS])
def test_the_kubelet_answers_for_itself(answer: bytes | None, expected: KubeletHealth) -> None:
    """200 is healthy; another status, with its words, or silence is not."""
    with answering(answer) as port:
        assert kubelet_health(HostArguments(kubelet_port=port, kubelet_deadline_seconds=0.5)) == expected


NO_HTTP = [b"SSH-2.0-OpenSSH_9.2\r\n", b"", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 9999]


@pytest.mark.parametrize("answer", NO_HTTP, ids=["ssh", "closed", "endless headers"])
def test_an_answer_that_is_no_http_is_not_healthy(answer: bytes) -> None:
    """Another service on the port, a closed connection or endless headers are not a healthy kubelet."""
    with answering(answer) as port:
        read = kubelet_health(HostArguments(kubelet_port=port, kubelet_deadline_seconds=0.5))
    assert not read.healthy
    assert read.detail


@pytest.mark.parametrize("file", [None, "var/lib/kubelet/config.yaml", "etc/kubernetes/kubelet.conf"])
def test_a_refused_connection_is_judged_by_the_kubelets_files(tmp_path: Path, file: str | None) -> None:
    """With a kubelet's files it is down, without them this node has none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    if file:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
        read = kubelet_health(HostArguments(host_root=str(tmp_path), kubelet_port=port))
        assert read == KubeletHealth(healthy=False, detail="connection refused")
        return
    with pytest.raises(DriverError) as failed:
        kubelet_health(HostArguments(host_root=str(tmp_path), kubelet_port=port))
    assert failed.value.kind is ErrorKind.ABSENT
