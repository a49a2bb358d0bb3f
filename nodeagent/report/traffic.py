"""Makes the reports of `nodeagent net top`, `show` and `diff` out of one cycle's input.

Pure, like all makers of reports. A number that is not known stays null; the plan shown by `diff` is made
by the same planner that the daemon uses, so that what is shown is what would be written.
"""

from __future__ import annotations

from collections import Counter as Tallied
from collections.abc import Iterable

from nodeagent.decide import network, pod_traffic
from nodeagent.decide.mark_claims import uid_of
from nodeagent.decide.marks import MarkOptions
from nodeagent.report import net_shape
from nodeagent.report.given import ReportInput, rfc3339
from nodeagent.report.net_diff import diff_ops
from nodeagent.report.net_schema import (
    AddressStatus,
    NamespaceTraffic,
    NetDiffReport,
    NetShowReport,
    NetTopReport,
    PodTraffic,
    TrafficBytes,
)
from nodeagent.report.net_status import network_status, value
from nodeagent.traffic import Counter, LinkState, MarkReading, Pod, PodEntry, PodList, class_id
from nodeagent.traffic_memory import Claim, PodCount, Tally

UNREACHABLE = 69
HOST_NETWORK = "hostNetwork: its packets bear the node's address, so they have no class of their own"


def build_top(given: ReportInput) -> NetTopReport:
    """Every pod that is marked or counted, its namespace and the node."""
    traffic, links = given.memory.traffic, value(given, "net.links", LinkState)
    node = pod_traffic.node_traffic(traffic)
    counting = traffic.marks_read_seconds is not None
    pods = _pods(given, links)
    living = Tallied(pod.namespace for pod in pods)
    host = TrafficBytes(
        internet_out_bytes=node.host_internet_out_bytes, internet_in_bytes=node.host_internet_in_bytes
    )
    return NetTopReport(
        node=given.snapshot.node_name, version=given.version,
        generated_at=rfc3339(given.moment.at.wall_seconds), network=network_status(given),
        marks_read_seconds=traffic.marks_read_seconds, links_read_seconds=traffic.links_read_seconds,
        pods=pods,
        namespaces=[
            NamespaceTraffic(namespace=name, pods=living[name], traffic=_bytes(tally))
            for name, tally in sorted(traffic.namespaces.items())
        ],
        node_total=_bytes(node.total) if counting else TrafficBytes(),
        host=host if counting else TrafficBytes(),
        uplinks=list(given.memory.marks.uplinks),
        budget=net_shape.budget(given), unknown_senders=net_shape.unknown_senders(given),
    )


def _pods(given: ReportInput, links: LinkState | None) -> list[PodTraffic]:
    """Pods with a claim on an address, and hostNetwork pods, by namespace and name."""
    memory = given.memory.marks
    addresses: dict[str, list[str]] = {}
    for address, claim in memory.claims.items():
        addresses.setdefault(claim.uid, []).append(address)
    claims = {claim.uid: claim for claim in memory.claims.values()}
    found = [
        _pod(given, claim, addresses.get(uid, []), links, host_network=uid in memory.host_pods)
        for uid, claim in {**claims, **memory.host_pods}.items()
    ]
    return sorted(found, key=lambda pod: (pod.namespace, pod.name, pod.uid))


def _pod(
    given: ReportInput, claim: Claim, addresses: list[str], links: LinkState | None, *, host_network: bool
) -> PodTraffic:
    veths = _veths(links, addresses)
    return PodTraffic(
        uid=claim.uid, namespace=claim.namespace, name=claim.name, host_network=host_network,
        addresses=sorted(addresses), veth=next(iter(veths.values()), None),
        class_id=class_id(claim.minor) if claim.minor else None,
        traffic=_counted(given.memory.traffic.pods.get(claim.uid)), shape=net_shape.pod(given, claim.uid),
    )


def _veths(links: LinkState | None, addresses: Iterable[str]) -> dict[str, str]:
    wanted = set(addresses)
    found = links.pod_links if links is not None else ()
    return {link.address: link.name for link in found if link.address in wanted}


def _counted(count: PodCount | None) -> TrafficBytes:
    return TrafficBytes() if count is None else _bytes(count.tally)


def _bytes(tally: Tally) -> TrafficBytes:
    return TrafficBytes(
        internet_out_bytes=tally.internet_out_bytes, internet_in_bytes=tally.internet_in_bytes,
        cluster_out_bytes=tally.cluster_out_bytes, cluster_in_bytes=tally.cluster_in_bytes,
    )


# --------------------------------------------------------------------------- one pod


