"""Disks come from mountinfo: local ones once each, what can hang never by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.drivers.host import disks
from nodeagent.drivers.host.disks import local_disks, mount_of, parse_mountinfo, shown

ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard"

# name, mountinfo lines, the mount points that are measured
MOUNTS: list[tuple[str, list[str], list[str]]] = [
    ("root alone", [ROOT], ["/"]),
    ("a data disk", [ROOT, "30 27 259:1 / /data rw shared:2 - xfs /dev/nvme0n1 rw"], ["/", "/data"]),
    ("bind mounts fold to the shortest", [
        "31 27 254:0 /var/lib/kubelet/pods/1 /var/lib/kubelet/pods/1 rw - ext4 /dev/vda rw", ROOT,
        "32 27 254:0 /etc/hosts /run/x/hosts rw - ext4 /dev/vda rw",
    ], ["/"]),
    ("equal lengths fold to the first by name", [
        "31 27 8:1 / /bb rw - ext4 /dev/sda1 rw", "32 27 8:1 / /aa rw - ext4 /dev/sda1 rw",
    ], ["/aa"]),
    ("kernel file systems have no disk", [
        ROOT, "22 27 0:21 / /proc rw - proc proc rw", "23 27 0:22 / /sys rw - sysfs sysfs rw",
        "24 27 0:6 / /dev rw - devtmpfs devtmpfs rw", "25 27 0:30 / /tmp rw - tmpfs tmpfs rw",
        "26 27 0:31 / /m rw - overlay overlay rw,lowerdir=/a", "28 27 0:40 / /auto rw - autofs systemd-1 rw",
    ], ["/"]),
    ("network file systems are not touched", [
        ROOT, "40 27 0:50 / /a rw - nfs4 srv:/x rw", "41 27 0:51 / /b rw - nfs srv:/x rw",
        "42 27 0:52 / /c rw - cifs //srv/x rw", "43 27 0:53 / /d rw - ceph mon:/ rw",
        "44 27 0:54 / /e rw - lustre mgs@tcp:/fs rw", "45 27 0:55 / /f rw - 9p host rw",
        "46 27 0:56 / /g rw - virtiofs tag rw",
    ], ["/"]),
    ("cluster file systems on a shared disk are not touched", [
        ROOT, "40 27 8:16 / /a rw - gfs2 /dev/sdb rw", "41 27 8:32 / /b rw - ocfs2 /dev/sdc rw",
    ], ["/"]),
    ("FUSE is not touched, on a block device neither", [
        ROOT, "40 27 0:60 / /a rw - fuse.sshfs u@h:/ rw", "41 27 0:61 / /b rw - fuse nobody rw",
        "42 27 8:17 / /c rw - fuseblk /dev/sdb1 rw",
    ], ["/"]),
    ("a disk reached through a network mount is not touched", [
        ROOT, "40 27 0:50 / /a rw - nfs4 srv:/x rw", "41 40 8:1 / /a/disk rw - ext4 /dev/sda1 rw",
    ], ["/"]),
    ("a disk reached in two ways takes the safe one", [
        "40 27 0:50 / /a rw - nfs4 srv:/x rw", "41 40 8:1 / /a/d rw - ext4 /dev/sda1 rw",
        "42 27 8:1 / /mnt/long/way rw - ext4 /dev/sda1 rw",
    ], ["/mnt/long/way"]),
    ("a mount over a mount hides it", [
        "40 27 8:1 / /data rw - ext4 /dev/sda1 rw", "41 40 0:50 / /data rw - tmpfs tmpfs rw",
    ], []),
    ("images are full by design", [
        ROOT, "40 27 7:1 / /snap/core ro - squashfs /dev/loop1 ro",
        "41 27 11:0 / /cd ro - iso9660 /dev/sr0 ro",
    ], ["/"]),
    ("file systems over many disks have no device number of a disk", [
        "40 27 0:70 /@ / rw - btrfs /dev/sda1 rw", "41 27 0:70 /@home /home rw - btrfs /dev/sda1 rw",
        "42 27 0:71 / /pool rw - zfs pool rw",
    ], ["/", "/pool"]),
    ("escapes are resolved", [r"40 27 8:1 / /my\040disk\134x\011 rw - ext4 /dev/sda1 rw"], ["/my disk\\x\t"]),
    ("odd lines are left out", [
        ROOT, "", "nonsense", "40 27 8:1 / /a rw", "40 27 8:x / /a rw - ext4 /dev/sda1 rw",
        "40 27 8:1 / /a rw - ext4", "40 27 99999999999:1 / /a rw - ext4 /dev/sda1 rw",
    ], ["/"]),
]


@pytest.mark.parametrize(("lines", "expected"), [row[1:] for row in MOUNTS], ids=[row[0] for row in MOUNTS])
def test_local_disks_are_found_once_each(lines: list[str], expected: list[str]) -> None:
    """The mounts measured are exactly those."""
    mounts = parse_mountinfo("\n".join(lines).encode())
    assert [shown(mount.mount_point) for mount in local_disks(mounts)] == expected


# mount options, super block options, read only?
FLAGS = [("rw", "rw", False), ("ro,noatime", "rw", True), ("rw", "ro,errors=remount-ro", True),
         ("rw,relatime", "rw,errors=remount-ro", False)]


@pytest.mark.parametrize(("mount", "super_block", "read_only"), FLAGS)
def test_read_only_is_the_mounts_or_the_file_systems(mount: str, super_block: str, read_only: bool) -> None:
    """A file system that the kernel remounted after an error shows it in the super block's options."""
    (found,) = parse_mountinfo(f"27 1 8:1 / / {mount} - ext4 /dev/sda1 {super_block}".encode())
    assert found.read_only is read_only


