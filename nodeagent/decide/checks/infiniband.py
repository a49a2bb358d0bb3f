"""`ib.down` and `ib.flaps`: do the node's RDMA ports carry data, and do they keep their link?

A drop is a port that stays down; a flap one that comes back, and is known by the adapter's own count alone.
A port that was never up in this boot may have no cable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodeagent.decide import growth, own_links
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable, unknown
from nodeagent.model import Finding, NodeClass
from nodeagent.net_signals import IbPort
from nodeagent.signals import Reading, Unread

SETTLE_SECONDS = 300.0
COUNTER_END = 255
"""link_downed has 8 bits and stays there."""
UP = {"limit": "ACTIVE, LinkUp"}
REASONS = {
    "Polling": "it hears nothing from the other end",
    "Sleep": "it sleeps",
    "PortConfigurationTraining": "it trains",
    "LinkErrorRecovery": "it recovers from link errors",
    "Disabled": "it has no carrier",
    "LinkUp": "the link is there, and no subnet manager has made it active",
}


def judge_down(given: CheckInput) -> Iterator[Finding]:
    """Per port: not active, or without a link, is bad once it was up in this boot or is configured."""
    configured = tuple(given.limits["ports"])
    here = {key.target for key in given.snapshot.readings if key.signal == "ib.port"}
    for target, port, reading in given.values("ib.port"):
        yield _judge_down(given, target, port, reading)
    adapters = given.snapshot.readings.get(own_links.ADAPTERS)
    if adapters is None or isinstance(adapters.value, Unread):
        return
    for target in sorted(set(configured) - here):
        yield bad(target, adapters, f"{target} is configured and not here", value="no port", **UP)
    for target, link in sorted(given.memory.net.ports.items()):
        if target not in here and target not in configured and link.watched and link.had_carrier:
            yield _judge_gone(given, target, adapters)


def _judge_down(given: CheckInput, target: str, port: IbPort, reading: Reading) -> Finding:
    configured = tuple(given.limits["ports"])
    link = given.memory.net.ports.get(target)
    shown = {**UP, "value": f"{port.state}, {port.phys_state}"}
    if configured and target not in configured:
        return not_applicable(target, "not among the configured ports")
    if port.is_virtual_function and not configured:
        return not_applicable(target, "a virtual function: it belongs to a pod or a virtual machine")
    if port.link_layer == "Ethernet" and port.net_device:
        return not_applicable(target, f"Ethernet: {port.net_device} is judged by link.down")
    if port.is_up:
        return good(target, reading, **shown)
    if port.is_switched_off:
        return not_applicable(target, "switched off by an administrator")
    if target not in configured and not (link is not None and link.had_carrier):
        return not_applicable(target, "it was not up in this boot")
    reason = REASONS.get(port.phys_state, f"its state is {port.state}, {port.phys_state}")
    sentence = f"{target} is down {own_links.since_words(link)}: {reason}"
    return bad(target, reading, sentence, cause=port.phys_state, **shown)


def _judge_gone(given: CheckInput, target: str, reading: Reading) -> Finding:
    link = given.memory.net.ports[target]
    if own_links.is_off_the_bus(link, reading.value):
        sentence = f"{target} is gone: its adapter {link.pci_address} is no longer on the PCI bus"
        return bad(target, reading, sentence, value="no adapter", cause="adapter", **UP)
    return not_applicable(target, "no longer here: given to a pod, or without its driver")


def judge_flaps(given: CheckInput) -> Iterator[Finding]:
    """Per port: more links lost in the window than the limit is bad; number is losses."""
    limit, window_seconds = given.limits["losses_count"], given.limits["window_seconds"]
    window = growth.shown_window(window_seconds)
    for target, counters, reading in given.values("ib.counters"):
        losses = growth.within(
            given, growth.LINK_DOWNED, target, window_seconds, after_seconds=SETTLE_SECONDS
        )
        shown: dict[str, Any] = {"limit": f"{limit} losses in {window}", "value": "first sample"}
        if losses is not None:
            shown |= {"value": f"{losses} losses", "number": float(losses)}
        if losses is not None and losses > limit:
            yield bad(target, reading, f"{target} lost its link {losses} times in {window}", **shown)
        elif counters.link_downed_count >= COUNTER_END:
            sentence = f"link_downed is at its end of {COUNTER_END} and counts no more: clear it"
            yield unknown(target, reading, sentence, limit=shown["limit"])
        else:
            yield good(target, reading, **shown)


CHECKS = (
    Check(
        id="ib.down",
        title="InfiniBand ports up",
        family="node",
        signals=("ib.port",),
        source="state and phys_state of each port in /sys/class/infiniband",
        node_class=NodeClass.CHECK,
        judge=judge_down,
        limits=(
            Limit(name="ports", unit="DEVICE/PORT", default=(),
                  meaning="Only these ports are judged, and must be up, such as mlx5_0/1; empty: every port "
                          "that was up in this boot."),
        ),
        # A subnet manager takes up to a minute to make a port active that came back.
        hold=HoldRule(bad_polls=4, of_polls=4),
        common_cause="links",
        boot_grace_seconds=SETTLE_SECONDS,
    ),
    Check(
        id="ib.flaps",
        title="InfiniBand ports steady",
        family="node",
        signals=("ib.counters",),
        source="growth of link_downed of each port in /sys/class/infiniband",
        node_class=NodeClass.CHECK,
        judge=judge_flaps,
        limits=(
            Limit(name="losses_count", unit="losses", default=3,
                  meaning="Links lost in the window that are still tolerated."),
            Limit(name="window_seconds", unit="s", default=86_400.0,
                  meaning="Losses are added up over so long; at most a day."),
        ),
        hold=HoldRule(),
        depends_on=("ib.down",),
        common_cause="links",
        boot_grace_seconds=SETTLE_SECONDS,
    ),
)
