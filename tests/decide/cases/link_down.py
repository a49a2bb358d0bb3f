"""Cases of `link.down`: what was up in this boot and is not, in the words of the kernel and of the bond."""

from nodeagent.errors import ErrorKind
from nodeagent.net_signals import NetAdapters
from nodeagent.signals import Unread
from tests.decide.build import NOT_APPLICABLE, OK, Case, Want, bad, not_applicable, ok, unknown
from tests.decide.links_build import LOST, PCI, device, link, remembered

SIGNAL = "link.devices"
HERE = remembered({"eth0": link()})
GONE = remembered({"eth0": link(lost=LOST)})
GONE_UNSEEN = remembered({"eth0": link(lost=LOST, lost_unseen=True)})
DOWN = {SIGNAL: (device(carrier=False, down_count=2),)}

CASES = (
    Case(
        name="healthy", readings={SIGNAL: (device(),)}, memory=HERE,
        want=ok("eth0", value="carrier", limit="carrier"),
    ),
    Case(
        name="at the limit: a slave that its bond is about to use",
        readings={SIGNAL: (device(bond="bond0", mii_up=None),)}, memory=HERE, want=ok("eth0"),
    ),
    Case(
        name="over the limit: it lost its carrier", readings=DOWN, memory=GONE,
        want=bad("eth0", value="no carrier", says="eth0 has had no carrier since 2027-01-15T08:50:00Z"),
    ),
    Case(
        name="it was down already when the agent first looked", readings=DOWN, memory=GONE_UNSEEN,
        want=bad("eth0", says="or longer"),
    ),
    Case(
        name="an uplink without an adapter counts", memory=remembered({"bond0": link(pci_address="")}),
        readings={SIGNAL: (device("bond0", pci_address="", is_uplink=True, carrier=False),)},
        want=bad("bond0"),
    ),
    Case(
        name="an uplink that lost its route with its carrier still counts",
        memory=remembered({"wan": link(pci_address="", lost=LOST)}),
        readings={SIGNAL: (device("wan", pci_address="", carrier=False),)}, want=bad("wan"),
    ),
    Case(
        name="a slave of a bond is named as one", memory=GONE,
        readings={SIGNAL: (device(carrier=False, bond="bond0", mii_up=False),)},
        want=bad("eth0", says="eth0, a slave of bond0, has had no carrier"),
    ),
    Case(
        name="a slave with carrier that its bond does not use", memory=GONE,
        readings={SIGNAL: (device(bond="bond0", mii_up=False),)},
        want=bad("eth0", value="carrier, unused", says="bond0 does not use it since"),
    ),
    Case(
        name="never had carrier in this boot: perhaps no cable",
        readings={SIGNAL: (device(carrier=False, up_count=0, down_count=1),)},
        memory=remembered({"eth0": link(had_carrier=False)}),
        want=not_applicable("eth0", says="no carrier in this boot"),
    ),
    Case(
        name="never had carrier, and is configured", limits={"devices": ("eth0",)},
        readings={SIGNAL: (device(carrier=False, up_count=0),)},
        memory=remembered({"eth0": link(had_carrier=False)}), want=bad("eth0"),
    ),
    Case(
        name="switched off by an administrator", memory=HERE,
        readings={SIGNAL: (device(is_up=False, carrier=None),)},
        want=not_applicable("eth0", says="administrator"),
    ),
    Case(
        name="a virtual function belongs to a pod", memory=remembered({"eth0": link(watched=False)}),
        readings={SIGNAL: (device(is_virtual_function=True, carrier=False),)},
        want=not_applicable("eth0", says="virtual function"),
    ),
    Case(
        name="only the configured devices", limits={"devices": ("eth1",)},
        readings={SIGNAL: (device(carrier=False), device("eth1", index=3))},
        memory=remembered({"eth0": link(), "eth1": link(index=3)}),
        want=(Want(state=NOT_APPLICABLE, target="eth0"), Want(state=OK, target="eth1")),
    ),
    Case(
        name="a configured device that is not here", limits={"devices": ("eth1",)},
        readings={SIGNAL: ()}, want=bad("eth1", value="no device"),
    ),
    Case(
        name="gone with its adapter", memory=HERE,
        readings={SIGNAL: (), "net.adapters": NetAdapters(addresses=())},
        want=bad("eth0", cause="adapter", says=f"its adapter {PCI} is no longer on the PCI bus"),
    ),
    Case(
        name="gone, and its adapter is still there: renamed, or given to a pod", memory=HERE,
        readings={SIGNAL: (), "net.adapters": NetAdapters(addresses=(PCI,))},
        want=not_applicable("eth0"),
    ),
    Case(
        name="gone, and the bus was not read", memory=HERE,
        readings={SIGNAL: (), "net.adapters": Unread(kind=ErrorKind.TIMEOUT, reason="hangs")},
        want=not_applicable("eth0"),
    ),
    Case(name="recovered", readings={SIGNAL: (device(down_count=9),)}, memory=GONE, want=ok("eth0")),
    Case(
        name="unread: blank after a good read", memory=HERE,
        readings={SIGNAL: (device(carrier=None, detail="read carrier: Input/output error"),)},
        want=unknown("eth0", says="Input/output error"),
    ),
    Case(
        name="the list of devices was not read", memory=HERE,
        readings={SIGNAL: Unread(kind=ErrorKind.DENIED, reason="EACCES")}, want=unknown(),
    ),
    Case(
        name="not supported: no network but loopback", readings={SIGNAL: ()}, want=not_applicable(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
