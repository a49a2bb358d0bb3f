"""The kubelet's cgroups of pods: found by name under every layout, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.drivers.cgroups import mount_point, pod_paths

UID = "0b7c2f54-1111-4222-8333-444455556666"
STATIC = "9f86d081884c7d659a2feaa0c55ad015"
UNDERSCORED = UID.replace("-", "_")
LAYOUTS = {
    "systemd": f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice",
    "systemd guaranteed": f"kubepods.slice/kubepods-pod{UNDERSCORED}.slice",
    "cgroupfs": f"kubepods/besteffort/pod{UID}",
    "cgroupfs guaranteed": f"kubepods/pod{UID}",
    "in a container": f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
                      f"kubelet-kubepods-burstable-pod{UNDERSCORED}.slice",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pod_is_found_in_every_layout(tmp_path: Path, layout: str) -> None:
    """By its uid, however the cgroup driver writes it; the containers below do not matter."""
    (tmp_path / LAYOUTS[layout] / "cri-containerd-1.scope").mkdir(parents=True)
    assert pod_paths(str(tmp_path), [UID, "another"]) == {UID: LAYOUTS[layout]}


def test_a_static_pod_is_found(tmp_path: Path) -> None:
    """Its uid is a hash without dashes."""
    (tmp_path / "kubepods" / "burstable" / f"pod{STATIC}").mkdir(parents=True)
    assert pod_paths(str(tmp_path), [STATIC]) == {STATIC: f"kubepods/burstable/pod{STATIC}"}


def test_other_trees_are_not_walked(tmp_path: Path) -> None:
    """A directory of that name under another service, or a link, is no pod's."""
    (tmp_path / "system.slice" / f"pod{UID}").mkdir(parents=True)
    (tmp_path / "kubepods").symlink_to(tmp_path / "system.slice")
    assert pod_paths(str(tmp_path), [UID]) == {}


def test_no_tree_and_no_pods_are_no_error(tmp_path: Path) -> None:
    """A root that is not there has no pods."""
    assert pod_paths(str(tmp_path / "none"), [UID]) == {}
    assert pod_paths(str(tmp_path), []) == {}


def test_the_v2_tree_is_where_process_1_has_it(tmp_path: Path) -> None:
    """The first mount of type cgroup2; None without one, or without the file."""
    (tmp_path / "1").mkdir()
    assert mount_point(str(tmp_path)) is None
    mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"
    (tmp_path / "1" / "mounts").write_text(mounts)
    assert mount_point(str(tmp_path)) is None
    (tmp_path / "1" / "mounts").write_text(f"{mounts}cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n")
    assert mount_point(str(tmp_path)) == "/sys/fs/cgroup/unified"
