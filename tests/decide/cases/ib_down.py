"""Cases of `ib.down`: RDMA ports that were up in this boot and are not."""

from nodeagent.errors import ErrorKind
from nodeagent.net_signals import NetAdapters
from nodeagent.signals import Unread
from tests.decide.build import NOT_APPLICABLE, OK, Case, Want, bad, not_applicable, ok, unknown
from tests.decide.links_build import ADAPTER, LOST, PORT, link, port, remembered

SIGNAL = f"ib.port@{PORT}"
WAS_UP = remembered(ports={PORT: link(pci_address=ADAPTER)})
LOST_UP = remembered(ports={PORT: link(pci_address=ADAPTER, lost=LOST)})
NEVER_UP = remembered(ports={PORT: link(had_carrier=False)})
BUS = NetAdapters(addresses=(ADAPTER,))

CASES = (
    Case(
        name="healthy", readings={SIGNAL: port()}, memory=WAS_UP,
        want=ok(PORT, value="ACTIVE, LinkUp", limit="ACTIVE, LinkUp"),
    ),
    Case(
        name="at the limit: active over a link layer of another kind",
        readings={SIGNAL: port(link_layer="Unknown")}, memory=WAS_UP, want=ok(PORT),
    ),
    Case(
        name="over the limit: no signal", readings={SIGNAL: port("DOWN", "Polling")}, memory=LOST_UP,
        want=bad(PORT, cause="Polling", value="DOWN, Polling",
                 says="mlx5_0/1 is down since 2027-01-15T08:50:00Z: it hears nothing"),
    ),
    Case(
        name="a link that no subnet manager has made active", memory=LOST_UP,
        readings={SIGNAL: port("INIT", "LinkUp")}, want=bad(PORT, says="no subnet manager"),
    ),
    Case(
        name="a link that recovers from errors", memory=LOST_UP,
        readings={SIGNAL: port("ACTIVE", "LinkErrorRecovery")}, want=bad(PORT, says="recovers"),
    ),
    Case(
        name="a state of its own", memory=LOST_UP,
        readings={SIGNAL: port("ACTIVE_DEFER", "Phy Test")}, want=bad(PORT, says="ACTIVE_DEFER, Phy Test"),
    ),
    Case(
        name="never up in this boot: perhaps no cable", memory=NEVER_UP,
        readings={SIGNAL: port("DOWN", "Polling")}, want=not_applicable(PORT, says="not up in this boot"),
    ),
    Case(
        name="never up, and configured", memory=NEVER_UP, limits={"ports": (PORT,)},
        readings={SIGNAL: port("DOWN", "Polling")}, want=bad(PORT),
    ),
    Case(
        name="switched off by an administrator", memory=WAS_UP,
        readings={SIGNAL: port("DOWN", "Disabled")}, want=not_applicable(PORT, says="administrator"),
    ),
    Case(
        name="an Ethernet port whose device is here is judged by that",
        readings={SIGNAL: port("DOWN", "Disabled", link_layer="Ethernet", net_device="eth2")},
        memory=LOST_UP, want=not_applicable(PORT, says="eth2 is judged by link.down"),
    ),
    Case(
        name="an Ethernet port whose device is in a pod is judged here", memory=LOST_UP,
        readings={SIGNAL: port("DOWN", "Disabled", link_layer="Ethernet")},
        want=bad(PORT, says="it has no carrier"),
    ),
    Case(
        name="a virtual function belongs to a pod", memory=LOST_UP,
        readings={SIGNAL: port("DOWN", "Polling", is_virtual_function=True)},
        want=not_applicable(PORT, says="virtual function"),
    ),
    Case(
        name="only the configured ports", limits={"ports": ("mlx5_1/1",)}, memory=LOST_UP,
        readings={SIGNAL: port("DOWN", "Polling"), "ib.port@mlx5_1/1": port()},
        want=(Want(state=NOT_APPLICABLE, target=PORT), Want(state=OK, target="mlx5_1/1")),
    ),
    Case(
        name="a configured port that is not here", limits={"ports": (PORT,)},
        readings={"net.adapters": BUS}, want=bad(PORT, value="no port"),
    ),
    Case(
        name="gone with its adapter", memory=WAS_UP,
        readings={"net.adapters": NetAdapters(addresses=())},
        want=bad(PORT, cause="adapter", says=f"its adapter {ADAPTER} is no longer on the PCI bus"),
    ),
    Case(
        name="gone, and its adapter is still there", memory=WAS_UP, readings={"net.adapters": BUS},
        want=not_applicable(PORT),
    ),
    Case(name="recovered", readings={SIGNAL: port()}, memory=LOST_UP, want=ok(PORT)),
    Case(
        name="unread: blank after a good read", memory=WAS_UP,
        readings={SIGNAL: Unread(kind=ErrorKind.LOST, reason="Input/output error")},
        want=unknown(PORT, says="Input/output error"),
    ),
    Case(
        name="not supported",
        readings={"ib.port": Unread(kind=ErrorKind.ABSENT, reason="no RDMA adapter on this node")},
        want=not_applicable(says="no RDMA adapter"),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
