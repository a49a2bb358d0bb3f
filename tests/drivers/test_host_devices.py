"""Network devices as sysfs shows them: which are read, and what their files say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nodeagent.drivers.host.devices import adapters, net_devices, pci_address
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.net_signals import NetDevice
from nodeagent.wire import HostArguments
from tests.drivers.sysfs import Sysfs, breaks

PCI = "0000:18:00.0"
ON_PCI = f"pci0000:00/{PCI}"

# resolved path below /sys, and the adapter in it
PATHS = [
    (f"../../devices/pci0000:00/0000:00:01.0/{PCI}/net/eth0", PCI),
    ("../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0", "0000:00:03.0"),
    ("../../devices/pci0000:00/0000:00:14.0/usb1/1-9/1-9:1.0/net/usb0", ""),
    ("../../devices/virtual/net/lo", ""),
    ("../../devices/LNXSYSTM:00/VMBUS:01/f8b3781a/net/eth0", ""),
    ("../../devices/pci10000:e0/10000:e0:02.0/net/eth0", "10000:e0:02.0"),
]


@pytest.mark.parametrize(("path", "address"), PATHS)
def test_the_adapter_is_found_in_the_path(path: str, address: str) -> None:
    """The nearest PCI device above the network device; nothing on USB, and nothing virtual."""
    assert pci_address(path) == address


def read(tree: Sysfs, *uplinks: str, configured: tuple[str, ...] = ()) -> dict[str, NetDevice]:
    """Devices by name."""
    arguments = msgspec.structs.replace(tree.arguments, net_devices=configured)
    return {device.name: device for device in net_devices(arguments, uplinks, lambda name: True)}


@pytest.fixture
def tree(tmp_path: Path) -> Sysfs:
    """An empty one."""
    return Sysfs(tmp_path)


def test_adapters_uplinks_and_named_devices_are_read_and_no_others(tree: Sysfs) -> None:
    """The veths of pods cost no more than their name."""
    tree.device("lo", 1)
    tree.device("eth0", 2, ON_PCI)
    tree.device("wan", 3)
    tree.device("named", 4)
    pod = tree.device("veth1", 5)
    breaks(pod / "ifindex")
    (tree.root / "class/net/bonding_masters").write_text("\n")

    found = read(tree, "wan", "lo", configured=("named",))

    assert set(found) == {"eth0", "wan", "named"}
    assert (found["eth0"].pci_address, found["eth0"].is_uplink, found["wan"].is_uplink) == (PCI, False, True)


# files of a device, and what is read of it
FILES: list[tuple[str, dict[str, str | None], dict[str, object]]] = [
    ("up", {}, {"is_up": True, "carrier": True, "up_count": 1, "down_count": 1, "carries": True}),
    ("lost", {"carrier": "0", "carrier_down_count": "4"}, {"carrier": False, "down_count": 4}),
    ("switched off", {"flags": "0x1002", "carrier": None}, {"is_up": False, "carrier": None, "detail": ""}),
    ("an old kernel", {"carrier_up_count": None, "carrier_down_count": None, "carrier_changes": "7"},
     {"up_count": None, "down_count": 3}),
    ("no counts at all", {"carrier_up_count": None, "carrier_down_count": None, "carrier_changes": None},
     {"up_count": None, "down_count": None}),
]  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_a_device_is_read_as_its_files_say(
    tree: Sysfs, files: dict[str, str | None], expected: dict[str, object]
) -> None:
    """What the kernel does not tell is None, never 0."""
    tree.device("eth0", 2, ON_PCI, **files)
    found = read(tree)["eth0"]

    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(("status", "mii_up"), [("up", True), ("down", False), ("going back", None)])
def test_a_slave_tells_what_its_bond_thinks_of_it(tree: Sysfs, status: str, mii_up: bool | None) -> None:
    """The MII status counts beside the carrier; on its way up or down it says nothing."""
    bond = tree.device("bond0", 9)
    slave = tree.device("eth0", 2, ON_PCI)
    (slave / "bonding_slave").mkdir()
    (slave / "bonding_slave/mii_status").write_text(f"{status}\n")
    (slave / "master").symlink_to(bond)
    found = read(tree)["eth0"]

    assert (found.bond, found.mii_up, found.carries) == ("bond0", mii_up, mii_up is not False)


def test_a_bridge_port_is_no_slave(tree: Sysfs) -> None:
    """Only a bond judges its slaves."""
    bridge = tree.device("br0", 9)
    (tree.device("eth0", 2, ON_PCI) / "master").symlink_to(bridge)

    assert read(tree)["eth0"].bond == ""


def test_a_virtual_function_is_known_as_one(tree: Sysfs) -> None:
    """Its device names the adapter that it is a slice of."""
    tree.device("eth0v0", 2, ON_PCI)
    (tree.adapter(PCI) / "physfn").symlink_to("../0000:18:00.1")

    assert read(tree)["eth0v0"].is_virtual_function


def test_a_carrier_that_cannot_be_read_is_said_and_costs_no_other_device(tree: Sysfs) -> None:
    """An I/O error of one device is that device's."""
    breaks(tree.device("eth0", 2, ON_PCI) / "carrier")
    tree.device("eth1", 3, "pci0000:00/0000:19:00.0")
    found = read(tree)

    assert (found["eth0"].carrier, found["eth1"].carrier) == (None, True)
    assert "input/output error" in found["eth0"].detail.lower()


def test_a_device_whose_read_hung_is_left_out_and_shown(tree: Sysfs) -> None:
    """The others are read; it is there, with the reason in place of its carrier."""
    tree.device("eth0", 2, ON_PCI)
    tree.device("eth1", 3, "pci0000:00/0000:19:00.0")
    found = {d.name: d for d in net_devices(tree.arguments, (), lambda name: name != "eth0")}

    assert (found["eth0"].carrier, found["eth0"].index, found["eth1"].carrier) == (None, 2, True)
    assert "did not return" in found["eth0"].detail


def test_the_bus_shows_network_controllers_only(tree: Sysfs) -> None:
    """Ethernet and InfiniBand count, a GPU does not; without a bus it is absent."""
    tree.adapter(PCI)
    tree.adapter("0000:9a:00.0", "0x020700")
    tree.adapter("0000:4e:00.0", "0x030200")

    assert adapters(tree.arguments).addresses == (PCI, "0000:9a:00.0")
    with pytest.raises(DriverError) as failed:
        adapters(HostArguments(sys_root=str(tree.root / "nowhere")))
    assert failed.value.kind is ErrorKind.ABSENT