def test_a_path_is_on_the_mount_with_the_longest_prefix_of_whole_names() -> None:
    """/database is not on /data, and the later of two mounts at one place counts."""
    lines = [ROOT, "30 27 8:1 / /data rw - xfs /dev/a rw", "31 27 8:2 / /data rw - xfs /dev/b rw"]
    mounts = parse_mountinfo("\n".join(lines).encode())
    found = {path: mount_of(path, mounts) for path in (b"/data/x", b"/data", b"/database", b"/")}
    assert [mount.device if mount else None for mount in found.values()] == [
        "/dev/b", "/dev/b", "/dev/vda", "/dev/vda"
    ]


@given(st.binary())
def test_no_mountinfo_crashes_the_parser(text: bytes) -> None:
    """Any bytes give a list of mounts, whose names every encoding can carry."""
    for mount in parse_mountinfo(text + b"\n40 27 8:1 / /\xff\\377 rw - ext4 /dev/a rw"):
        assert shown(mount.mount_point).encode()


def test_the_kernels_own_mountinfo_is_understood() -> None:
    """Every line of this machine's mountinfo gives a mount, and the root is among them."""
    text = Path("/proc/self/mountinfo").read_bytes()
    mounts = parse_mountinfo(text)
    assert len(mounts) == len(text.splitlines())
    assert b"/" in {mount.mount_point for mount in mounts}


def test_another_file_system_at_the_place_is_noticed(tmp_path: Path) -> None:
    """A mount point that the agent's namespace does not show is not measured under its name."""
    real = parse_mountinfo(b"40 27 %d:%d / / rw - ext4 /dev/a rw" % _device(tmp_path))[0]
    other = parse_mountinfo(b"40 27 8:199 / / rw - ext4 /dev/a rw")[0]
    assert disks._is_mount(os.fsencode(tmp_path), real)
    assert not disks._is_mount(os.fsencode(tmp_path), other)


def _device(path: Path) -> tuple[int, int]:
    number = path.stat().st_dev
    return os.major(number), os.minor(number)
