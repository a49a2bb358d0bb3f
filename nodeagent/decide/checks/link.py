"""`link.down` and `link.flaps`: does the node's own network have carrier, and does it keep it?

A device without a cable, one that was switched off and the slices of an adapter that belong to pods are no
faults; one that lost what it had in this boot is, and so is one whose adapter left the bus.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodeagent.decide import growth, own_links
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, not_applicable, unknown
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.net_signals import NetDevice
from nodeagent.signals import Reading

SETTLE_SECONDS = 300.0
"""Links train after boot: what happens in it counts neither as down nor as a loss."""
UP = {"limit": "carrier"}


def judge_down(given: CheckInput) -> Iterator[Finding]:
    """Per device: lost carrier, unused by its bond, or gone with its adapter is bad."""
    configured = tuple(given.limits["devices"])
    for _, devices, reading in given.values("link.devices"):
        here = {device.name for device in devices}
        yield from (_judge_down(given, device, reading) for device in devices)
        for name in sorted(set(configured) - here):
            yield bad(name, reading, f"{name} is configured and not here", value="no device", **UP)
        for name, link in sorted(given.memory.net.links.items()):
            if name not in here and name not in configured and link.watched and link.had_carrier:
                yield _judge_gone(given, name, reading)
        if not (devices or configured or given.memory.net.links):
            yield not_applicable(NODE, "no network adapter and no default route")


def _judge_down(given: CheckInput, device: NetDevice, reading: Reading) -> Finding:
    configured = tuple(given.limits["devices"])
    link = given.memory.net.links.get(device.name)
    if unjudged := _unjudged(configured, device, watched=link is not None and link.watched):
        return not_applicable(device.name, unjudged)
    name, shown = device.name, {**UP, "value": "carrier" if device.carrier else "no carrier"}
    if device.carrier is None:
        reason = device.detail or "the kernel does not tell"
        return unknown(name, reading, f"not read: {reason}", **UP)
    if device.carries:
        return good(name, reading, **shown)
    since = own_links.since_words(link)
    if device.carrier:
        shown["value"] = "carrier, unused"
        return bad(name, reading, f"{name} has carrier, but {device.bond} does not use it {since}", **shown)
    if name not in configured and not (link is not None and link.had_carrier):
        return not_applicable(name, "it has had no carrier in this boot")
    what = f", a slave of {device.bond}," if device.bond else ""
    return bad(name, reading, f"{name}{what} has had no carrier {since}", **shown)


def _judge_gone(given: CheckInput, name: str, reading: Reading) -> Finding:
    link = given.memory.net.links[name]
    if own_links.is_off_the_bus(link, given.value(*own_links.ADAPTERS)):
        sentence = f"{name} is gone: its adapter {link.pci_address} is no longer on the PCI bus"
        return bad(name, reading, sentence, value="no adapter", cause="adapter", **UP)
    return not_applicable(name, "no longer here: renamed, given to a pod, or without its driver")


def _unjudged(configured: tuple[str, ...], device: NetDevice, *, watched: bool) -> str:
    """Why a device is not judged; "" when it is."""
    if configured and device.name not in configured:
        return "not among the configured devices"
    if not configured and not watched:
        return "a virtual function: it belongs to a pod or a virtual machine"
    return "" if device.is_up else "switched off by an administrator"


def judge_flaps(given: CheckInput) -> Iterator[Finding]:
    """Per device: more losses of carrier in the window than the limit is bad; number is losses."""
    limit, window_seconds = given.limits["losses_count"], given.limits["window_seconds"]
    window = growth.shown_window(window_seconds)
    shown: dict[str, Any] = {"limit": f"{limit} losses in {window}"}
    for _, devices, reading in given.values("link.devices"):
        for device in devices:
            link = given.memory.net.links.get(device.name)
            configured = tuple(given.limits["devices"])
            if unjudged := _unjudged(configured, device, watched=link is not None and link.watched):
                yield not_applicable(device.name, unjudged)
                continue
            if device.down_count is None:
                yield not_applicable(device.name, "the kernel does not count its losses of carrier")
                continue
            losses = growth.within(
                given, growth.LOSSES, device.name, window_seconds, after_seconds=SETTLE_SECONDS
            )
            if losses is None:
                yield good(device.name, reading, value="first sample", **shown)
                continue
            value = f"{losses} losses"
            if losses <= limit:
                yield good(device.name, reading, value=value, number=float(losses), **shown)
                continue
            sentence = f"{device.name} lost its carrier {losses} times in {window}"
            yield bad(device.name, reading, sentence, value=value, number=float(losses), **shown)
        if not devices:
            yield not_applicable(NODE, "no network adapter and no default route")


DEVICES = Limit(
    name="devices", unit="device names", default=(),
    meaning="Only these are judged, of whatever kind; empty: adapters of the node and devices with a "
            "default route.",
)  # fmt: skip
SOURCE = "carrier, carrier_up_count and carrier_down_count in sysfs, MII status of bond slaves"

CHECKS = (
    Check(
        id="link.down",
        title="Network links up",
        family="node",
        signals=("link.devices",),
        source=SOURCE,
        node_class=NodeClass.CHECK,
        judge=judge_down,
        limits=(DEVICES,),
        # 45 s without carrier are no flap any more.
        hold=HoldRule(bad_polls=3, of_polls=3),
        common_cause="links",
        boot_grace_seconds=SETTLE_SECONDS,
    ),
    Check(
        id="link.flaps",
        title="Network links steady",
        family="node",
        signals=("link.devices",),
        source="growth of carrier_down_count in sysfs",
        node_class=NodeClass.CHECK,
        judge=judge_flaps,
        limits=(
            Limit(name="losses_count", unit="losses", default=3,
                  meaning="Losses of carrier in the window that are still tolerated."),
            Limit(name="window_seconds", unit="s", default=3600.0,
                  meaning="Losses are added up over so long; at most a day."),
            DEVICES,
        ),
        hold=HoldRule(),
        depends_on=("link.down",),
        common_cause="links",
        boot_grace_seconds=SETTLE_SECONDS,
    ),
)
