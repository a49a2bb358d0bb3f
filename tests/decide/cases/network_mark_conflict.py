"""Cases of `network.mark_conflict`: foreign users matter only while we set marks."""

from nodeagent.decide.marks import EGRESS
from nodeagent.errors import ErrorKind
from nodeagent.signals import Unread
from nodeagent.traffic import MarkReading, MarkState, Rule
from tests.decide.build import Case, bad, not_applicable, ok, unknown

CALICO = "iptables-nft -t mangle -A cali-x -j MARK --set-xmark 0x10000/0x10000"
MARKING = Rule(chain=EGRESS, arguments="-j SET --map-set nodeagent-out4 src --map-mark --map-prio")
CLASS_ONLY = Rule(chain=EGRESS, arguments="-j SET --map-set nodeagent-out4 src --map-prio")


def marks(*users: str, rule: Rule = MARKING) -> dict[str, MarkReading]:
    """A reading with these foreign users."""
    state = MarkState(family=4, chains=(EGRESS,), rules=(rule,))
    return {"net.marks": MarkReading(backend="nft", states=(state, MarkState(family=6)), mark_users=users)}


CASES = (
    Case(
        name="healthy",
        readings=marks(),
        want=ok(value="marks", limit="0 foreign users of our bits"),
    ),
    Case(
        name="at the limit: class-only beside a foreign user is normal",
        readings=marks(CALICO, rule=CLASS_ONLY),
        want=ok(value="class-only"),
    ),
    Case(
        name="over the limit",
        readings=marks(CALICO, "another"),
        want=bad(value="2 foreign users", says=f"2 foreign rules, the first: {CALICO}", cause="overlap"),
    ),
    Case(
        name="nothing of ours yet",
        readings={"net.marks": MarkReading(backend="nft", states=(), mark_users=(CALICO,))},
        want=ok(value="class-only"),
    ),
    Case(
        name="unread: denied",
        readings={"net.marks": Unread(kind=ErrorKind.DENIED, reason="EPERM")},
        want=unknown(says="EPERM"),
    ),
    Case(
        name="not supported",
        readings={"net.marks": Unread(kind=ErrorKind.ABSENT, reason="network is off")},
        want=not_applicable(),
    ),
    Case(name="missing on the board", readings={}, want=unknown()),
)
