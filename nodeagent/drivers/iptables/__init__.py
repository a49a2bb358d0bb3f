"""iptables of the node: own chains and jumps in the mangle table, on whichever backend the host uses.

Two writers, `nft` and `legacy`, behind one Protocol. Never touches a foreign chain, nor any rule in one
but a jump into an own chain; never waits for a lock.
"""

from nodeagent.drivers.iptables.choice import choose_backend, open_rules
from nodeagent.drivers.iptables.difference import LINE_CHAINS
from nodeagent.drivers.iptables.events import RuleEvents
from nodeagent.drivers.iptables.programs import Backend
from nodeagent.drivers.iptables.reading import ChainReading
from nodeagent.drivers.iptables.text import canonical
from nodeagent.drivers.iptables.writer import RuleWriter

__all__ = [
    "LINE_CHAINS", "Backend", "ChainReading", "RuleEvents", "RuleWriter", "canonical", "choose_backend",
    "open_rules",
]  # fmt: skip