def find_pod(given: ReportInput, name: str) -> str | None:
    """Uid of the pod that a person means by `namespace/name` or by uid; a living one before one gone."""
    memory, pods = given.memory, value(given, "pods", PodList)
    listed = [(pod.uid, f"{pod.namespace}/{pod.name}", not pod.finished) for pod in pods.pods] if pods else []
    claims = memory.marks.holders
    known = [(claim.uid, f"{claim.namespace}/{claim.name}", True) for claim in claims]
    for counts, alive in ((memory.traffic.pods, True), (memory.traffic.retired, False)):
        known += [(uid, f"{count.namespace}/{count.name}", alive) for uid, count in counts.items()]
    matching = [(alive, uid) for uid, full, alive in (*listed, *known) if name in (uid, full)]
    living = [uid for alive, uid in matching if alive]
    return living[0] if living else next((uid for _, uid in reversed(matching)), None)


def build_show(given: ReportInput, uid: str) -> NetShowReport:
    """Everything known of one pod; `uid` is one that `find_pod` gave."""
    pods, memory = value(given, "pods", PodList), given.memory
    pod = next((pod for pod in pods.pods if pod.uid == uid), None) if pods is not None else None
    count = memory.traffic.pods.get(uid) or memory.traffic.retired.get(uid)
    claims = {address: claim for address, claim in memory.marks.claims.items() if claim.uid == uid}
    claim = next(iter(claims.values()), memory.marks.host_pods.get(uid))
    named = pod or claim or count
    addresses = sorted({*claims, *(pod.addresses if pod is not None and not pod.host_network else ())})
    return NetShowReport(
        node=given.snapshot.node_name, version=given.version,
        generated_at=rfc3339(given.moment.at.wall_seconds), uid=uid,
        namespace=named.namespace if named is not None else "", name=named.name if named is not None else "",
        phase=pod.phase.value if pod is not None else None,
        host_network=pod.host_network if pod is not None else uid in memory.marks.host_pods,
        wanted_class_id=class_id(claim.minor) if claim is not None and claims else None,
        addresses=_addresses(given, uid, addresses), traffic=_counted(count),
        notes=_notes(given, pod, uid, addresses), network=network_status(given),
        shape=net_shape.pod(given, uid),
    )


def _addresses(given: ReportInput, uid: str, addresses: list[str]) -> list[AddressStatus]:
    """What the kernel holds for each address, where the entry is this pod's."""
    reading = value(given, "net.marks", MarkReading)
    entries: dict[str, PodEntry] = {}
    for state in reading.states if reading is not None else ():
        entries |= {entry.address: entry for entry in state.pods if uid_of(entry.comment) == uid}
    veths = _veths(value(given, "net.links", LinkState), addresses)
    return [
        _address(address, entries.get(address), veths.get(address), reading) for address in addresses
    ]


def _address(
    address: str, entry: PodEntry | None, veth: str | None, reading: MarkReading | None
) -> AddressStatus:
    held = reading if entry is not None else None
    return AddressStatus(
        address=address, class_id=class_id(entry.minor) if entry is not None and entry.minor else None,
        mark=f"{entry.mark:#010x}" if entry is not None and entry.mark else None, veth=veth,
        internet_out_bytes=_counter(held.out.get(address)) if held is not None else None,
        internet_in_bytes=_counter(held.received.get(address)) if held is not None else None,
    )


def _counter(counter: Counter | None) -> int | None:
    return None if counter is None else counter.bytes


def _notes(given: ReportInput, pod: Pod | None, uid: str, addresses: list[str]) -> list[str]:
    memory = given.memory
    notes = [sentence for sentence in memory.marks.shared if sentence.split()[0] in addresses]
    if pod is None:
        notes.append("the pod is gone from the list; its sums are kept until this node boots")
        return notes
    notes += net_shape.notes(given, uid)
    if pod.host_network:
        if uid not in memory.shape.shares:
            notes.append(HOST_NETWORK)
        if uid not in memory.traffic.pods:
            notes.append("its bytes are part of the host's")
    elif pod.finished:
        notes.append(f"{pod.phase.value}: its address may be another pod's by now, so it has no entry")
    elif not pod.addresses:
        notes.append("it has no address yet")
    notes += [
        f"{one.address} is in no cluster prefix; is {one.prefix} missing in [network] extra_cluster_cidrs?"
        for one in memory.marks.uncovered if one.address in addresses
    ]  # fmt: skip
    return notes


# --------------------------------------------------------------------------- what is pending


def build_diff(given: ReportInput, options: MarkOptions) -> NetDiffReport:
    """What the next plan would write, repairs that wait included; nothing known is not nothing pending."""
    status, reading = network_status(given), value(given, "net.marks", MarkReading)
    pending = network.pending(options, given.snapshot, given.memory)
    known = status.mode == "off" or pending is not None
    ops = []
    if pending is not None and reading is not None and status.mode != "off":
        ops = diff_ops(pending, reading)
    return NetDiffReport(
        node=given.snapshot.node_name, version=given.version,
        generated_at=rfc3339(given.moment.at.wall_seconds), network=status, known=known, ops=ops,
        exit_code=int(bool(ops)) if known else UNREACHABLE,
    )
