"""Finds the cgroup v2 of pods, as the kubelet names it; reads directory names only.

A pod's cgroup outlives the restarts of its containers, so a rule that matches it stays right. Hosts whose
kubelet uses cgroup v1 have none in the v2 tree: then nothing is found, and that is no error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_DEPTH = 6
"""Of a pod's cgroup below the root: kubelet in a container, root slice, class slice, pod."""
_PARENT = re.compile(r"kube|besteffort|burstable|guaranteed", re.IGNORECASE)
"""Names on the way to a pod; other services' trees are not walked."""
_POD = re.compile(r"(?:^|-)pod([0-9a-zA-Z_-]+?)(?:\.slice)?$")


def mount_point(proc_root: str) -> str | None:
    """Where the host mounts the v2 tree, by its process 1; None when it has none or that cannot be read."""
    try:
        lines = (Path(proc_root) / "1" / "mounts").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((words[1] for line in lines if (words := line.split())[2:3] == ["cgroup2"]), None)


def pod_paths(root: str, uids: Iterable[str]) -> dict[str, str]:
    """Uid -> path below `root` (without a leading slash) of those pods that have a cgroup there."""
    wanted = {uid.replace("_", "-"): uid for uid in uids}
    found: dict[str, str] = {}
    for path, name in _pods(root, "", MAX_DEPTH) if wanted else ():
        uid = wanted.get(name.replace("_", "-"))
        if uid is not None:
            found[uid] = path
    return found


def _pods(root: str, below: str, depth: int) -> Iterator[tuple[str, str]]:
    """(path, uid as it is written) of every pod's cgroup; a tree that changes meanwhile is no error."""
    try:
        with os.scandir(Path(root) / below) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in names:
        path = f"{below}/{name}" if below else name
        pod = _POD.search(name) if below else None
        if pod:
            yield path, pod[1]
        elif depth > 1 and _PARENT.search(name):
            yield from _pods(root, path, depth - 1)
