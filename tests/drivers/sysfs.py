"""A tree like /sys with network devices and RDMA ports, as text files and the links between them."""

from __future__ import annotations

from pathlib import Path

from nodeagent.wire import HostArguments

BROKEN = Path("/proc/self/mem")
"""Reading it from its beginning is an I/O error, as of a counter that the adapter does not answer for."""


class Sysfs:
    """One tree; every method adds or changes something."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("class/net", "class/infiniband", "bus/pci/devices"):
            (root / folder).mkdir(parents=True)

    @property
    def arguments(self) -> HostArguments:
        """Arguments of a read-all that look here."""
        return HostArguments(sys_root=str(self.root))

    def adapter(self, address: str, pci_class: str = "0x020000") -> Path:
        """A PCI device on the bus; its folder."""
        folder = self.root / "devices/pci0000:00" / address
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "class").write_text(f"{pci_class}\n")
        entry = self.root / "bus/pci/devices" / address
        if not entry.is_symlink():
            entry.symlink_to(f"../../../devices/pci0000:00/{address}")
        return folder

    def device(self, name: str, index: int, where: str = "virtual", **files: str | None) -> Path:
        """A network device below `where` in /sys/devices, up and with carrier; None: no such file."""
        folder = self.root / "devices" / where / "net" / name
        folder.mkdir(parents=True)
        (self.root / "class/net" / name).symlink_to(f"../../devices/{where}/net/{name}")
        if where != "virtual":
            (folder / "device").symlink_to("../..")
        known: dict[str, str | None] = {
            "ifindex": str(index), "flags": "0x1003", "carrier": "1", "carrier_changes": "2",
            "carrier_up_count": "1", "carrier_down_count": "1",
        }  # fmt: skip
        for file, text in (known | files).items():
            if text is not None:
                (folder / file).write_text(f"{text}\n")
        return folder

    def port(
        self, name: str, address: str, *, state: str = "4: ACTIVE", phys_state: str = "5: LinkUp",
        link_layer: str = "InfiniBand", link_downed: str | None = "0",
    ) -> Path:
        """Port 1 of an RDMA device on an adapter; its folder."""
        device = self.adapter(address, "0x020700") / "infiniband" / name
        folder = device / "ports/1"
        (folder / "counters").mkdir(parents=True)
        (device / "device").symlink_to("../..")
        (self.root / "class/infiniband" / name).symlink_to(
            f"../../devices/pci0000:00/{address}/infiniband/{name}"
        )
        texts = {"state": state, "phys_state": phys_state, "link_layer": link_layer}
        for file, text in texts.items():
            (folder / file).write_text(f"{text}\n")
        if link_downed is not None:
            (folder / "counters/link_downed").write_text(f"{link_downed}\n")
        return folder


def breaks(file: Path) -> None:
    """Every read of this file is an I/O error from now on."""
    file.unlink(missing_ok=True)
    file.symlink_to(BROKEN)


def answers(file: Path, text: str) -> None:
    """It is read as this text again."""
    file.unlink(missing_ok=True)
    file.write_text(f"{text}\n")
