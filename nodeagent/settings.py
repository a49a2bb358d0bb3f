"""The effective configuration as frozen nouns; `config.py` fills them from files.

Each field is followed by its docstring with unit and default: `docs/config.md` is generated from
these. Limits, hold and class of a check live in `checks`, by check id, and hold only what the
operator changed; the check's own record has the defaults. Ranges stand in the types; whoever builds
a section by hand is not checked.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from nodeagent.model import NodeClass

Switch = Literal["auto", "true", "false"]
_DNS_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_PATH = r"^/[^\x00]*\Z"
AbsolutePath = Annotated[str, Meta(pattern=_PATH, description="an absolute path")]
SocketPath = Annotated[
    str, Meta(pattern=_PATH, description="an absolute path of at most 107 bytes, the kernel's limit")
]
DomainName = Annotated[
    str,
    Meta(
        pattern=rf"^{_DNS_NAME}\Z", max_length=253, description="a lower-case DNS name like nodeagent.io"
    ),
]
NodeName = Annotated[
    str,
    Meta(
        pattern=rf"^({_DNS_NAME})?\Z",
        max_length=253,
        description='the lower-case DNS name of the Node object, or "" to find it',
    ),
]
ListenAddress = Annotated[str, Meta(description='address:port like "127.0.0.1:9469", or "" for off')]
OptionalPath = Annotated[str, Meta(pattern=r"^(/[^\x00]*)?\Z", description='an absolute path, or ""')]
KubeletUrl = Annotated[
    str,
    Meta(
        pattern=r"^(https://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?)?\Z",
        description='https://HOST:PORT like "https://127.0.0.1:10250", or ""',
    ),
]
DeviceNames = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[^\s/]{1,15}\Z")], ...],
    Meta(min_length=1, description='a list of device names, or ["auto"]'),
]
Prefixes = Annotated[
    tuple[str, ...], Meta(description='a list of prefixes like ["10.0.0.0/8", "fd00::/8"]')
]
Quantity = Annotated[
    str,
    Meta(
        pattern=r"^([0-9]+(\.[0-9]+)?([kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?)?\Z",
        max_length=32,
        description='a Kubernetes Quantity in bits/s like "10G" or "500M", 1k to 1P, or ""',
    ),
]
PollSeconds = Annotated[float, Meta(ge=1, le=3600)]
WaitSeconds = Annotated[float, Meta(ge=1, le=86400)]
PollCount = Annotated[int, Meta(ge=1, le=100)]
StandSeconds = Annotated[float, Meta(ge=0, le=604800)]


class NodeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[node]`: who and where this node is."""

    name: NodeName = ""
    """Name of the Node object. Empty: the environment's NODE_NAME, then the host name."""
    dry_run: bool = False
    """Observe and decide, write nothing outside the agent's own socket and state file."""
    host_root: AbsolutePath = "/"
    """Where the host's root file system is mounted; not "/" only inside a container."""
    proc_root: AbsolutePath = "/proc"
    """Where the host's /proc is mounted."""
    kernel_log: AbsolutePath = "/dev/kmsg"
    """The kernel log's device."""
    state_file: AbsolutePath = "/var/lib/nodeagent/memory.json"
    """What the agent remembers over a restart."""


class GpuSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[gpu]`: the GPU worker."""

    enabled: Switch = "auto"
    """auto: when the PCI bus or the driver shows an NVIDIA GPU. true, false: by order."""
    expected_count: Annotated[int, Meta(ge=0, le=1024)] = 0
    """GPUs that must be there. 0: as many as were seen first after boot."""
    poll_seconds: PollSeconds = 15.0
    """Seconds between two read-alls of NVML."""
    call_deadline_seconds: PollSeconds = 10.0
    """Seconds after which a read-all without progress counts as a miss. Three misses, or
    `stuck_seconds`, make the worker stuck."""
    stuck_seconds: PollSeconds = 30.0
    """Seconds one call may hang before the driver counts as stuck."""
    release_seconds: WaitSeconds = 900.0
    """Seconds NVML stays released by `nodeagent gpu release` without --for."""
    auto_release: bool = True
    """Release NVML, for 10 minutes at a time, when the verdict asks for reset, reboot or vendor and no
    compute process is left, so that the agent never stands in the way of the cure."""
    xid: dict[str, NodeClass] = {}
    """Class of an Xid or SXid number by the operator's word, like "63" = "ignore"; it outranks the table."""


class PodSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[pods]`: where the agent learns which pods run on this node."""

    source: Literal["auto", "api", "kubelet", "file", "none"] = "auto"
    """api: a watch of this node's pods at the API server. auto: api where there are credentials (a pod's
    account, `cluster.kubeconfig`) and it does not refuse, else kubelet where the token file exists, else file
    where it exists, else none. Without pods the network part rests."""
    file: AbsolutePath = "/etc/nodeagent/pods.json"
    """A `v1.PodList` in JSON; replaced files and swapped symlinks are noticed at once."""
    kubelet_url: KubeletUrl = ""
    """The kubelet of this node. Empty: the node's name, port 10250."""
    kubelet_token_file: AbsolutePath = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    """Bearer token that may get nodes/pods; read again for every request."""
    kubelet_ca_file: OptionalPath = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    """CA in PEM that signed the kubelet's serving certificate. Empty: those of the system."""
    kubelet_insecure: bool = False
    """Trust any certificate of the kubelet (many kubelets sign their own): whoever can listen at that
    address gets the token."""


class NamespaceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[network.namespaces."NAME"]`: internet egress of each pod in one namespace."""

    limit: Quantity = ""
    """Limit of a pod there without an annotation of its own. Empty: `pod_limit`."""
    guarantee: Quantity = ""
    """Guarantee of a pod there without an annotation of its own; at most the limit. Empty: none."""


class NetworkSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[network]`: marks, counts and limits of pods' internet traffic."""

    enabled: bool = True
    """Mark and count. Only where pods are known, see `[pods]`."""
    uplinks: DeviceNames = ("auto",)
    """Devices that lead to the internet. "auto": each device with a default route; names beside it are added,
    names without it replace it."""
    iptables_path: OptionalPath = ""
    """An `iptables` whose backend is to be used. Empty: the backend that the kubelet uses."""
    extra_cluster_cidrs: Prefixes = ()
    """Prefixes that are cluster, not internet, beside the private ones and the node's own."""
    cluster_cidrs_file: OptionalPath = ""
    """A file with further such prefixes, one a line."""
    internet_budget: Quantity = ""
    """Internet egress that all pods of this node share. Empty: mark and count, do not shape."""
    pod_limit: Quantity = ""
    """Internet egress limit of a pod to which neither its annotation nor its namespace gives one. Empty: the
    budget."""
    adopt_egress_bandwidth: bool = False
    """Take `kubernetes.io/egress-bandwidth` as the limit of a pod without an annotation of ours. Where the
    network plugin enforces it too, for all traffic, the pod is shaped twice."""
    namespaces: dict[str, NamespaceSettings] = {}
    """What holds in one namespace instead of `pod_limit`."""
    mark_mask: Annotated[
        int, Meta(ge=0, le=0xFFFFFFFF, description="a mask of 32 bits like 0x0fff0000, or 0")
    ] = 0x0FFF0000
    """Bits of the packet mark that may carry a pod's value. 0, or bits that somebody else uses: classes
    without marks."""
    pod_metrics: bool = False
    """Metrics per pod, too; without it per namespace only, which does not grow with pods."""


class CheckSettings(Struct, frozen=True, kw_only=True):
    """Section `[checks."ID"]`: what the operator changed of one check; None = the check's default."""

    enabled: bool = True
    """false: the check is not run and not shown."""
    node_class: NodeClass | None = None
    """Key `class`: what a raised fault asks of the node."""
    bad_polls: PollCount | None = None
    """n of "n of m" bad polls to raise."""
    of_polls: PollCount | None = None
    """m of "n of m"."""
    good_polls: PollCount | None = None
    """Good polls in a row to clear."""
    minimum_seconds: StandSeconds | None = None
    """Seconds a raised fault stands at least after its last bad poll."""
    limits: dict[str, Any] = {}
    """Limits by name, each named and typed in docs/checks.md."""


class ClusterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[cluster]`: the node's taint."""

    enabled: Switch = "auto"
    """Whether the API server is spoken with: the own Node watched, its taints, ledger and conditions written.
    auto: where there are credentials, a pod's account or `kubeconfig`."""
    taint_prefix: DomainName = "nodeagent.io"
    """DNS domain before the slash of every taint, annotation and label of ours."""
    kubeconfig: OptionalPath = ""
    """Where the API server is and who we are there. Empty: the account of the agent's pod."""
    kill_switch_file: AbsolutePath = "/var/lib/nodeagent/stop-api-writes"
    """While this file exists nothing is written to the API server; no restart, no API needed."""


class StatusSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[status]`: where the agent answers."""

    socket: SocketPath = "/run/nodeagent/status.sock"
    """Unix socket, mode 0660, group `nodeagent` where that group exists."""
    metrics_listen: ListenAddress = "127.0.0.1:9469"
    """address:port that serves metrics, health and ready only. Empty: off."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    node: NodeSettings = NodeSettings()
    gpu: GpuSettings = GpuSettings()
    pods: PodSettings = PodSettings()
    network: NetworkSettings = NetworkSettings()
    checks: dict[str, CheckSettings] = {}
    cluster: ClusterSettings = ClusterSettings()
    status: StatusSettings = StatusSettings()

    def check(self, check_id: str) -> CheckSettings:
        """What the operator changed of one check."""
        return self.checks.get(check_id, _UNCHANGED)


_UNCHANGED = CheckSettings()
