"""The effective configuration as frozen nouns; `config.py` fills them from files.

Each field is followed by its docstring with unit and default: `docs/config.md` is generated from
these. Limits, hold and class of a check live in `checks`, by check id, and hold only what the
operator changed; the check's own record has the defaults.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from nodeagent.model import NodeClass


class NodeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[node]`: who and where this node is."""

    name: str = ""
    """Name of the Node object. Empty: the environment's NODE_NAME, then the host name."""
    dry_run: bool = False
    """Observe and decide, write nothing outside the agent's own socket and state file."""
    host_root: str = "/"
    """Where the host's root file system is mounted; not "/" only inside a container."""
    proc_root: str = "/proc"
    """Where the host's /proc is mounted."""
    state_file: str = "/var/lib/nodeagent/memory.json"
    """What the agent remembers over a restart."""


class GpuSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[gpu]`: the GPU worker."""

    enabled: str = "auto"
    """auto: when the PCI bus or the driver shows an NVIDIA GPU. true, false: by order."""
    expected_count: int = 0
    """GPUs that must be there. 0: as many as were seen first after boot."""
    poll_seconds: float = 15.0
    """Seconds between two read-alls of NVML. Range 1 to 3600."""
    call_deadline_seconds: float = 10.0
    """Seconds after which a read-all without progress counts as a miss. Three misses, or
    `stuck_seconds`, make the worker stuck."""
    stuck_seconds: float = 30.0
    """Seconds one call may hang before the driver counts as stuck."""
    release_seconds: float = 900.0
    """Seconds NVML stays released by `nodeagent gpu release` without --for."""
    auto_release: bool = True
    """Release NVML when the verdict asks for reset, reboot or vendor and no compute process is
    left, so that the agent never stands in the way of the cure."""
    xid: dict[str, NodeClass] = {}
    """Section `[gpu.xid]`: class of an Xid number by the operator's word: "63" = "ignore"."""


class CheckSettings(Struct, frozen=True, kw_only=True):
    """Section `[checks."ID"]`: what the operator changed of one check; None = the check's default."""

    enabled: bool = True
    """false: the check is not run and not shown."""
    node_class: NodeClass | None = None
    """Key `class`: ignore, app, check, reset, reboot or vendor."""
    bad_polls: int | None = None
    """n of "n of m" bad polls to raise."""
    of_polls: int | None = None
    """m of "n of m"."""
    good_polls: int | None = None
    """Good polls in a row to clear."""
    minimum_seconds: float | None = None
    """Seconds a raised fault stands at least after its last bad poll."""
    limits: dict[str, Any] = {}
    """Limits by name, each named and typed in docs/checks.md."""


class ClusterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[cluster]`: the node's taint."""

    enabled: str = "auto"
    """auto, true or false."""
    taint_prefix: str = "nodeagent.io"
    """DNS domain before the slash of every taint, annotation and label of ours."""


class StatusSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[status]`: where the agent answers."""

    socket: str = "/run/nodeagent/status.sock"
    """Unix socket, mode 0660, group `nodeagent` where that group exists."""
    metrics_listen: str = "127.0.0.1:9469"
    """address:port that serves metrics, health and ready only. Empty: off."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    node: NodeSettings = NodeSettings()
    gpu: GpuSettings = GpuSettings()
    checks: dict[str, CheckSettings] = {}
    cluster: ClusterSettings = ClusterSettings()
    status: StatusSettings = StatusSettings()

    def check(self, check_id: str) -> CheckSettings:
        """What the operator changed of one check."""
        return self.checks.get(check_id, _UNCHANGED)


_UNCHANGED = CheckSettings()
