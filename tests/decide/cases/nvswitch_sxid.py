"""Cases of `nvswitch.sxid`."""

from nodeagent.errors import ErrorKind
from nodeagent.memory import Hold, Memory
from nodeagent.model import NODE, NodeClass, State
from nodeagent.signals import Unread
from tests.decide.build import GPU, OK, Case, Want, bad, not_applicable, ok, unknown
from tests.decide.cases.xid import AT, LOG, SWITCH, memory, record

READ = {"kernel_log": LOG}
AWAY = {"kernel_log": Unread(kind=ErrorKind.DENIED, reason="permission denied")}


def sxid(number: int = 12028, node_class: NodeClass = NodeClass.RESET, **more: object) -> Memory:
    """Memory of a standing SXid."""
    return memory(record(number, node_class, pci_address=SWITCH, **more))


CASES = (
    Case(name="healthy: no switch ever spoke", readings=READ, want=ok(NODE, value="none")),
    Case(
        name="over the limit: a standing record speaks", readings=READ, memory=sxid(),
        want=bad(SWITCH, value="SXid 12028", cause="sxid 12028", node_class=NodeClass.RESET, immediate=True),
    ),
    Case(
        name="at the limit: class app is shown", readings=READ, memory=sxid(12000, NodeClass.APP),
        want=bad(SWITCH, node_class=NodeClass.APP),
    ),
    Case(
        name="below the limit: class ignore is not", readings=READ, memory=sxid(11012, NodeClass.IGNORE),
        want=ok(SWITCH),
    ),
    Case(
        name="an Xid of a GPU is not a switch's", readings=READ, memory=memory(record(79, pci_address=GPU)),
        want=ok(NODE),
    ),
    Case(
        name="recovered: a cleared record is good, with its reason", readings=READ,
        memory=sxid(cleared=AT, cleared_by="new boot"), want=ok(SWITCH, says="SXid 12028 cleared: new boot"),
    ),
    Case(
        name="a held switch without records is judged until it is let go", readings=READ,
        memory=Memory(holds={
            f"nvswitch.sxid|{SWITCH}": Hold(state=State.CRITICAL, since=AT, node_class=NodeClass.RESET),
        }),
        want=(Want(state=OK, target=SWITCH),),
    ),
    Case(name="unread kernel log", readings=AWAY, want=unknown(NODE, says="permission denied")),
    Case(
        name="unread kernel log: a standing record stays", readings=AWAY, memory=sxid(),
        want=(*bad(SWITCH), *unknown(NODE)),
    ),
    Case(name="not supported: no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
    Case(name="missing on the board", readings={}, want=unknown(NODE, says="not yet")),
)
